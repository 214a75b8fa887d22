"""Masks say which keys a query may see: small objects that never change, combined with `&`.

    causal() & padding([3, 5]) & window(4)

Every combination of `full`, `causal`, `padding`, `window`, `documents` and `spans` is, for one query, an interval of
keys lo <= j < hi. So `intervals` gives two small integer arrays, which is all that a kernel needs, and only `dense`
builds a boolean for every pair of query and key: to read, to test, to plot. A boolean array (True = may see) can stand
wherever a mask can, and take part in `&`; then the whole has no intervals and is dense.

Where a query stands among the keys: query i has the position i + query_offset. None means T_k - T_q: the last query
stands at the last key ("bottom-right"), which fits a whole sequence as well as a few new queries behind keys that are
there already. The offset may also be one integer for all, or one per batch row.
"""
from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Offset = int | Array | None
SHOWN = 12  # a repr prints longer arrays as a summary


class Mask:
    """Which keys each query may see."""

    __slots__ = ("_last",)
    __array_ufunc__ = None  # so that `array & mask` comes to __rand__
    rows: int | None = None  # the batch it was made for; None: any

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, name):
            raise AttributeError(f"a mask does not change: make another instead of setting the {name} of {self!r}")
        super().__setattr__(name, value)

    def bounds(self, position: Array, T_k: int) -> tuple[Any, Any]:
        """(lo, hi) for queries at `position` (B or 1, T_q), in shapes that broadcast to it; they may leave 0..T_k."""
        raise NotImplementedError

    def intervals(self, batch: int, T_q: int, T_k: int, query_offset: Offset = None) -> tuple[Array, Array] | None:
        """(lo, hi), int64 (B or 1, T_q): query i of row b sees the keys lo[b, i] <= j < hi[b, i]; 0 <= lo <= hi <= T_k.

        None where the mask is not one interval per query. The last answer is kept: the layers of a model ask the same.
        """
        if not (query_offset is None or isinstance(query_offset, int)):
            return self._intervals(batch, T_q, T_k, query_offset)
        question = batch, T_q, T_k, query_offset
        last = getattr(self, "_last", None)
        if last is None or last[0] != question:
            last = question, self._intervals(batch, T_q, T_k, query_offset)
            object.__setattr__(self, "_last", last)
        found: tuple[Array, Array] | None = last[1]
        return found

    def _intervals(self, batch: int, T_q: int, T_k: int, query_offset: Offset) -> tuple[Array, Array] | None:
        if self.rows not in (None, batch):
            raise ValueError(f"{self!r} is for a batch of {self.rows}, and this batch is {batch}")
        position = query_positions(batch, T_q, T_k, query_offset)
        lo, hi, _ = np.broadcast_arrays(*self.bounds(position, T_k), position)
        lo = np.clip(lo, 0, T_k)
        return _fixed(lo), _fixed(np.clip(hi, lo, T_k))

    def dense(self, batch: int, T_q: int, T_k: int, query_offset: Offset = None) -> Array:
        """True where the query may see the key: boolean (B or 1, T_q, T_k).

        With a boolean array in it that has an axis for the heads: (B or 1, H, T_q, T_k).
        """
        spans = self.intervals(batch, T_q, T_k, query_offset)
        assert spans is not None
        lo, hi = (bound[:, :, None] for bound in spans)  # (B, T_q, 1)
        j = np.arange(T_k)
        return (lo <= j) & (j < hi)  # (B, T_q, T_k)

    def __and__(self, other: Any) -> Mask:
        """What both sides allow."""
        other = as_mask(other)
        return Both((*(self.parts if isinstance(self, Both) else (self,)),
                     *(other.parts if isinstance(other, Both) else (other,))))

    def __rand__(self, other: Any) -> Mask:
        return as_mask(other) & self


class full(Mask):  # in lower case, as the others, because it is used like a function
    """Every query sees every key."""

    __slots__ = ()

    def bounds(self, position: Array, T_k: int) -> tuple[Any, Any]:
        return 0, T_k

    def __repr__(self) -> str:
        return "full"


