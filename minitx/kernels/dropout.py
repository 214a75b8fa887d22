"""dropout, fast: contract and mathematics are in ops/dropout.py. Saved: the key; backward makes the mask again."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float64, int64, uint64, void

from minitx.kernels.compile import Worker, array, for_dtypes, inline, kernel
from minitx.kernels.hash import MULTIPLY_1, MULTIPLY_2, STEP, draw_key, threshold
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, bits, cast, elements, real, size_of

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 12  # of a task


def dropout(
    x: Array, p: float, rng: np.random.Generator | None, training: bool = True
) -> tuple[Array, Callable[..., Any]]:
    """y_i = m_i x_i, with m_i = 0 or 1 / (1 - p) by the hash of (key, i)."""
    dtype = x.dtype
    if not (training and 0 < p < 1 and hasattr(rng, "integers") and dtype in NONE and x.ndim):
        return NotImplemented  # type: ignore[no-any-return]
    drop, worker = drop_kernel[dtype], drop_part[dtype]
    assert rng is not None
    key, limit, factor = np.uint64(draw_key(rng)), threshold(p), 1 / (1 - p)
    threads = threads_for(0.6 * x.size)

    def dropped(x: Array) -> Array:
        y = np.empty(x.shape, dtype)
        drop(worker, np.ascontiguousarray(x).reshape(-1), key, limit, factor, y.reshape(-1),
             memory_for(dtype, threads), threads)  # fmt: skip
        return y

    return dropped(x), dropped


@inline
def kept(key, i, limit):
    """Is element i kept? The hash of hash.py, bit for bit."""
    z = np.uint64(key) + np.uint64(STEP) * (np.uint64(i) + np.uint64(1))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MULTIPLY_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MULTIPLY_2)
    return z ^ (z >> np.uint64(31)) >= np.uint64(limit)


@Worker
def drop_part(memory, args, task):
    like, start = memory[0], task * ELEMENTS
    n, offset = min(ELEMENTS, args[0] - start), start * size_of(like)
    x, y = elements(like, args[1] + offset, n), elements(like, args[2] + offset, n)
    factor, zero = cast(like, real(args[3])), cast(like, 0)
    for i in range(n):
        y[i] = x[i] * (factor if kept(args[4], start + i, args[5]) else zero)


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, array(T, 1), uint64, uint64, float64, array(T, 1, writes=True), array(T, 2, writes=True), int64
        )
    )
)
def drop_kernel(worker, x, key, limit, factor, y, memory, threads):
    args = np.array([len(x), address(x), address(y), bits(factor), np.int64(key), np.int64(limit)])
    share(worker, memory, args, -(-len(x) // ELEMENTS), threads)
