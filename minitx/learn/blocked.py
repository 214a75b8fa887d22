"""What a learner's file cannot import while it is checked: a help to honesty, not a sandbox."""
from __future__ import annotations

import builtins
import os
from typing import Any

BLOCKED = {"minitx", "torch", "jax", "autograd", "tensorflow", "mygrad", "tinygrad", "keras", "mxnet", "paddle", "cupy"}


class Blocked(ImportError):
    """An import of what the learner is to write."""


def block(folder: str) -> None:
    """Imports from the files of this folder do not find what is blocked, for as long as the process lives."""
    real = builtins.__import__

    def guarded(name: str, globals: Any = None, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] in BLOCKED and os.path.dirname((globals or {}).get("__file__") or "") == folder:
            raise Blocked(name)
        return real(name, globals, *rest, **more)

    builtins.__import__ = guarded