class causal(Mask):
    """A query sees itself and what stands before it."""

    __slots__ = ()

    def bounds(self, position: Array, T_k: int) -> tuple[Any, Any]:
        return 0, position + 1

    def __repr__(self) -> str:
        return "causal"


class window(Mask):
    """A query sees `size` keys in all: itself and the size - 1 before it."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise ValueError(f"window({size!r}): the size is an integer that counts the query itself, so at least 1")
        self.size = int(size)

    def bounds(self, position: Array, T_k: int) -> tuple[Any, Any]:
        return position + 1 - self.size, position + 1

    def __repr__(self) -> str:
        return f"window({self.size})"


class padding(Mask):
    """Row b has lengths[b] real keys, and padding to the right (or left) of them, which nobody sees."""

    __slots__ = ("lengths", "rows", "side")

    def __init__(self, lengths: Sequence[int] | Array, side: str = "right") -> None:
        if side not in ("right", "left"):
            raise ValueError(f'padding: side says where the padding stands, "right" or "left", not {side!r}')
        self.lengths = _integers(lengths, "padding: lengths", "(B,)", 1)  # (B,)
        if (self.lengths < 0).any():
            b = self.lengths.argmin()
            raise ValueError(f"padding: a length counts keys, and lengths[{b}] is {self.lengths[b]}")
        self.rows, self.side = len(self.lengths), side

    def bounds(self, position: Array, T_k: int) -> tuple[Any, Any]:
        if (self.lengths > T_k).any():
            raise ValueError(
                f"{self!r}: lengths[{self.lengths.argmax()}] is {self.lengths.max()}, and there are only {T_k} keys; "
                "are these the lengths of another sequence?"
            )
        n = self.lengths[:, None]  # (B, 1)
        return (0, n) if self.side == "right" else (T_k - n, T_k)

    def __repr__(self) -> str:
        return f"padding({_short(self.lengths)}{'' if self.side == 'right' else ', side=' + repr(self.side)})"


class documents(Mask):
    """Several sequences packed into one: a query sees the keys of its own document. For self-attention.

    `ids` (T_k,) or (B, T_k) names the document of each key. A document is one run of neighbours: an id that comes back
    after another is refused (a boolean array can say that: `ids[:, :, None] == ids[:, None, :]`).
    """

    __slots__ = ("end", "ids", "rows", "start")

    def __init__(self, ids: Sequence[int] | Sequence[Sequence[int]] | Array) -> None:
        self.ids = _integers(ids, "documents: ids", "(T_k,) or (B, T_k)", 2)
        self.rows = len(self.ids) if self.ids.ndim == 2 else None
        table = np.atleast_2d(self.ids)  # (B or 1, T_k)
        border = np.ones((len(table), table.shape[1] + 1), np.bool_)  # [j]: a run begins at key j, one ends before it
        border[:, 1:-1] = table[:, 1:] != table[:, :-1]
        at = np.arange(border.shape[1])
        self.start = np.maximum.accumulate(np.where(border, at, 0), axis=1)[:, :-1]  # of the run around each key
        self.end = np.minimum.accumulate(np.where(border, at, at[-1])[:, ::-1], axis=1)[:, ::-1][:, 1:]
        self.start.setflags(write=False)
        self.end.setflags(write=False)
        for b, row in enumerate(table):
            names, runs = np.unique(row[border[b, :-1]], return_counts=True)
            if (runs > 1).any():
                raise ValueError(
                    f"documents: the keys of one document stand together, and document {names[runs.argmax()]} of "
                    f"row {b} is in several pieces; give each piece an id of its own, or use a boolean array"
                )

    def bounds(self, position: Array, T_k: int) -> tuple[Any, Any]:
        if self.start.shape[1] != T_k:
            raise ValueError(f"{self!r}: one id per key, and there are {T_k} keys; it is for self-attention")
        outside = position[(position < 0) | (position >= T_k)]
        if outside.size:
            raise ValueError(
                f"{self!r}: a query belongs to the document of the key at its own position, and position {outside[0]} "
                f"is not among the {T_k} keys; check query_offset"
            )
        rows = np.broadcast_shapes(position.shape[:1], self.start.shape[:1])  # either may have one row for all
        position = np.broadcast_to(position, (*rows, position.shape[1]))
        start, end = (np.broadcast_to(table, (*rows, T_k)) for table in (self.start, self.end))
        return np.take_along_axis(start, position, 1), np.take_along_axis(end, position, 1)

    def __repr__(self) -> str:
        return f"documents({_short(self.ids)})"


class spans(Mask):
    """The intervals themselves: query i of row b sees the keys lo[b, i] <= j < hi[b, i], wherever it stands.

    For who knows them already, as a cache does. lo and hi (B, T_q) must not change. A kernel may read all keys between
    the lowest lo and the highest hi of a row, so what stands there is finite.
    """

    __slots__ = ("hi", "lo", "rows")

    def __init__(self, lo: Array, hi: Array) -> None:
        self.lo, self.hi, self.rows = lo, hi, len(lo)

    def _intervals(self, batch: int, T_q: int, T_k: int, query_offset: Offset) -> tuple[Array, Array]:
        if self.lo.shape != (batch, T_q):
            raise ValueError(f"{self!r} is for as many rows and queries, and here are {batch} and {T_q}")
        if self.lo.size and (self.lo.min() < 0 or self.hi.max() > T_k):
            raise ValueError(f"{self!r}: bounds are 0 to {T_k}, the keys; here {self.lo.min()} to {self.hi.max()}")
        return self.lo, self.hi

    def __repr__(self) -> str:
        return f"spans{self.lo.shape}"


class boolean(Mask):
    """A boolean array as a mask (arrays are turned into this by themselves).

    (T_q, T_k), (B, T_q, T_k) or (B, H, T_q, T_k); every axis but the last may be 1 and then holds for all. Of three
    axes the first is always the batch, never the heads.
    """

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array: Array = np.array(_plain(array))
        if self.array.dtype != np.bool_:
            raise TypeError(
                f"a mask is boolean, True = may see, and this one is {self.array.dtype}: write mask != 0 or mask == 0, "
                "whichever is meant; numbers that are to be added to the scores go in bias="
            )
        if self.array.ndim not in (2, 3, 4):
            raise ValueError(f"a boolean mask is (T_q, T_k), (B, T_q, T_k) or (B, H, T_q, T_k), not {self.array.shape}")
        self.array.setflags(write=False)

    def _intervals(self, batch: int, T_q: int, T_k: int, query_offset: Offset) -> None:
        return None

    def dense(self, batch: int, T_q: int, T_k: int, query_offset: Offset = None) -> Array:
        array = self.array if self.array.ndim > 2 else self.array[None]
        if array.shape[-1] != T_k or array.shape[-2] not in (1, T_q) or len(array) not in (1, batch):
            per_row = self.array.shape == (batch, T_k)
            hint = "; for one line of keys per batch row write mask[:, None, :]" if per_row else ""
            raise ValueError(
                f"a boolean mask is (T_q, T_k), (B, T_q, T_k) or (B, H, T_q, T_k), here with B {batch}, T_q {T_q}, "
                f"T_k {T_k}, not {self.array.shape}{hint}"
            )
        return np.broadcast_to(array, (*array.shape[:-2], T_q, T_k))

    def __repr__(self) -> str:
        return f"boolean{self.array.shape}"


class Both(Mask):
    """What all of several masks allow: `a & b & c`."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Mask, ...]) -> None:
        self.parts = parts

    def _intervals(self, batch: int, T_q: int, T_k: int, query_offset: Offset) -> tuple[Array, Array] | None:
        spans = []
        for part in self.parts:
            span = part.intervals(batch, T_q, T_k, query_offset)
            if span is None:
                return None
            spans.append(span)
        lo: Array = reduce(np.maximum, (span[0] for span in spans))
        hi: Array = reduce(np.minimum, (span[1] for span in spans))
        return _fixed(lo), _fixed(np.maximum(lo, hi))

    def dense(self, batch: int, T_q: int, T_k: int, query_offset: Offset = None) -> Array:
        each = [part.dense(batch, T_q, T_k, query_offset) for part in self.parts]
        heads = {a.shape[1] for a in each if a.ndim == 4}
        if len(heads - {1}) > 1:
            raise ValueError(f"the masks have {' and '.join(map(str, sorted(heads - {1})))} heads: {self!r}")
        return reduce(np.logical_and, (a[:, None] if heads and a.ndim == 3 else a for a in each))

    def __repr__(self) -> str:
        return " & ".join(map(repr, self.parts))


