"""The bent lines, fast: contract and mathematics are in ops/activation.py. gated.py has its loops from here too.

Saved: the slope, which shares most of its work with the value; dx = dy * slope. (Of ReLU x: its slope is no work.)
"""
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
from minitx.kernels.pointer import address, elements, size_of, where

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 12  # of a task
BLOCK = 1 << 10  # so many values and slopes at a time lie in the first-level cache
RELU, GELU, GELU_TANH, SILU, TANH, SIGMOID, ERF = range(7)


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


def erf(x: Array) -> tuple[Array, Callable[..., Any]]:
    return _apply(ERF, x)


def _apply(which: int, x: Array) -> tuple[Array, Callable[..., Any]]:
    """y = φ(x)"""
    dtype, shape = x.dtype, x.shape
    if dtype not in NONE or x.ndim == 0:
        return NotImplemented  # type: ignore[no-any-return]
    x = np.ascontiguousarray(x)
    y, none = np.empty(shape, dtype), NONE[dtype][0]
    saved = x if which == RELU else np.empty(shape, dtype)
    run(FORWARD, which, x, none, none, y, none if which == RELU else saved)

    def backward(dy: Array) -> Array:
        dx = np.empty(shape, dtype)
        run(BACKWARD, which, saved, none, np.ascontiguousarray(dy), dx, none)
        return dx

    return y, backward


# What bend_part does with x, up and dy                               and where it writes
FORWARD, BACKWARD = 0, 1  # y = φ(x) and s = φ'(x);  dx = dy * s      out, also
GATE, GATE_BACKWARD = 2, 3  # y = φ(x) * up;  dx = dy * up * φ'(x) and dup = dy * φ(x)


def run(how: int, which: int, x: Array, up: Array, dy: Array, out: Array, also: Array) -> None:
    """One pass over the arrays, each in C order; what is not there is empty."""
    dtype = x.dtype
    threads = threads_for((0.15 if which == RELU or how == BACKWARD else 0.5) * x.size)
    flat = (a.reshape(-1) for a in (x, up, dy, out, also))
    bend[dtype](bend_part[dtype], how, which, *flat, memory_for(dtype, threads), threads)


@Worker
def bend_part(memory, args, task):
    like, how, which, size = memory[0], args[0], args[1], size_of(memory[0])
    for start in range(task * ELEMENTS, min(args[2], (task + 1) * ELEMENTS), BLOCK):
        n, at = min(BLOCK, args[2] - start), start * size
        x, up, dy = elements(like, args[3] + at, n), elements(like, args[4] + at, n), elements(like, args[5] + at, n)
        out, also = elements(like, args[6] + at, n), elements(like, args[7] + at, n)
        if how == BACKWARD and which == RELU:
            for i in range(n):
                out[i] = dy[i] if x[i] > 0 else 0  # an infinite dy is not multiplied by 0
            continue
        if how == BACKWARD:
            for i in range(n):
                out[i] = dy[i] * x[i]
            continue
        # a = φ(x) and s = φ'(x), in this thread's memory or where they belong
        a = elements(like, args[6] + at if how == FORWARD else where(memory), n)
        s = elements(like, args[7] + at if how == FORWARD and which != RELU else where(memory) + BLOCK * size, n)
        if which == RELU:
            for i in range(n):
                a[i], s[i] = slopes.relu(x[i])
        elif which == GELU:
            for i in range(n):
                a[i], s[i] = slopes.gelu(x[i])
        elif which == GELU_TANH:
            for i in range(n):
                a[i], s[i] = slopes.gelu_tanh(x[i])
        elif which == SILU:
            for i in range(n):
                a[i], s[i] = slopes.silu(x[i])
        elif which == TANH:
            for i in range(n):
                a[i], s[i] = slopes.tanh(x[i])
        elif which == SIGMOID:
            for i in range(n):
                a[i], s[i] = slopes.sigmoid(x[i])
        else:
            for i in range(n):
                a[i], s[i] = slopes.erf(x[i])
        if how == GATE:
            for i in range(n):
                out[i] = a[i] * up[i]
        elif how == GATE_BACKWARD and which == RELU:
            for i in range(n):
                out[i] = dy[i] * up[i] if s[i] > 0 else 0
                also[i] = dy[i] * a[i]
        elif how == GATE_BACKWARD:
            for i in range(n):
                out[i] = dy[i] * up[i] * s[i]
                also[i] = dy[i] * a[i]


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, int64, int64, array(T, 1), array(T, 1), array(T, 1), array(T, 1, writes=True),
            array(T, 1, writes=True), array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def bend(worker, how, which, x, up, dy, out, also, memory, threads):
    args = np.array([how, which, len(x), address(x), address(up), address(dy), address(out), address(also)])
    share(worker, memory, args, -(-len(x) // ELEMENTS), threads)
