"""Objectives: from ids to a Batch, which says what is read and what is to be predicted. No model shifts anything.

    next token            read   x_1 x_2 x_3 x_4      predict  x_2 x_3 x_4 x_5
    masked                read   x_1 [M] x_3 x_4      predict   -  x_2  -   -
    sequence to sequence  read   x_1 .. x_n EOS  and  BOS y_1 .. y_m     predict  y_1 .. y_m EOS
"""
from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from minitx import masks
from minitx.data.batch import IGNORED, Batch, encoder_decoder, pad
from minitx.data.tokenizer import PAD
from minitx.tensor import Array


def next_token(ids: Any, lengths: Any = None) -> Batch:
    """At each place the next id is the target: ids (B, N) → a Batch (B, N - 1). Nothing else shifts anything.

    lengths (B,)  where rows are padded on the right: how many ids of each are real; targets beyond are ignored

    Give it BOS and EOS with the ids where the model is to know beginnings and ends. A row of n ids has n - 1 targets.
    """
    ids = _ids(ids)
    B, N = ids.shape
    if N < 2:
        raise ValueError(f"next_token: a row of {N} ids has no next one; rows are of 2 or more (lengths may be less)")
    read, targets = ids[:, :-1].copy(), ids[:, 1:].copy()
    if lengths is None:
        return Batch(read, targets)
    n = np.maximum(_lengths(lengths, B, N) - 1, 0)  # of what is read
    targets[np.arange(N - 1) >= n[:, None]] = IGNORED
    return Batch(read, targets, mask=masks.padding(n))


def masked_lm(
    ids: Any,
    rng: np.random.Generator,
    vocab_size: int,
    mask_id: int,
    special_ids: Collection[int] = (),
    p: float = 0.15,
    lengths: Any = None,
) -> Batch:
    """A gap text for an encoder: ids (B, N) → what is read, with some tokens changed, and these tokens as targets.

    Each token is chosen with probability p, by itself. Of the chosen ones 80 % are read as `mask_id`, 10 % as a random
    ordinary token, and 10 % as they are. All of the chosen are targets, and nothing else is: a token that is read as it
    is may be one, so the model cannot rest on what it sees.

    special_ids are never chosen and never a random token (padding, BOS, EOS ...; `mask_id` is one without being named).
    With `lengths` (B,) places beyond them are not chosen either, and the batch has a padding mask. There are three
    draws per place, used or not: what happens at one place does not depend on the ids at others.

    source: Devlin et al. 2019, "BERT", section 3.1, appendix A.1. (There the number of chosen tokens is fixed at 15 %
    of a row; here only its mean is, so a short row may have none.)
    """
    ids = _ids(ids)
    if not 0 <= p <= 1:
        raise ValueError(f"masked_lm: p is a probability, 0 <= p <= 1, not {p}")
    special = np.unique(np.array([*special_ids, mask_id], np.int64))
    _inside(special, vocab_size, "masked_lm: special_ids and mask_id")
    ordinary = np.setdiff1d(np.arange(vocab_size), special)
    if not len(ordinary):
        raise ValueError(f"masked_lm: all {vocab_size} ids are special, so there is nothing to predict")
    _inside(ids, vocab_size, "masked_lm: ids")

    chance, fate = rng.random(ids.shape), rng.random(ids.shape)
    other = ordinary[rng.integers(0, len(ordinary), ids.shape)]
    real, mask = np.ones(ids.shape, np.bool_), None
    if lengths is not None:
        n = _lengths(lengths, *ids.shape)
        real, mask = np.arange(ids.shape[1]) < n[:, None], masks.padding(n)
    chosen = (chance < p) & real & ~np.isin(ids, special)
    read = np.where(chosen & (fate < 0.8), mask_id, ids)
    read = np.where(chosen & (fate >= 0.8) & (fate < 0.9), other, read)
    return Batch(read, np.where(chosen, ids, IGNORED), mask=mask)


def sequence_to_sequence(sources: Sequence[Any], targets: Sequence[Any]) -> Batch:
    """Rows of ids of any lengths, symbols only, for an encoder-decoder; see batch.py for how BOS and EOS are set."""
    if len(sources) != len(targets):
        raise ValueError(f"one target per source: {len(sources)} sources, {len(targets)} targets")
    x, y = ([_row(row) for row in rows] for rows in (sources, targets))
    return encoder_decoder(*pad(x), *pad(y))


def next_token_of_rows(rows: Sequence[Any]) -> Batch:
    """`next_token` of rows of any lengths, padded on the right to the longest."""
    ids, lengths = pad([_row(row) for row in rows], PAD)
    return next_token(ids, lengths)


# ---------------------------------------------------------------------- what is given


def _ids(given: Any) -> Array:
    ids = np.asarray(given)
    if ids.ndim != 2 or (ids.dtype.kind not in "iu" and ids.size):
        raise ValueError(f"ids are integers (rows, places), not {ids.dtype} {ids.shape}; a single row is ids[None]")
    return ids.astype(np.int64)


def _row(given: Any) -> Array:
    row = np.asarray(given)
    if row.ndim != 1 or (row.dtype.kind not in "iu" and row.size):
        raise ValueError(f"a row is integers (n,), not {row.dtype} {row.shape}")
    return row.astype(np.int64)


def _lengths(given: Any, B: int, N: int) -> Array:
    lengths = np.asarray(given)
    if lengths.shape != (B,) or lengths.dtype.kind not in "iu" or (lengths < 0).any() or (lengths > N).any():
        raise ValueError(f"lengths are {B} integers from 0 to {N}, one per row, not {given!r}")
    return lengths.astype(np.int64)


def _inside(ids: Array, size: int, what: str) -> None:
    outside = ids[(ids < 0) | (ids >= size)]
    if outside.size:
        raise IndexError(f"{what}: id {outside[0]} is outside the vocabulary of {size} (0 to {size - 1})")
