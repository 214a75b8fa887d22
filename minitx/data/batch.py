"""A batch: rows of different lengths in one rectangle, what is padding said by masks and ignored targets.

Rows are padded on the right. For an encoder-decoder on source x_1 .. x_n and target y_1 .. y_m:

    ids         x_1 x_2 ... x_n EOS PAD     what the encoder reads
    target_ids  BOS y_1 ... y_m PAD         what the decoder reads
    targets     y_1 y_2 ... EOS -100        what it has to say at each place: the next symbol (teacher forcing)
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from minitx import masks
from minitx.data.tokenizer import BOS, EOS, PAD
from minitx.tensor import Array

IGNORED = -100  # a target that does not count


@dataclass(frozen=True)
class Batch:
    """One training step's worth of examples."""

    ids: Array  # (B, S) integers
    targets: Array  # (B, T) integers, IGNORED where nothing is to be predicted
    target_ids: Array | None = None  # (B, T), for an encoder-decoder
    mask: Any = None  # which of `ids` may be attended to: a mask of minitx.masks; None: all
    target_mask: Any = None  # the same for `target_ids`
    positions: Array | None = None  # (B, T) of a decoder's tokens; None: 0, 1, 2, ...

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def tokens(self) -> int:
        """How many targets count."""
        return int((self.targets != IGNORED).sum())

    def split(self, n: int) -> list[Batch]:
        """At most n micro-batches of nearly equal numbers of rows, none empty."""
        if n < 1:
            raise ValueError(f"a batch is split into at least 1 part, not {n}")
        cuts = [round(i * len(self) / n) for i in range(n + 1)]
        return [self.rows(slice(i, j)) for i, j in pairwise(cuts) if i < j]

    def rows(self, rows: slice) -> Batch:
        """Some of the rows."""
        target_ids = None if self.target_ids is None else self.target_ids[rows]
        mask, target_mask = mask_rows(self.mask, rows), mask_rows(self.target_mask, rows)
        positions = None if self.positions is None else self.positions[rows]
        return type(self)(self.ids[rows], self.targets[rows], target_ids, mask, target_mask, positions)


def mask_rows(mask: Any, rows: slice) -> Any:
    """The mask of some of the rows."""
    if isinstance(mask, masks.padding):
        return masks.padding(mask.lengths[rows], mask.side)
    if isinstance(mask, masks.documents) and mask.ids.ndim == 2:
        return masks.documents(mask.ids[rows])
    if isinstance(mask, masks.Both):
        first, *others = (mask_rows(part, rows) for part in mask.parts)
        for other in others:
            first = first & other
        return first
    if isinstance(mask, masks.boolean):
        mask = mask.array
    if isinstance(mask, np.ndarray):
        return mask[rows] if mask.ndim > 2 and len(mask) > 1 else mask  # (T_q, T_k) and (1, T_q, T_k) hold for all rows
    return mask  # None, or one that holds for all rows alike


def pad(rows: Sequence[Array], value: int = PAD) -> tuple[Array, Array]:
    """Rows of any lengths → (a rectangle (B, N) filled up with `value`, lengths (B,))."""
    lengths = np.array([len(row) for row in rows], np.int64)
    out = np.full((len(rows), lengths.max(initial=0)), value, np.int64)
    out[np.arange(out.shape[1]) < lengths[:, None]] = np.concatenate([*rows, np.zeros(0, np.int64)])
    return out, lengths


def ended(rows: Array, lengths: Array, filler: int = PAD) -> Array:
    """Each row with EOS after its last symbol and `filler` after that: (B, N) → (B, max lengths + 1)."""
    place = np.arange(lengths.max(initial=0) + 1)
    out = np.full((len(rows), len(place)), filler, np.int64)
    out[:, :-1] = rows[:, : len(place) - 1]
    out[place > lengths[:, None]] = filler
    out[place == lengths[:, None]] = EOS
    return out


def encoder_decoder(x: Array, x_lengths: Array, y: Array, y_lengths: Array) -> Batch:
    """The batch for sources x (B, N) and targets y (B, M), symbols only; what stands beyond the lengths is ignored."""
    ids = ended(x, x_lengths)  # (B, S)
    targets = ended(y, y_lengths, IGNORED)  # (B, T)
    target_ids = np.roll(targets, 1, axis=1)
    target_ids[:, 0] = BOS
    target_ids[(target_ids == IGNORED) | (target_ids == EOS)] = PAD
    # A place that counts sees only places before it, all real: the causal mask hides the padding of the target as well.
    return Batch(ids, targets, target_ids, mask=masks.padding(x_lengths + 1))


def language_model(windows: Array) -> Batch:
    """The batch for windows (B, T + 1) of running text: at each place the next symbol is the target."""
    return Batch(windows[:, :-1].astype(np.int64), windows[:, 1:].astype(np.int64))
