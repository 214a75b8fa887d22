"""layer_norm and rms_norm, fast: contract and mathematics are in ops/normalization.py; the terms have its numbers."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float64, int64, void

from minitx.kernels.compile import Worker, array, exact, for_dtypes, inline, kernel
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, bits, cast, elements, no_overlap, real, size_of
from minitx.kernels.vectormath import inverse_root, max_nan

Array = np.ndarray[Any, Any]

ROWS = 64  # of a task; the sums over rows for γ and β are made task by task and added in this order


def layer_norm(
    x: Array, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5
) -> tuple[Array, Callable[..., Any]]:
    """y = γ (x - μ) / √(σ² + ε) + β. Saved: x itself, and three numbers a row."""
    n = x.shape[-1] if x.ndim else 0
    if not (x.ndim and x.dtype in NONE and x.size and eps >= 0 and _fits(weight, x, n) and _fits(bias, x, n)):
        return NotImplemented  # type: ignore[no-any-return]
    dtype, shape = x.dtype, x.shape
    rows = math.prod(shape[:-1])
    x_rows = np.ascontiguousarray(x).reshape(rows, n)
    gain = np.ones(n, dtype) if weight is None else weight
    shift = np.zeros(n, dtype) if bias is None else bias
    y, statistics = np.empty((rows, n), dtype), np.empty((rows, 3), dtype)
    threads = threads_for(0.6 * x.size)
    worker, backward_of = backward_rows[dtype], layer_norm_backward[dtype]
    layer_norm_forward[dtype](
        forward_rows[dtype], x_rows, gain, shift, eps, y, statistics, memory_for(dtype, threads), threads
    )

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        dy = np.ascontiguousarray(dy).reshape(rows, n)
        dx = np.empty(shape, dtype)
        sums = np.empty((-(-rows // ROWS), 2, n), dtype)  # per task: Σ dy x̂ and Σ dy
        dweight, dbias = np.empty(n, dtype), np.empty(n, dtype)
        backward_of(
            worker, dy, x_rows, gain, statistics, dx.reshape(rows, n), sums, dweight, dbias,
            memory_for(dtype, threads), threads,
        )  # fmt: skip
        return dx, None if weight is None else dweight, None if bias is None else dbias

    return y.reshape(shape), backward


def _fits(parameter: Array | None, x: Array, n: int) -> bool:
    if parameter is None:
        return True
    return parameter.dtype == x.dtype and parameter.shape == (n,) and parameter.flags.c_contiguous


@exact
def centred(x, mean, rest):
    """x - μ, where μ = mean + rest is known to more digits than one number holds."""
    return (x - mean) - rest


# (generation/program.py calls it too, and lists its args in this order: change both or none.)
@Worker
def forward_rows(memory, args, task):
    like, rows, n = memory[0], args[0], args[1]
    size, count = size_of(like), cast(like, n)
    eps = cast(like, real(args[2]))
    gain, shift = elements(like, args[4], n), elements(like, args[5], n)
    for i in range(task * ROWS, min(rows, (task + 1) * ROWS)):
        x, y = elements(like, args[3] + i * n * size, n), elements(like, args[6] + i * n * size, n)
        statistics = elements(like, args[7] + i * 3 * size, 3)
        zero = mean = rest = square = cast(like, 0)
        for j in range(n):
            mean += x[j]
        mean /= count
        for j in range(n):
            c = centred(x[j], mean, zero)
            rest += c
            square += c * c
        rest /= count  # the mean was rounded at the size of x; what is left of it is seen at the size of x - μ
        r = inverse_root(max_nan(square / count - rest * rest, zero) + eps)
        for j in range(n):
            y[j] = centred(x[j], mean, rest) * r * gain[j] + shift[j]
        statistics[0], statistics[1], statistics[2] = mean, rest, r


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, array(T, 2), array(T, 1), array(T, 1), float64, array(T, 2, writes=True),
            array(T, 2, writes=True), array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def layer_norm_forward(worker, x, gain, shift, eps, y, statistics, memory, threads):
    rows, n = x.shape
    args = np.array([rows, n, bits(eps), address(x), address(gain), address(shift), address(y), address(statistics)])
    share(worker, memory, args, -(-rows // ROWS), threads)


@Worker
def backward_rows(memory, args, task):
    like, rows, n = memory[0], args[0], args[1]
    size, count = size_of(like), cast(like, n)
    gain = elements(like, args[4], n)
    sums = args[7] + task * 2 * n * size
    dgain, dshift = elements(like, sums, n), elements(like, sums + n * size, n)
    for j in range(n):
        dgain[j] = 0
        dshift[j] = 0
    for i in range(task * ROWS, min(rows, (task + 1) * ROWS)):
        dy, x = elements(like, args[2] + i * n * size, n), elements(like, args[3] + i * n * size, n)
        statistics, dx = elements(like, args[5] + i * 3 * size, 3), elements(like, args[6] + i * n * size, n)
        mean, rest, r = statistics[0], statistics[1], statistics[2]
        along_1, along_x = sums_of_row(n, x, dy, gain, mean, rest, r, dgain, dshift)
        along_1 /= count
        along_x /= count
        for j in range(n):
            xhat = centred(x[j], mean, rest) * r
            dx[j] = (dy[j] * gain[j] - along_1 - xhat * along_x) * r  # term 1 - term 2 - term 3


@inline
def sums_of_row(n, x, dy, gain, mean, rest, r, dgain, dshift):
    """Σ_j dx̂_j and Σ_j dx̂_j x̂_j, where dx̂ = dy * gain; what the row adds to dgain and dshift."""
    no_overlap()
    along_1 = along_x = cast(r, 0)
    for j in range(n):
        xhat = centred(x[j], mean, rest) * r
        dxhat = dy[j] * gain[j]
        along_1 += dxhat
        along_x += dxhat * xhat
        dgain[j] += dy[j] * xhat
        dshift[j] += dy[j]
    return along_1, along_x


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, array(T, 2), array(T, 2), array(T, 1), array(T, 2), array(T, 2, writes=True),
            array(T, 3, writes=True), array(T, 1, writes=True), array(T, 1, writes=True), array(T, 2, writes=True),
            int64,
        )
    )
)  # fmt: skip
def layer_norm_backward(worker, dy, x, gain, statistics, dx, sums, dgain, dshift, memory, threads):
    rows, n = x.shape
    args = np.array([rows, n, address(dy), address(x), address(gain), address(statistics), address(dx), address(sums)])
    share(worker, memory, args, len(sums), threads)
    for j in range(n):
        dgain[j] = sums[0, 0, j]
        dshift[j] = sums[0, 1, j]
    for t in range(1, len(sums)):
        for j in range(n):
            dgain[j] += sums[t, 0, j]
            dshift[j] += sums[t, 1, j]


# ---------------------------------------------------------------------- rms_norm


def rms_norm(
    x: Array, weight: Array | None = None, eps: float = 1e-6, *, offset: float = 0.0
) -> tuple[Array, Callable[..., Any]]:
    """y = (offset + w) x / ρ. Saved: x itself, and 1/ρ, one number a row."""
    n = x.shape[-1] if x.ndim else 0
    if not (x.ndim and x.dtype in NONE and x.size and eps >= 0 and _fits(weight, x, n)):
        return NotImplemented  # type: ignore[no-any-return]
    dtype, shape = x.dtype, x.shape
    rows = math.prod(shape[:-1])
    x_rows = np.ascontiguousarray(x).reshape(rows, n)
    gain = np.ones(n, dtype) if weight is None else weight + float(offset) if offset else weight
    y, inverse = np.empty((rows, n), dtype), np.empty(rows, dtype)
    threads = threads_for(0.4 * x.size)
    worker, backward_of = rms_backward_rows[dtype], rms_norm_backward[dtype]
    rms_norm_forward[dtype](rms_rows[dtype], x_rows, gain, eps, y, inverse, memory_for(dtype, threads), threads)

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        dy = np.ascontiguousarray(dy).reshape(rows, n)
        dx = np.empty(shape, dtype)
        sums, dweight = np.empty((-(-rows // ROWS), n), dtype), np.empty(n, dtype)  # per task: Σ dy x̂
        backward_of(
            worker, dy, x_rows, gain, inverse, dx.reshape(rows, n), sums, dweight, memory_for(dtype, threads), threads
        )
        return dx, None if weight is None else dweight

    return y.reshape(shape), backward


# (generation/program.py calls it too, and lists its args in this order: change both or none.)
@Worker
def rms_rows(memory, args, task):
    like, rows, n = memory[0], args[0], args[1]
    size, count = size_of(like), cast(like, n)
    eps = cast(like, real(args[2]))
    gain, inverse = elements(like, args[4], n), elements(like, args[6], rows)
    for i in range(task * ROWS, min(rows, (task + 1) * ROWS)):
        x, y = elements(like, args[3] + i * n * size, n), elements(like, args[5] + i * n * size, n)
        square = cast(like, 0)
        for j in range(n):
            square += x[j] * x[j]
        r = inverse[i] = inverse_root(square / count + eps)
        for j in range(n):
            y[j] = x[j] * r * gain[j]


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, array(T, 2), array(T, 1), float64, array(T, 2, writes=True), array(T, 1, writes=True),
            array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def rms_norm_forward(worker, x, gain, eps, y, inverse, memory, threads):
    rows, n = x.shape
    args = np.array([rows, n, bits(eps), address(x), address(gain), address(y), address(inverse)])
    share(worker, memory, args, -(-rows // ROWS), threads)


@Worker
def rms_backward_rows(memory, args, task):
    like, rows, n = memory[0], args[0], args[1]
    size, count = size_of(like), cast(like, n)
    gain, inverse = elements(like, args[4], n), elements(like, args[5], rows)
    dgain = elements(like, args[7] + task * n * size, n)
    for j in range(n):
        dgain[j] = 0
    for i in range(task * ROWS, min(rows, (task + 1) * ROWS)):
        dy, x = elements(like, args[2] + i * n * size, n), elements(like, args[3] + i * n * size, n)
        dx, r = elements(like, args[6] + i * n * size, n), inverse[i]
        along = rms_sums_of_row(n, x, dy, gain, r, dgain) / count
        for j in range(n):
            dx[j] = (dy[j] * gain[j] - x[j] * r * along) * r  # term 1 - term 2


@inline
def rms_sums_of_row(n, x, dy, gain, r, dgain):
    """Σ_j dy_j gain_j x̂_j; what the row adds to dgain."""
    no_overlap()
    along = cast(r, 0)
    for j in range(n):
        xhat = x[j] * r
        along += dy[j] * gain[j] * xhat
        dgain[j] += dy[j] * xhat
    return along


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, array(T, 2), array(T, 2), array(T, 1), array(T, 1), array(T, 2, writes=True),
            array(T, 2, writes=True), array(T, 1, writes=True), array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def rms_norm_backward(worker, dy, x, gain, inverse, dx, sums, dgain, memory, threads):
    rows, n = x.shape
    args = np.array([rows, n, address(dy), address(x), address(gain), address(inverse), address(dx), address(sums)])
    share(worker, memory, args, len(sums), threads)
    for j in range(n):
        dgain[j] = sums[0, j]
    for t in range(1, len(sums)):
        for j in range(n):
            dgain[j] += sums[t, j]
