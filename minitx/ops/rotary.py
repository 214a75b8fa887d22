"""Rotary positions: queries and keys are turned by their positions, so that their product knows the distance."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.op import Array, Forward, op
from minitx.ops.rotary_scaling import Scaling, rotary_frequencies


@op("x")
def rotary(
    x: Array,
    positions: Any,
    *,
    base: float = 10000.0,
    rotary_dim: int | None = None,
    interleaved: bool = False,
    scaling: Scaling | None = None,
) -> Forward:
    """
    for: telling attention where tokens stand: each pair of features turns by an angle in proportion to the position.

    equation:
        [y_a]   [cos θ  -sin θ] [x_a]
        [y_b] = [sin θ   cos θ] [x_b],   θ = p ω_i,   ω_i = base^(-2i / n)      for the pairs i = 0 ... n/2 - 1

    where:
        x            (B, H, T, d)      queries or keys, before they meet
        positions    (T,) or (B, T)    p, integers; they may start anywhere and repeat
        rotary_dim   n, even: the first n of the d features turn, the others pass; None: all
        interleaved  False: pair i is (x_i, x_{i + n/2}); True: (x_{2i}, x_{2i + 1})
        scaling      how texts longer than the trained ones are met: see ops/rotary_scaling.py
        y            (B, H, T, d)

    by hand:
        >>> np.round(rotary(np.array([[[[1.0, 0.0], [1.0, 0.0]]]]), [0, 1]).numpy()[0, 0], 2)
        array([[1.  , 0.  ],
               [0.54, 0.84]])

    backward:
        dx = dy, turned by -θ

    why:
        y = R x, so dx = Rᵀ dy, and the transpose of a rotation is the rotation back. The point of it all is in the same
        line: (R_p q)·(R_s k) = q·(R_pᵀ R_s) k = q·R_{s-p} k. The score depends on the distance s - p alone, while each
        vector was turned by its own position only, so keys can be kept in a cache, turned once.

    saved: cos θ and sin θ, one each a position and pair; nothing of x.

    cost: 4 products and 2 sums a pair, forward and back; the table T n/2 cosines and sines in float64.

    differs from: the paper pairs neighbours (interleaved=True); most published weights use halves. The two are one
        function up to the order of the rows of W_Q and W_K, and wrong weights for each other. Angles are computed in
        float64 from integer positions and only cosines and sines are cast: in float32 the angle at position 100,000 is
        off by up to 0.005. yarn also lengthens the vectors (see there). Turned are queries and keys, never values.

    goes wrong: with only the queries turned, scores depend on where a text stands; with halves taken for neighbours
        published weights give nonsense; a table in the model's precision is noise far out. Past the trained length
        every position has its angles, but many of them the model has never seen: quality falls apart soon, unless a
        scaling is used (and usually trained a little); and being able to attend far is not yet using it.

    exercise: rotary

    source: Su et al. 2021, "RoFormer: enhanced Transformer with rotary position embedding", 3.2.
    """
    positions = _check(x, positions, rotary_dim)
    n = x.shape[3] if rotary_dim is None else rotary_dim
    cos, sin = (t[..., None, :, :] for t in rotary_table(positions, n, base, scaling, x.dtype))  # ([B,] 1, T, n/2)
    a, b = (slice(0, n, 2), slice(1, n, 2)) if interleaved else (slice(0, n // 2), slice(n // 2, n))

    def turn(x: Array, sin: Array) -> Array:
        y = np.empty(x.shape, x.dtype)
        y[..., a] = x[..., a] * cos - x[..., b] * sin
        y[..., b] = x[..., b] * cos + x[..., a] * sin
        y[..., n:] = x[..., n:]
        return y

    def backward(dy: Array) -> Array:
        # y = turn(x, sin θ), and sin(-θ) = -sin θ
        return turn(dy, -sin)

    return turn(x, sin), backward


def rotary_table(
    positions: Any, rotary_dim: int, base: float = 10000.0, scaling: Scaling | None = None, dtype: Any = np.float64
) -> tuple[Array, Array]:
    """m cos θ and m sin θ, (T, rotary_dim / 2) or (B, T, rotary_dim / 2): computed in float64, cast at the end.

    With dynamic scaling the length of each row is its last position + 1.
    """
    positions = np.asarray(positions).astype(np.int64)  # (in a narrow type, last + 1 would wrap around)
    length = positions.max(-1, initial=0) + 1
    rates, m = rotary_frequencies(rotary_dim, base, scaling, length)
    theta = positions[..., None] * rates[..., None, :]  # (..., T, rotary_dim / 2)
    return (m * np.cos(theta)).astype(dtype), (m * np.sin(theta)).astype(dtype)


def _check(x: Array, positions: Any, rotary_dim: int | None) -> Array:
    """Arguments that fit, or an error; returns the positions as an array."""
    if x.ndim != 4:
        raise ValueError(f"rotary: x is split into heads, (B, H, T, d), not {x.shape}")
    if rotary_dim is not None and rotary_dim > x.shape[3]:
        raise ValueError(f"rotary: rotary_dim {rotary_dim} is more than the {x.shape[3]} features of x {x.shape}")
    p: Array = np.asarray(positions)
    if p.size == 0:
        p = p.astype(np.int64)
    if p.dtype.kind not in "iu":
        raise TypeError(
            f"rotary: positions are integers, not {p.dtype}: a float cannot tell neighbours apart far out"
        )
    B, _, T, _ = x.shape
    if p.shape not in ((T,), (B, T)):
        raise ValueError(
            f"rotary: one position per token, ({T},) or one row per batch row ({B}, {T}) for x {x.shape}, "
            f"not {p.shape}"
        )
    return p
