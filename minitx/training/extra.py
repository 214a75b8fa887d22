"""Libraries that only the programs need: imported when needed, and when missing, the command that installs them."""
from __future__ import annotations

import importlib
from typing import Any


class MissingExtra(ImportError):
    """A library of the extra `app` is not installed."""


def need(module: str) -> Any:
    """`import module`, or an error that says what to type."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        library = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != library:
            raise
        hint = 'in the clone, pip install -e ".[app]"'
        raise MissingExtra(f"{library} is not installed, and this needs it: {hint}") from None
