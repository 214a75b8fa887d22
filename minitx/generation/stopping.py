"""Where a row ends: at an EOS id, at a stop sequence of its text, or when it may not go on.

A stop sequence is text, and where tokens begin and end has nothing to do with it: two line ends may be one token, two,
or the end of one and the beginning of another. So what might be the beginning of a stop sequence is held back until the
next tokens say whether it is.
"""
from __future__ import annotations

from collections.abc import Iterable

import numpy as np

REASONS = {
    "eos": "it said an EOS id",
    "stop": "its text came to a stop sequence",
    "length": "it said max_new ids",
    "positions": "the model has no further positions",
    "error": "it failed: see its error",
}


class Stops:
    """Text goes in piece by piece; what comes out is certain not to belong to a stop sequence.

        >>> stops = Stops(["END"])
        >>> stops.push("the E"), stops.push("nglish EN"), stops.push("D of it")
        ('the ', 'English ', '')
        >>> stops.found
        'END'

    Which stop sequence ends the text, and where, does not depend on the pieces: the one that is complete first (of two
    that are complete at the same character, the longer). Nothing comes out after it.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        stops = list(stops)
        if not all(isinstance(stop, str) and stop for stop in stops):
            raise ValueError("a stop sequence is a text of at least one character")
        self.stops = sorted(stops, key=len, reverse=True)
        self.found: str | None = None
        self.held = ""

    def push(self, piece: str) -> str:
        if self.found is not None:
            return ""
        if not self.stops:
            return piece
        text = self.held + piece
        ends = [(at + len(stop), -len(stop), stop) for stop in self.stops if (at := text.find(stop)) >= 0]
        if ends:
            end, _, self.found = min(ends)
            self.held = ""
            return text[: end - len(self.found)]
        back = next((n for n in range(min(len(text), self.longest), 0, -1) if self._may_begin(text[-n:])), 0)
        self.held = text[len(text) - back :]
        return text[: len(text) - back]

    @property
    def longest(self) -> int:
        """The longest beginning of a stop sequence that is not the whole."""
        return len(self.stops[0]) - 1

    def _may_begin(self, tail: str) -> bool:
        return any(stop.startswith(tail) for stop in self.stops)

    def finish(self) -> str:
        """The row has ended: what was held back did not become a stop sequence."""
        held, self.held = self.held, ""
        return held


def eos_ids(eos: int | Iterable[int] | None) -> frozenset[int]:
    """One id, several, or none."""
    if eos is None:
        return frozenset()
    ids = [eos] if isinstance(eos, int | np.integer) else list(eos)
    if not all(isinstance(i, int | np.integer) and not isinstance(i, bool) and i >= 0 for i in ids):
        raise ValueError(f"eos is an id, several, or None, not {eos!r}")
    return frozenset(map(int, ids))
