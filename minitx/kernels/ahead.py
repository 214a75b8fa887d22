"""A second process that compiles, where nothing has been compiled yet and there is a second core.

The first process compiles each kernel when it needs it: in a training step first those of the forward pass. The second,
`python -m minitx.kernels.backward`, compiles what the rest of the step needs and leaves it in the cache, where the
first one finds it.
"""
from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from contextlib import suppress


def start() -> None:
    """Let it run beside this process, and not longer than that."""
    if (os.cpu_count() or 1) < 2 or not sys.executable or getattr(sys, "frozen", False):
        return
    nothing = subprocess.DEVNULL
    command = [sys.executable, "-m", "minitx.kernels.backward"]
    try:
        process = subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)
    except OSError:  # no processes for us: all is compiled here
        return

    with suppress(RuntimeError):  # no more threads
        threading.Thread(target=process.wait, daemon=True).start()  # what has ended does not stay as a zombie

    @atexit.register
    def stop() -> None:
        process.kill()
        process.wait()
