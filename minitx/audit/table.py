"""Tables for a terminal: plain text, a row a line, printed as they come."""
from __future__ import annotations

import textwrap
from collections.abc import Sequence


class Table:
    """`head` says the columns and their widths; the first is on the left, numbers are on the right."""

    def __init__(self, head: Sequence[str], widths: Sequence[int], left: Sequence[int] = (0,)) -> None:
        self.head, self.widths, self.left = head, widths, set(left)

    def title(self) -> str:
        return self.line(self.head)

    def line(self, cells: Sequence[str]) -> str:
        aligned = [c.ljust(w) if i in self.left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, self.widths))]
        return "  ".join(aligned).rstrip()


def paragraph(text: str, indent: str, width: int = 100) -> str:
    """Indented lines of at most `width`."""
    return "\n".join(
        textwrap.fill(line, width, initial_indent=indent, subsequent_indent=indent) for line in text.splitlines()
    )
