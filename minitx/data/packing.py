"""Packing: several documents in one row instead of padding, none of which notices the others.

    ids        a1 a2 a3 b1 b2  .       two documents, one place left over
    documents   0  0  0  1  1 -1       who belongs together: attention stays inside (masks.documents)
    positions   0  1  2  0  1  0       each document begins at 0
    targets    a2 a3  - b2  -  -       the last token of a document predicts nothing: what follows is not its own
"""
from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx import masks
from minitx.data.batch import IGNORED, Batch
from minitx.data.tokenizer import PAD
from minitx.tensor import Array


@dataclass(frozen=True)
class Packed(Batch):
    """A Batch of packed rows, with `positions`. `mask` is masks.documents, padding is -1 in it.

    All three are needed: without the mask a document reads the one before it, whatever the positions say; without the
    positions it is told that it begins in the middle; and without the ignored targets it learns to foretell the next.
    """

    @property
    def documents(self) -> Array:
        """The number of each token's document, -1 for padding, (B, T)."""
        ids: Array = self.mask.ids
        return ids


def pack(documents: Sequence[Any], length: int, together: Sequence[Sequence[int]] | None = None) -> Packed:
    """Documents (arrays of ids) → as few rows of `length` places as a good heuristic finds.

    `together` says which documents share a row, and in which order (by default `best_fit` of their lengths). Put BOS
    and EOS into the documents beforehand where they are wanted; `cut` those that are too long.
    """
    given = [np.asarray(d) for d in documents]
    for i, d in enumerate(given):
        if d.ndim != 1 or (d.dtype.kind not in "iu" and d.size):
            raise ValueError(f"a document is integers (n,), and document {i} is {d.dtype} {d.shape}")
    rows = best_fit([len(d) for d in given], length) if together is None else together
    ids = np.full((len(rows), length), PAD, np.int64)
    number = np.full((len(rows), length), -1, np.int64)
    positions = np.zeros((len(rows), length), np.int64)
    targets = np.full((len(rows), length), IGNORED, np.int64)
    for r, row in enumerate(rows):
        end = 0
        for k, i in enumerate(row):
            start, end = end, end + len(given[i])
            if end > length:
                raise ValueError(f"row {r} of length {length} has no room for document {i}, of {len(given[i])} ids")
            ids[r, start:end] = given[i]
            number[r, start:end] = k
            positions[r, start:end] = np.arange(end - start)
            targets[r, start : end - 1] = given[i][1:]
        positions[r, end:] = np.arange(length - end)
    return Packed(ids, targets, mask=masks.documents(number), positions=positions)


def best_fit(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Which documents share a row of `size` places: the longest first, each where it leaves the least room.

    Documents without a token are left out. The rows depend on the lengths alone, ties by number. (The best packing is a
    hard problem; this rule, best fit decreasing, never needs many more than 11/9 of its rows, and mostly hardly more.)
    source: Johnson et al. 1974, "Worst-case performance bounds for simple one-dimensional packing algorithms".
    """
    longest = max(lengths, default=0)
    if longest > size:
        i = list(lengths).index(longest)
        raise ValueError(f"document {i} has {longest} ids, and a row {size} places; cut(document, {size}) makes pieces")
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (places left, row), sorted
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        n = int(lengths[i])
        if n == 0:
            continue
        at = bisect_left(room, (n, -1))
        if at == len(room):
            rows.append([])
            left, row = size, len(rows) - 1
        else:
            left, row = room.pop(at)
        rows[row].append(i)
        if left > n:
            insort(room, (left - n, row))
    return rows


def cut(document: Any, length: int) -> list[Array]:
    """A document in pieces of at most `length` ids, each beginning with the last id of the one before.

    So every id but the first is predicted exactly once: a piece of n ids has n - 1 targets.
    """
    if length < 2:
        raise ValueError(f"a piece has at least 2 ids, one to read and one to predict, not {length}")
    ids = np.asarray(document)
    return [ids[i : i + length] for i in range(0, max(len(ids) - 1, 1), length - 1)]
