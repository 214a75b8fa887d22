"""Ctrl-C as a request: the step in progress finishes, the run is saved, and only a second Ctrl-C stops at once."""
from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any


class Interrupt:
    """`with Interrupt() as interrupt:` and then look at `interrupt.asked` between two steps.

    The handler stands only inside the `with` and only in the main thread (Python runs signal handlers nowhere else);
    what stood before comes back.
    """

    def __init__(self, notice: Callable[[str], None] | None = None) -> None:
        self.asked = False
        self.notice = notice
        self._before: Any = None
        self._installed = False

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            # None: a handler that was not set from Python cannot be put back
            signal.signal(signal.SIGINT, signal.default_int_handler if self._before is None else self._before)
            self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self.notice is not None:
            with suppress(RuntimeError):  # the signal came in the middle of a print: no word, but no harm either
                self.notice("Ctrl-C: finishing this step, then saving. Once more to stop at once, without saving.")
