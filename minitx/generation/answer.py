"""From text to text: encode, decode greedily, write out. What `minitx generate` and the samples of a task do."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minitx import masks
from minitx.data.batch import ended, pad
from minitx.data.vocabulary import Tokenizer
from minitx.generation.greedy import greedy


def answer(model: Any, tokenizer: Tokenizer, texts: Sequence[str], max_new: int | None = None) -> list[str]:
    """An encoder-decoder's target for each source; a decoder's continuation of each prompt (without the prompt).

    `max_new` is at most so many symbols; by default what the model has positions for.
    """
    longest: int = model.config.max_length
    rows = [tokenizer.encode(text) for text in texts]
    if model.config.architecture == "decoder":
        ids, lengths = pad(rows)
        new = greedy(model, ids, mask=masks.padding(lengths), max_new=longest if max_new is None else max_new)
        return [tokenizer.decode(row) for row in new]
    for text, row in zip(texts, rows):
        if len(row) + 1 > longest:
            raise ValueError(
                f"{text[:20]!a}... has {len(row)} symbols, and the model has positions for {longest - 1} and the end "
                f"(max_length {longest}); give it less, or train with a larger max_length"
            )
    ids, lengths = pad(rows)
    room = longest if max_new is None else min(max_new, longest)
    new = greedy(model, ended(ids, lengths), mask=masks.padding(lengths + 1), max_new=room)
    return [tokenizer.decode(row) for row in new]
