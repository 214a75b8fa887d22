"""Tokenizers as plain data, of whatever kind."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from minitx.data.bpe import BytePairTokenizer
from minitx.data.tokenizer import CharTokenizer
from minitx.tensor import Array


class Tokenizer(Protocol):
    """What a task and a checkpoint need of a tokenizer. Ids 0, 1, 2 are PAD, BOS and EOS."""

    def __len__(self) -> int: ...
    def encode(self, text: str) -> Array: ...
    def decode(self, ids: Iterable[int]) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...


KINDS: dict[str, type[CharTokenizer] | type[BytePairTokenizer]] = {
    "characters": CharTokenizer,
    "byte-pair": BytePairTokenizer,
}


def tokenizer_from_dict(d: dict[str, Any]) -> CharTokenizer | BytePairTokenizer:
    """The tokenizer that `to_dict` wrote."""
    kind = d.get("kind")
    if kind not in KINDS:
        raise ValueError(f"there is no tokenizer of kind {kind!r}; the kinds are {', '.join(KINDS)}")
    return KINDS[kind].from_dict(d)
