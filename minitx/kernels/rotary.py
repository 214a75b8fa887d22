"""rotary, fast: contract and mathematics are in ops/rotary.py. Heads are read where a projection has left them.

Its results have the definition's bits. Of scaled frequencies it knows nothing: it declines them.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float64, int64, njit, types, void

from minitx.kernels.compile import HELPER, Worker, array, for_dtypes, kernel, strided
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, bits, cast, elements, real, size_of

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 12  # of a task, in whole tokens
FURTHEST = 1 << 15  # positions below this have their place in a table that is kept


def rotary(
    x: Array, positions: Any, *, base: float = 10000.0, rotary_dim: int | None = None, interleaved: bool = False,
    scaling: Any = None,
) -> tuple[Array, Callable[..., Any]]:  # fmt: skip
    """y = x, its pairs turned by θ = p ω_i. Saved: the cosines and sines."""
    positions = np.asarray(positions)
    n = x.shape[-1] if x.ndim == 4 and rotary_dim is None else rotary_dim
    if not (
        x.dtype in NONE
        and x.ndim == 4
        and x.size
        and scaling is None
        and base > 1
        and type(n) is int
        and 2 <= n <= x.shape[3]
        and n % 2 == 0
        and positions.dtype.kind in "iu"
        and positions.shape in (x.shape[2:3], (x.shape[0], x.shape[2]))
    ):
        return NotImplemented  # type: ignore[no-any-return]
    B, H, T, d = x.shape
    dtype = x.dtype
    of_position, cos, sin = tables(positions.astype(np.int64), n, float(base), dtype)
    of_position = np.broadcast_to(of_position, (B, T)).ravel()
    inside = x.strides[1] < x.strides[2]  # (B, T, H, d) in memory, as a projection leaves it: the result too
    threads = threads_for(0.4 * x.size)
    worker, turn_kernel = turn_tokens[dtype], turn[dtype]

    def apply(x: Array, sign: float) -> Array:
        if x.strides[3] != dtype.itemsize:
            x = np.ascontiguousarray(x)
        y = np.empty((B, T, H, d), dtype).swapaxes(1, 2) if inside else np.empty((B, H, T, d), dtype)
        memory = memory_for(dtype, threads)
        turn_kernel(worker, x, of_position, cos, sin, n, interleaved, sign, y, memory, threads)
        return y

    def backward(dy: Array) -> Array:
        return apply(dy, -1.0)

    return apply(x, 1.0), backward


def tables(positions: Array, n: int, base: float, dtype: Any) -> tuple[Array, Array, Array]:
    """Which row of the tables each position has, and the tables: cos θ and sin θ, a row for each position."""
    if positions.min() >= 0 and (last := int(positions.max())) < FURTHEST:
        return positions, *_first_positions(max(256, 1 << last.bit_length()), n, base, dtype)
    return np.arange(positions.size).reshape(positions.shape), *_cos_sin(positions.ravel(), n, base, dtype)


@functools.lru_cache(maxsize=4)
def _first_positions(count: int, n: int, base: float, dtype: Any) -> tuple[Array, Array]:
    return _cos_sin(np.arange(count), n, base, dtype)


def _cos_sin(positions: Array, n: int, base: float, dtype: Any) -> tuple[Array, Array]:
    """In float64, cast at the end: the same bits as the definition's."""
    theta = positions[:, None] * base ** (-np.arange(0, n, 2) / n)  # (positions, n/2)
    return np.cos(theta).astype(dtype), np.sin(theta).astype(dtype)


@njit(fastmath=False, forceinline=True, **HELPER)
def turned(a, b, cos, sin):
    """One pair. Every product is rounded, as in NumPy: so both give the same bits."""
    return a * cos - b * sin, b * cos + a * sin


@Worker
def turn_tokens(memory, args, task):
    like, size = memory[0], size_of(memory[0])
    T, H, d, n = args[0], args[1], args[2], args[3]
    half, each, sign = n // 2, max(1, ELEMENTS // (H * d)), cast(like, real(args[5]))
    for token in range(task * each, min(args[6], (task + 1) * each)):
        row = elements(args[0], args[7], args[6])[token] * half * size
        cos, sin = elements(like, args[8] + row, half), elements(like, args[9] + row, half)
        b, t = token // T, token % T
        for h in range(H):
            x = elements(like, args[10] + b * args[11] + h * args[12] + t * args[13], d)
            y = elements(like, args[14] + b * args[15] + h * args[16] + t * args[17], d)
            if args[4]:
                for i in range(half):
                    y[2 * i], y[2 * i + 1] = turned(x[2 * i], x[2 * i + 1], cos[i], sign * sin[i])
            else:
                for i in range(half):
                    y[i], y[half + i] = turned(x[i], x[half + i], cos[i], sign * sin[i])
            for i in range(n, d):
                y[i] = x[i]


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, strided(T, 4), array(int64, 1), array(T, 2), array(T, 2), int64, int64, float64,
            types.Array(T, 4, "A"), array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def turn(worker, x, of_position, cos, sin, n, interleaved, sign, y, memory, threads):
    B, H, T, d = x.shape
    args = np.array([
        T, H, d, n, interleaved, bits(sign), B * T, address(of_position), address(cos), address(sin),
        address(x), x.strides[0], x.strides[1], x.strides[2], address(y), y.strides[0], y.strides[1], y.strides[2],
    ])  # fmt: skip
    share(worker, memory, args, -(-B * T // max(1, ELEMENTS // (H * d))), threads)
