"""Text while it is being written: what can be said after each id, and nothing that would have to be taken back.

Two things are held back: the first bytes of a character whose last byte is in a later token, and what may turn out to
be the beginning of a stop sequence.
"""
from __future__ import annotations

from typing import Any, Protocol

from minitx.generation.stopping import Stops


class IdStream(Protocol):
    def push(self, i: int) -> str: ...
    def finish(self) -> str: ...


class Decoded:
    """For a tokenizer without a stream of its own: what each id adds to the decoded text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.text = ""

    def push(self, i: int) -> str:
        self.ids.append(i)
        before, self.text = self.text, self.tokenizer.decode(self.ids)
        return self.text[len(before) :]

    def finish(self) -> str:
        return ""


class Written:
    """The text of one row: `push(id)` returns what is new in it, `finish()` what was still held back."""

    def __init__(self, tokenizer: Any, stops: Stops) -> None:
        self.ids: IdStream = tokenizer.stream() if hasattr(tokenizer, "stream") else Decoded(tokenizer)
        self.stops = stops
        self.pieces: list[str] = []

    def push(self, i: int) -> str:
        return self._said(self.stops.push(self.ids.push(i)))

    def finish(self) -> str:
        return self._said(self.stops.push(self.ids.finish()) + self.stops.finish())

    def _said(self, piece: str) -> str:
        self.pieces.append(piece)
        return piece

    @property
    def stopped(self) -> bool:
        return self.stops.found is not None

    @property
    def text(self) -> str:
        return "".join(self.pieces)
