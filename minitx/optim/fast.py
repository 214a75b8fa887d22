"""Where the compiled versions of an optimizer's loops are, if there are any: minitx/kernels/optimizer.py."""
from __future__ import annotations

import functools
import importlib
from typing import Any

from minitx import settings


def kernels() -> Any:
    """The module, or None: inside `reference()`, or where numba is missing (which the first op has said)."""
    return _found() if settings.current.get().kernels else None


@functools.cache
def _found() -> Any:
    try:
        return importlib.import_module("minitx.kernels.optimizer")
    except ModuleNotFoundError as error:
        if error.name in ("numba", "llvmlite"):
            return None
        raise
