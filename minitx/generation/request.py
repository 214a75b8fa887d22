"""Prompts as ids, each checked by itself, so that one that cannot be answered leaves the others alone."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minitx.data.tokenizer import EOS
from minitx.tensor import Array


class Prompt(NamedTuple):
    """The ids that the model reads, or why it cannot."""

    ids: Array  # (n,): a source of an encoder-decoder, the beginning of a text
    number: int  # which prompt it is: with the seed, this fixes its random numbers
    error: Exception | None = None


def is_single(prompts: Any) -> bool:
    """One prompt, a text or ids, rather than several."""
    if isinstance(prompts, str):
        return True
    if isinstance(prompts, np.ndarray):
        return prompts.ndim == 1 and prompts.dtype.kind in "iu"
    return bool(prompts) and all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in prompts)


def read(model: Any, tokenizer: Any, prompts: Sequence[Any], numbers: Sequence[int]) -> list[Prompt]:
    """Prompts as ids. What is wrong with one is kept beside it."""
    out = []
    for prompt, number in zip(prompts, numbers):
        try:
            out.append(Prompt(_ids(model, tokenizer, prompt), number))
        except (ValueError, IndexError) as error:
            out.append(Prompt(np.zeros(0, np.int64), number, error))
    return out


def _ids(model: Any, tokenizer: Any, prompt: Any) -> Array:
    config = model.config
    reads = "prompt" if config.architecture == "decoder" else "source"
    text = isinstance(prompt, str)
    if text and tokenizer is None:
        raise ValueError(f"a {reads} of text needs the tokenizer: generate(model, {reads}s, tokenizer)")
    ids = np.asarray(tokenizer.encode(prompt) if text else prompt)
    if ids.ndim != 1 or (len(ids) and ids.dtype.kind not in "iu"):
        raise ValueError(f"a {reads} is a text or integers (n,), not {ids.dtype} {ids.shape}")
    if not len(ids):
        fix = "its BOS, if the model was trained with one" if reads == "prompt" else "its EOS alone"
        raise ValueError(f"the {reads} is empty; give at least one symbol (as ids perhaps {fix})")
    if bad := [int(i) for i in ids if not 0 <= i < config.vocab_size]:
        raise IndexError(f"id {bad[0]} is outside the vocabulary of {config.vocab_size} (0 to {config.vocab_size - 1})")
    ends = text and reads == "source"  # ids are taken as they are
    most = config.max_length - ends
    if len(ids) > most:
        what = ascii(prompt[:20]) + "..." if text else f"a {reads}"
        room = f"{most} and the end (max_length {config.max_length})" if ends else f"{most} (max_length)"
        raise ValueError(
            f"{what} has {len(ids)} symbols, and the model has positions for {room}; give it less, or train with a "
            "larger max_length"
        )
    return np.append(ids, EOS).astype(np.int64) if ends else ids.astype(np.int64)
