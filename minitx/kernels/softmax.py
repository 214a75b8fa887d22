"""softmax and log_softmax along the last axis, fast: contract and mathematics are in ops/softmax.py."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, void

from minitx.kernels.compile import Worker, array, for_dtypes, inline, kernel
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, cast, elements, no_overlap, size_of
from minitx.kernels.vectormath import exp, log, maximum, minus

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 13  # of a task, in whole rows


def softmax(x: Array, axis: int = -1) -> tuple[Array, Callable[..., Any]]:
    """y_i = exp(x_i) / Σ_j exp(x_j)"""
    return _rows(x, axis, logarithm=False)


def log_softmax(x: Array, axis: int = -1) -> tuple[Array, Callable[..., Any]]:
    """y_i = x_i - log Σ_j exp(x_j)"""
    return _rows(x, axis, logarithm=True)


def _rows(x: Array, axis: int, logarithm: bool) -> tuple[Array, Callable[..., Any]]:
    dtype, shape = x.dtype, x.shape
    if dtype not in NONE or x.size == 0 or x.ndim == 0 or axis not in (-1, x.ndim - 1):
        return NotImplemented  # type: ignore[no-any-return]
    n = shape[-1]
    x = np.ascontiguousarray(x).reshape(-1, n)
    y = np.empty(x.shape, dtype)
    threads = threads_for(0.5 * x.size)
    rows_kernel, worker = row_by_row[dtype], softmax_backward[dtype]
    rows_kernel(softmax_forward[dtype], logarithm, x, x, y, memory_for(dtype, threads), threads)

    def backward(dy: Array) -> Array:
        dx = np.empty(shape, dtype)
        dy = np.ascontiguousarray(dy).reshape(-1, n)
        rows_kernel(worker, logarithm, y, dy, dx.reshape(-1, n), memory_for(dtype, threads), threads)
        return dx

    return y.reshape(shape), backward


@Worker
def softmax_forward(memory, args, task):
    like, rows, n = memory[0], args[0], args[1]
    size, each = size_of(like), max(1, ELEMENTS // n)
    for i in range(task * each, min(rows, (task + 1) * each)):
        x, y = elements(like, args[3] + i * n * size, n), elements(like, args[5] + i * n * size, n)
        top = cast(like, -np.inf)
        for j in range(n):
            top = maximum(top, x[j])
        top = top if abs(top) < np.inf else cast(like, 0)  # a row of nothing but -inf: exp(-inf - 0) = 0
        total = exponentials(n, x, y, top)
        total = cast(like, 1) if total == 0 else total
        if args[2]:
            log_total = log(total)
            for j in range(n):
                y[j] = minus(minus(x[j], top), log_total)
        else:
            factor = cast(like, 1) / total
            for j in range(n):
                y[j] *= factor


@inline
def exponentials(n, x, y, top):
    """y = exp(x - top), and their sum."""
    no_overlap()
    total = cast(top, 0)
    for j in range(n):
        e = exp(minus(x[j], top))
        total += e
        y[j] = e
    return total


@Worker
def softmax_backward(memory, args, task):
    like, rows, n = memory[0], args[0], args[1]
    size, each = size_of(like), max(1, ELEMENTS // n)
    for i in range(task * each, min(rows, (task + 1) * each)):
        y, dy = elements(like, args[3] + i * n * size, n), elements(like, args[4] + i * n * size, n)
        dx, total = elements(like, args[5] + i * n * size, n), cast(like, 0)
        if args[2]:
            alive = cast(like, 0)  # stays 0 in a row of nothing but -inf, which has no gradient
            for j in range(n):
                total += dy[j]
                alive = cast(like, 1) if y[j] != -np.inf else alive
            for j in range(n):
                dx[j] = dy[j] - exp(y[j]) * total if alive else cast(like, 0)  # term 1 - term 2
        else:
            for j in range(n):
                total += dy[j] * y[j]
            for j in range(n):
                dx[j] = y[j] * (dy[j] - total)  # term 1 - term 2


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, int64, array(T, 2), array(T, 2), array(T, 2, writes=True), array(T, 2, writes=True), int64
        )
    )
)
def row_by_row(worker, logarithm, a, b, out, memory, threads):
    rows, n = a.shape
    args = np.array([rows, n, logarithm, address(a), address(b), address(out)])
    share(worker, memory, args, -(-rows // max(1, ELEMENTS // n)), threads)
