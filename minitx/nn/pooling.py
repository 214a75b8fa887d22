"""One vector for a whole row of tokens; padded places are never read."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx import masks
from minitx.ops import where
from minitx.tensor import Array, Tensor

HOW = ("first", "mean", "last")


def pool(hidden: Tensor, mask: Any = None, how: str = "mean") -> Tensor:
    """hidden (B, T, d) → (B, d): the first real token, the mean over real tokens, or the last real token.

    first  BERT, whose first token is there for that      y_b = h_b,i    i the first real place
    mean   sentence embeddings                            y_b = 1/n_b Σ_(i real) h_bi
    last   decoders, where only the last has seen all     y_b = h_b,i    i the last real place

    `mask` says which tokens are real: a mask of minitx.masks (padding on either side), booleans (B, T), or None, all.
    A padded token still has a vector, as the residual and the feed-forward network fill it: pooling that reads it gives
    another result with another batch. Here it is not even multiplied by 0: it may hold NaN.

    Raises ValueError for a row without a real token: it has no first, no last and no mean.
    """
    if how not in HOW:
        raise ValueError(f"how to pool is one of {', '.join(HOW)}, not {how!r}")
    if hidden.ndim != 3:
        raise ValueError(f"pool: hidden is (B, T, d), one vector per token, not {hidden.shape}")
    B, T, _ = hidden.shape
    real = real_tokens(mask, (B, T))
    if real is None:
        if mask is not None and any(isinstance(part, masks.boolean) for part in _parts(mask)):
            raise ValueError(f"pool: {mask!r} is about pairs; say which tokens are real: padding(lengths) or (B, T)")
        real = np.ones((B, T), np.bool_)
    n = real.sum(1)
    if not n.all():
        raise ValueError(f"pool: row {n.argmin()} has no real token, so there is nothing to pool; leave it out")
    if how == "mean":
        total: Tensor = where(real[:, :, None], hidden, 0.0).sum(1)  # (B, d)
        mean: Tensor = total / n[:, None]
        return mean
    place = real.argmax(1) if how == "first" else T - 1 - real[:, ::-1].argmax(1)
    return hidden[np.arange(B), place]


def real_tokens(mask: Any, shape: tuple[int, ...]) -> Array | None:
    """Which tokens are no padding, as booleans of `shape`, (B, T); None where the mask does not say (all of them then).

    Padding says it, on either side, also inside `&`. Packed documents say it by negative numbers (see data/packing.py).
    A plain boolean array of exactly this shape says it itself; one line of keys per row, (B, 1, T) or (B, 1, 1, T),
    as well. Masks for pairs of tokens say nothing about it.
    """
    if mask is None:
        return None
    if isinstance(mask, Tensor):
        mask = mask.numpy()
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == shape:
        return mask
    said = [_real(part, shape) for part in _parts(mask)]
    parts = [real for real in said if real is not None]
    return np.logical_and.reduce(parts) if parts else None


def _parts(mask: Any) -> tuple[masks.Mask, ...]:
    mask = masks.as_mask(mask)
    return mask.parts if isinstance(mask, masks.Both) else (mask,)


def _real(mask: masks.Mask, shape: tuple[int, ...]) -> Array | None:
    """What one mask, without `&`, says. One that does not fit these tokens is an error."""
    if len(shape) != 2:
        raise ValueError(f"{mask!r} is for tokens (B, T), and these are {shape}; give booleans of that shape")
    B, T = shape
    if isinstance(mask, masks.padding):
        return mask.dense(B, 1, T)[:, 0]
    if isinstance(mask, masks.documents):
        mask.intervals(B, T, T)
        return np.broadcast_to(mask.ids >= 0, shape)
    if isinstance(mask, masks.boolean):
        mask.dense(B, T, T)
        *pairs, _ = mask.array.shape[1:]
        if pairs and set(pairs) == {1}:
            return np.broadcast_to(mask.array.reshape(-1, T), shape)
    return None
