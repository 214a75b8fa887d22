"""A line on stderr, once a process: what a user should know but cannot act on at every call."""
from __future__ import annotations

import sys

_said: set[str] = set()


def once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        if sys.stderr is not None:  # pythonw on Windows has none
            print(f"minitx: {message}", file=sys.stderr, flush=True)
