"""What a learner's function prints is let through, but not a thousand times: a check calls it that often."""
from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

LINES = 40
SIGNS = 8000  # of lines that do not end


class Limited(io.TextIOBase):
    """The first lines go to the stream; of the others only the number is kept."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.lines, self.signs, self.held_back = stream, 0, 0, 0
        self.last = "\n"

    def write(self, text: str) -> int:
        let = text[: max(0, SIGNS - self.signs)] if self.lines < LINES else ""
        if let:
            self.stream.write(let)
            self.stream.flush()
            self.last = let[-1]
        self.held_back += text[len(let) :].count("\n")
        self.lines += text.count("\n")
        self.signs += len(text)
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def end(self) -> None:
        """What follows begins on a line of its own."""
        if self.last != "\n":
            self.stream.write("\n")
        self.stream.flush()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(self.stream.encoding)


@contextmanager
def limited() -> Iterator[Limited]:
    """Standard output, limited; warnings and messages to standard error likewise."""
    out, err = Limited(sys.stdout), Limited(sys.stderr)
    with redirect_stdout(out), redirect_stderr(err):
        yield out
    for stream in (out, err):
        stream.end()
