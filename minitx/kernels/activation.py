"""The bent lines, fast: contract and mathematics are in ops/activation.py. Saved: the slope; dx = dy * slope."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, void

from minitx.kernels import slopes
from minitx.kernels.compile import Worker, array, for_dtypes, kernel
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, elements, size_of

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 12  # of a task
RELU, GELU, GELU_TANH, SILU, TANH, SIGMOID = range(6)


def relu(x: Array) -> tuple[Array, Callable[..., Any]]:
    return _apply(RELU, x)


def gelu(x: Array, approximate: str = "none") -> tuple[Array, Callable[..., Any]]:
    if approximate not in ("none", "tanh"):
        return NotImplemented  # type: ignore[no-any-return]
    return _apply(GELU if approximate == "none" else GELU_TANH, x)


def silu(x: Array) -> tuple[Array, Callable[..., Any]]:
    return _apply(SILU, x)


def tanh(x: Array) -> tuple[Array, Callable[..., Any]]:
    return _apply(TANH, x)


def sigmoid(x: Array) -> tuple[Array, Callable[..., Any]]:
    return _apply(SIGMOID, x)


def _apply(which: int, x: Array) -> tuple[Array, Callable[..., Any]]:
    dtype = x.dtype
    if dtype not in NONE or x.ndim == 0:
        return NotImplemented  # type: ignore[no-any-return]
    x = np.ascontiguousarray(x)
    y, slope = np.empty(x.shape, dtype), np.empty(x.shape, dtype)
    threads = threads_for((0.1 if which == RELU else 0.6) * x.size)
    flat = (a.reshape(-1) for a in (x, y, slope))
    bend[dtype](bend_part[dtype], which, *flat, memory_for(dtype, threads), threads)

    def backward(dy: Array) -> Array:
        if which == RELU:
            return np.where(slope > 0, dy, 0)  # an infinite dy is not multiplied by 0
        return dy * slope

    return y, backward


@Worker
def bend_part(memory, args, task):
    like, which = memory[0], args[0]
    start = task * ELEMENTS
    n, offset = min(ELEMENTS, args[1] - start), start * size_of(like)
    x, y = elements(like, args[2] + offset, n), elements(like, args[3] + offset, n)
    slope = elements(like, args[4] + offset, n)
    if which == RELU:
        for i in range(n):
            y[i], slope[i] = slopes.relu(x[i])
    elif which == GELU:
        for i in range(n):
            y[i], slope[i] = slopes.gelu(x[i])
    elif which == GELU_TANH:
        for i in range(n):
            y[i], slope[i] = slopes.gelu_tanh(x[i])
    elif which == SILU:
        for i in range(n):
            y[i], slope[i] = slopes.silu(x[i])
    elif which == TANH:
        for i in range(n):
            y[i], slope[i] = slopes.tanh(x[i])
    else:
        for i in range(n):
            y[i], slope[i] = slopes.sigmoid(x[i])


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, int64, array(T, 1), array(T, 1, writes=True), array(T, 1, writes=True), array(T, 2, writes=True),
            int64,
        )
    )
)  # fmt: skip
def bend(worker, which, x, y, slope, memory, threads):
    args = np.array([which, len(x), address(x), address(y), address(slope)])
    share(worker, memory, args, -(-len(x) // ELEMENTS), threads)
