"""Generation without a cache: the model runs on everything said so far, at every step. A cache has to equal this.

`Uncached` has the methods of `Session` (session.py), so that each can stand in for the other. `Sliding` is a session
that goes on beyond the model's positions.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.data.batch import mask_rows
from minitx.data.tokenizer import PAD
from minitx.tensor import Array


def why_not_cached(model: Any) -> str | None:
    """What a model has that keys of earlier tokens cannot be kept for; None: nothing."""
    c = model.config
    if c.attention_kernel == "linear":
        return "linear attention sums its keys up and keeps none"
    s = c.rope_scaling
    if s is not None and s["type"] == "dynamic" and s.get("length") is None:
        return "dynamic scaling turns all keys anew when the text becomes longer"
    return None


class Uncached:
    """The ids of every row so far, and the model on all of them: T tokens cost 1 + 2 + ... + T.

    Of an encoder-decoder with the `memory` (B, S, d_model) that its encoder made of the sources, and `memory_mask`.
    """

    nbytes = allocated = 0  # nothing is kept but the ids

    def __init__(self, model: Any, *, memory: Any = None, memory_mask: Any = None) -> None:
        self.model, self.memory, self.memory_mask = model, memory, memory_mask
        self.ids = np.full((0, 0), PAD, np.int64)  # row i: ids[i, : lengths[i]], padded on the right
        self.lengths = np.zeros(0, np.int64)

    def prefill(self, ids: Any, lengths: Any = None, side: str = "right") -> Array:
        """ids (B, T), of which lengths (B,) are real → logits (B, V) after each row's last real one."""
        ids = np.asarray(ids)
        B, T = ids.shape
        self.lengths = np.full(B, T) if lengths is None else np.array(lengths)
        first = T - self.lengths if side == "left" else np.zeros(B, np.int64)
        self.ids = np.take_along_axis(ids, np.minimum(first[:, None] + np.arange(T), T - 1), axis=1)
        return self.logits()

    def step(self, ids: Any) -> Array:
        """One more id a row (B,) → logits (B, V) after it."""
        self.append(ids)
        return self.logits()

    def append(self, ids: Any) -> None:
        if self.lengths.max(initial=0) == self.ids.shape[1]:
            more = np.full((len(self.ids), self.ids.shape[1] + 16), PAD, np.int64)
            self.ids = np.concatenate([self.ids, more], axis=1)  # twice as many places, and a few
        self.ids[np.arange(len(self.ids)), self.lengths] = ids
        self.lengths = self.lengths + 1

    def logits(self, rows: Any = None) -> Array:
        """(rows, V): what the model says after the last id of these rows (all). It sees the latest max_length ids.

        A causal model never looks at what stands to the right, so padding there needs no mask; but the next symbol is
        read off at the row's own last place, not at the last column.
        """
        rows = np.arange(len(self.ids)) if rows is None else np.asarray(rows)
        ends = self.lengths[rows]
        starts = np.maximum(ends - self.model.config.max_length, 0)
        width = int((ends - starts).max(initial=0))
        places = np.minimum(starts[:, None] + np.arange(width), self.ids.shape[1] - 1)
        seen = np.take_along_axis(self.ids[rows], places, axis=1)  # (rows, width)
        last = ends - starts - 1
        # Padding stands where the last token does: positions that stretch with the text go by the row's own length.
        positions = np.minimum(np.arange(width), last[:, None])  # (rows, width)
        memory = None if self.memory is None else self.memory[rows]
        mask = mask_rows(self.memory_mask, rows)
        out = self.model.decode(seen, memory, memory_mask=mask, positions=positions, last=last)
        return out.logits.numpy()[:, 0]  # type: ignore[no-any-return]

    def reorder(self, rows: Any) -> None:
        """Row i becomes what row rows[i] was; rows that are not named are gone, one that is named twice forks."""
        rows = np.asarray(rows)
        self.ids, self.lengths = self.ids[rows], self.lengths[rows]
        if self.memory is not None:
            self.memory, self.memory_mask = self.memory[rows], mask_rows(self.memory_mask, rows)

    keep = reorder

    def truncate(self, lengths: Any) -> None:
        """Take back what stands beyond these lengths (B,)."""
        self.lengths = np.minimum(self.lengths, lengths)


class Sliding:
    """A decoder's session that goes on beyond max_length: the model then sees the latest max_length ids.

    Every id in that window has another position after each step, so nothing of a cache can be used: a row that is full
    leaves it, and from then on is computed anew at every step. Rows that are not full stay in the cache.
    """

    def __init__(self, session: Any, model: Any) -> None:
        self.session, self.limit = session, model.config.max_length
        self.said = Uncached(model)
        self.cached = np.zeros(0, np.int64)  # row cached[i] is row i of the session

    @property
    def lengths(self) -> Array:
        return self.said.lengths

    @property
    def nbytes(self) -> int:
        return int(self.session.nbytes)

    @property
    def allocated(self) -> int:
        return int(self.session.allocated)

    @property
    def slid(self) -> int:
        """How many rows are beyond the positions."""
        return len(self.lengths) - len(self.cached)

    def prefill(self, ids: Array, lengths: Array, **options: Any) -> Array:
        self.said.ids, self.said.lengths = np.array(ids), np.array(lengths)
        self.cached = np.flatnonzero(self.lengths <= self.limit)
        of = self.cached
        first = None
        if len(of):
            width = int(lengths[of].max())
            first = self.session.prefill(ids[of, :width], lengths[of], **options)
        return self._joined(first)

    def step(self, ids: Array) -> Array:
        self.said.append(ids)
        fits = self.lengths[self.cached] <= self.limit
        if not fits.all():
            self.session.keep(np.flatnonzero(fits))
            self.cached = self.cached[fits]
        return self._joined(self.session.step(ids[self.cached]) if len(self.cached) else None)

    def _joined(self, of_cached: Array | None) -> Array:
        slid = np.setdiff1d(np.arange(len(self.lengths)), self.cached)
        if not len(slid) and of_cached is not None:
            return of_cached
        anew = self.said.logits(slid)
        out = np.empty((len(self.lengths), anew.shape[-1]), anew.dtype)
        out[slid] = anew
        if of_cached is not None:
            out[self.cached] = of_cached
        return out

    def reorder(self, rows: Array) -> None:
        place = np.full(len(self.lengths), -1)
        place[self.cached] = np.arange(len(self.cached))
        self.said.reorder(rows)
        old = place[rows]
        if len(self.cached):
            self.session.reorder(old[old >= 0])
        self.cached = np.flatnonzero(old >= 0)

    keep = reorder