# ---------------------------------------------------------------------- what attention asks


def as_mask(mask: Any) -> Mask:
    """A mask as it is, a boolean array as a mask; anything else is an error that names the fix."""
    if isinstance(mask, Mask):
        return mask
    if isinstance(mask, type) and issubclass(mask, Mask):
        raise TypeError(f"the mask is the class {mask.__name__}: write {mask.__name__}()")
    if mask is None or isinstance(mask, str):
        raise TypeError(f"{mask!r} is no mask; masks are made by minitx.masks: causal(), padding(lengths), ...")
    if isinstance(mask, list | tuple) and any(isinstance(part, Mask | type) for part in mask):
        raise TypeError("several masks are combined with &: causal() & padding(lengths)")
    return boolean(mask)


def allowed(mask: Any, batch: int, heads: int, T_q: int, T_k: int, query_offset: Offset = None) -> Array | None:
    """What the caller gave as `mask=`, as booleans (B or 1, H or 1, T_q, T_k); None, everything allowed, stays None."""
    if mask is None:
        if query_offset is not None:
            query_positions(batch, T_q, T_k, query_offset)
        return None
    array = as_mask(mask).dense(batch, T_q, T_k, query_offset)
    if array.ndim == 3:
        return array[:, None]
    if array.shape[1] not in (1, heads):
        raise ValueError(f"the mask has {array.shape[1]} heads, and the queries have {heads}")
    return array


