"""Where the keys (or values) of one layer stand: an array (B, H_kv, slots, d), in the model's numbers or as int8.

Token after token of a row stands in slot after slot. Slots that nobody has written hold whatever the memory held, and
nobody reads them: the masks of the cache see to that.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.tensor import Array

LINE = 64  # bytes


class Slots:
    """Numbers as they come."""

    def __init__(self, batch: int, heads: int, width: int, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.x = np.empty((batch, heads, 0, width), dtype)

    @property
    def arrays(self) -> list[str]:
        """The names of what is stored: all have the axes batch, head, slot."""
        return ["x"]

    def room(self, slots: int) -> None:
        """Make it so many slots, with what was in the first ones."""
        for name in self.arrays:
            old: Array = getattr(self, name)
            new = aligned((*old.shape[:2], slots, *old.shape[3:]), old.dtype)
            n = min(slots, old.shape[2])
            new[:, :, :n] = old[:, :, :n]
            setattr(self, name, new)

    def write(self, x: Array, at: Array, counts: Array | None) -> None:
        """x (B, H_kv, T, d): of row b the first counts[b] tokens (None: all) go into the slots from at[b] on."""
        put(self.x, x, at, counts)

    def read(self, slots: int) -> Array:
        """The first slots, (B, H_kv, slots, d), in the model's numbers; not a copy, if these are what is stored."""
        return self.x[:, :, :slots]

    def shift(self, by: Array) -> None:
        """Row b loses its first by[b] slots, and what stands behind them moves up."""
        for name in self.arrays:
            a: Array = getattr(self, name)
            for row, n in zip(a, by):
                if n:
                    row[:, : a.shape[2] - n] = row[:, n:].copy()

    def take(self, rows: Array) -> None:
        """Row i becomes what row rows[i] was."""
        for name in self.arrays:
            setattr(self, name, getattr(self, name)[rows])

    def copy(self, row: int, slots: int) -> list[Array]:
        """What stands in the first slots of a row."""
        return [getattr(self, name)[row, :, :slots].copy() for name in self.arrays]

    def paste(self, row: int, copied: list[Array], slots: int) -> None:
        """The first slots of a row become those of what was copied."""
        for name, a in zip(self.arrays, copied):
            getattr(self, name)[row, :, :slots] = a[:, :slots]

    @property
    def bytes_per_token(self) -> int:
        _, heads, _, width = self.x.shape
        return int(heads * width * self.x.itemsize)

    @property
    def allocated(self) -> int:
        return sum(getattr(self, name).nbytes for name in self.arrays)


class Int8Slots(Slots):
    """
    x̂ = s n,   n = round(x / s) in -127 ... 127,   s = max |x| / 127

    One scale s for each head and token: the vector of a token is measured by its own largest number, not by that of
    others, so no token changes what was stored of another. What is read differs from what was written by at most
    s / 2, 1/254 of the largest number of the vector (and of 4 bytes a number, 1 + 4/d are left).
    """

    def __init__(self, batch: int, heads: int, width: int, dtype: Any) -> None:
        super().__init__(batch, heads, width, np.int8)
        self.dtype = np.dtype(dtype)
        self.scale = np.empty((batch, heads, 0), np.float32)

    @property
    def arrays(self) -> list[str]:
        return ["x", "scale"]

    def room(self, slots: int) -> None:
        before = self.x.shape[2]
        super().room(slots)
        self.scale[:, :, before:] = 0  # `read` multiplies all of them: no arithmetic with what the memory held

    def write(self, x: Array, at: Array, counts: Array | None) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            scale = (np.abs(x).max(-1) / np.float32(127)).astype(np.float32)  # (B, H_kv, T)
            scale[~np.isfinite(scale)] = np.nan  # a vector with NaN or infinity is read as NaN
            n = np.rint(x / np.where(scale == 0, 1, scale)[..., None])
            n = np.clip(n, -127, 127).astype(np.int8)
        put(self.x, n, at, counts)
        put(self.scale, scale, at, counts)

    def read(self, slots: int) -> Array:
        numbers: Array = self.x[:, :, :slots] * self.scale[:, :, :slots, None].astype(self.dtype)
        return numbers


def aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array, not filled, that begins where a cache line does: wide loads then touch one line and not two."""
    n = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(n + LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % LINE
    a: Array = memory[start : start + n].view(dtype).reshape(shape)
    return a


def put(a: Array, x: Array, at: Array, counts: Array | None) -> None:
    """a[b, :, at[b] : at[b] + counts[b]] = x[b, :, : counts[b]] for every row b."""
    T = x.shape[2]
    if counts is None and T == 1:
        a[np.arange(len(at)), :, at] = x[:, :, 0]
    else:
        for b, start in enumerate(at):
            n = T if counts is None else counts[b]
            a[b, :, start : start + n] = x[b, :, :n]
