"""Rows of different lengths, padded on either side → rows that begin at the left, and how long each is."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx import masks
from minitx.tensor import Array


def to_the_left(x: Array, lengths: Any = None, mask: Any = None, side: str = "right") -> tuple[Array, Array]:
    """x (B, T, ...) with every row moved to the left edge and zeros behind it, as wide as the longest; lengths (B,).

    What is real is said by `lengths` and `side` (where the padding stands), or by `mask`: `padding(...)`, or booleans
    (B, T). None: everything.
    """
    B, T = x.shape[:2]
    if side not in ("right", "left"):
        raise ValueError(f'side says where the padding stands, "right" or "left", not {side!r}')
    if lengths is not None and mask is not None:
        raise ValueError("what is real is said once: by lengths (and side), or by a mask")
    if mask is not None:
        lengths, side = _of_mask(mask, B, T)
    lengths = np.full(B, T) if lengths is None else np.asarray(lengths)
    if lengths.shape != (B,) or lengths.dtype.kind not in "iu":
        raise ValueError(f"lengths are {B} integers, one a row, not {lengths.dtype} {lengths.shape}")
    lengths = lengths.astype(np.int64)
    if B and (lengths.min() < 0 or lengths.max() > T):
        b = int(np.argmax((lengths < 0) | (lengths > T)))
        raise ValueError(f"row {b} has {T} places, so its length is between 0 and {T}, not {lengths[b]}")
    longest = int(lengths.max(initial=0))
    if longest == T and (lengths == T).all():
        return x, lengths
    out = np.zeros((B, longest, *x.shape[2:]), x.dtype)
    real = np.arange(longest) < lengths[:, None]  # (B, longest)
    at = np.arange(longest) + (0 if side == "right" else T - lengths[:, None])  # (B, longest)
    row, place = np.nonzero(real)
    out[row, place] = x[row, np.broadcast_to(at, real.shape)[row, place]]
    return out, lengths


def _of_mask(mask: Any, B: int, T: int) -> tuple[Array, str]:
    """Lengths, and the side of the padding."""
    if isinstance(mask, masks.padding):
        mask.intervals(B, 1, T)  # its own messages, if it does not fit
        return mask.lengths, mask.side
    real = np.asarray(mask)
    if real.dtype != np.bool_ or real.shape != (B, T):
        raise ValueError(f"the mask says which tokens are real: padding(lengths), or booleans ({B}, {T}), not {mask!r}")
    lengths = real.sum(1)
    for side in ("right", "left"):
        if (real == masks.padding(lengths, side).dense(B, 1, T)[:, 0]).all():
            return lengths, side
    raise ValueError("padding stands on one side of the tokens, the same in every row; this mask has it elsewhere")
