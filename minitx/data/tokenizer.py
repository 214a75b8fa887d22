"""Characters in, ids out, and back: the vocabulary is three special ids and then the symbols, one id each.

    id      0      1      2      3 ...
    symbol  <pad>  <bos>  <eos>  first symbol ...

PAD fills the end of shorter rows and is never predicted, BOS starts a target, EOS ends a source and a target.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minitx.tensor import Array

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ("<pad>", "<bos>", "<eos>")


class CharTokenizer:
    """One id for each symbol, and a symbol is one character.

    With a `separator` symbols are written apart, "1 2 3": `decode` puts the separator between them, and `encode` skips
    white space, so that "123" reads the same.

        >>> digits = CharTokenizer("0123456789", separator=" ")
        >>> digits.encode("1 2 9")
        array([ 4,  5, 12])
        >>> digits.decode([4, 5, 12, EOS, PAD])
        '1 2 9'
    """

    def __init__(self, symbols: Iterable[str], separator: str = "") -> None:
        self.symbols = "".join(symbols)
        self.separator = separator
        self.ids = {symbol: i for i, symbol in enumerate(self.symbols, start=len(SPECIAL))}
        if not self.symbols:
            raise ValueError("a vocabulary needs at least one symbol, and there is none")
        if len(self.ids) != len(self.symbols):
            twice = next(s for s in self.symbols if self.symbols.count(s) > 1)
            raise ValueError(f"every symbol of a vocabulary stands in it once, and {twice!r} stands in it twice")

    @classmethod
    def of(cls, text: str, separator: str = "") -> CharTokenizer:
        """The vocabulary of a text: its distinct characters in the order of their code points."""
        return cls(sorted(set(text)), separator)

    def __len__(self) -> int:
        """The size of the vocabulary, special ids included."""
        return len(SPECIAL) + len(self.symbols)

    def encode(self, text: str) -> Array:
        """Text → ids (n,), without special ids. A character outside the vocabulary is an error."""
        skip = bool(self.separator)
        try:
            return np.array([self.ids[c] for c in text if not (skip and c.isspace())], np.int64)
        except KeyError:
            position = next(i for i, c in enumerate(text) if c not in self.ids and not (skip and c.isspace()))
        unknown = text[position]
        shown = self.symbols if len(self.symbols) <= 40 else self.symbols[:40] + "..."
        raise ValueError(
            f"{unknown!a} (character {position + 1}) is not among the {len(self.symbols)} symbols of the vocabulary, "
            f"{shown!a}; use those, or train on a text that has it"
        )

    def decode(self, ids: Iterable[int]) -> str:
        """Ids → text, up to the first EOS. A PAD or BOS that a model put in the middle is shown: it is a mistake."""
        words = []
        for i in map(int, ids):
            if i == EOS:
                break
            if not 0 <= i < len(self):
                raise IndexError(f"id {i} is outside the vocabulary of {len(self)} (0 to {len(self) - 1})")
            words.append(SPECIAL[i] if i < len(SPECIAL) else self.symbols[i - len(SPECIAL)])
        return self.separator.join(words)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "characters", "symbols": self.symbols, "separator": self.separator}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> CharTokenizer:
        if d.get("kind") != "characters" or not isinstance(d.get("symbols"), str):
            raise ValueError(f"not a vocabulary of characters: kind {d.get('kind')!r}, keys {', '.join(map(str, d))}")
        return cls(d["symbols"], str(d.get("separator", "")))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharTokenizer) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.symbols, self.separator))

    def __repr__(self) -> str:
        return f"CharTokenizer({self.symbols!a}{f', separator={self.separator!a}' if self.separator else ''})"