def visible_keys(allowed: Array) -> Array:
    """Which keys some query of the batch row may see: (B or 1, H or 1, T_q, T_k) → (B or 1, T_k)."""
    return np.asarray(allowed.any((1, 2)))


def query_positions(batch: int, T_q: int, T_k: int, query_offset: Offset = None) -> Array:
    """Where the queries stand among the keys: int64 (B or 1, T_q)."""
    offset = np.asarray(T_k - T_q if query_offset is None else _plain(query_offset))
    if offset.dtype.kind not in "iu" or offset.shape not in ((), (batch,)):
        raise ValueError(
            "query_offset, the position of the first query among the keys, is None, an integer or one integer per "
            f"batch row ({batch} here), not {query_offset!r}"
        )
    if query_offset is not None and offset.size and max(-int(offset.min()), int(offset.max())) > T_q + T_k:
        raise ValueError(
            f"query_offset is the position of the first query among the keys, and {query_offset!r} is far outside of "
            f"{T_k} keys"
        )
    return offset.reshape(-1, 1).astype(np.int64) + np.arange(T_q)


def _fixed(array: Array) -> Array:
    array.setflags(write=False)
    return array


def _plain(values: Any) -> Any:
    """The array of a Tensor; anything else as it is. (Tensors are a floor higher, and not known here.)"""
    return values.numpy() if hasattr(values, "numpy") else values


def _integers(values: Any, what: str, shape: str, max_axes: int) -> Array:
    array = np.array(_plain(values))  # a copy: a mask does not change
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or not 1 <= array.ndim <= max_axes:
        raise TypeError(f"{what} are integers of shape {shape}, not {array.dtype} of shape {array.shape}")
    array = array.astype(np.int64)
    array.setflags(write=False)
    return array


def _short(a: Array) -> str:
    return str(a.tolist()) if a.size <= SHOWN else f"{a.shape} numbers from {a.min()} to {a.max()}"
