"""linear, fast: contract and mathematics are in ops/linear.py. `forward` and `gradients` also serve other kernels."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, void

from minitx.kernels.block import product_block, record
from minitx.kernels.compile import CannotCompile, array, for_dtypes, kernel, strided
from minitx.kernels.epilogue import NOTHING, PLUS
from minitx.kernels.matmul import NS, product, product_kernel, room, share_products
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import threads_for
from minitx.kernels.tile import BITS

Array = np.ndarray[Any, Any]
Gradients = tuple[Array | None, Array | None, Array | None]  # of x, weight and bias


def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Callable[..., Any]]:
    """y = x Wᵀ + b"""
    if not fits(x, weight, bias):
        return NotImplemented  # type: ignore[no-any-return]
    x_rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    y = forward(x_rows, weight, bias)

    def backward(dy: Array, need: Any) -> Gradients:
        return gradients(dy.reshape(y.shape), x_rows, weight, bias, need, shape=x.shape)

    return y.reshape(*x.shape[:-1], len(weight)), backward


def forward(
    x: Array, weight: Array, bias: Array | None, how: int = NOTHING, extra: Array | None = None,
    slope: Array | None = None,
) -> Array:  # fmt: skip
    """x Wᵀ + b for rows (rows, in), and an epilogue (epilogue.py)."""
    dtype, rows, (n_out, n_in) = x.dtype, len(x), weight.shape
    none, nothing = NONE[dtype]
    y = np.empty((rows, n_out), dtype)
    threads = threads_for(NS * rows * n_in * n_out)
    product_kernel[dtype](
        product_block[dtype], x, weight.T, none if bias is None else bias, how, nothing if extra is None else extra,
        nothing if slope is None else slope, y, memory_for(dtype, threads), threads,
    )  # fmt: skip
    return y


def project(x: Array, weight: Array, bias: Array | None, residual: Array | None) -> Array:
    """x Wᵀ + b for rows, and r, which `adds` has found to be right, if it is not None."""
    if residual is None:
        return forward(x, weight, bias)
    return forward(x, weight, bias, PLUS, extra=residual.reshape(len(x), len(weight)))


def gradients(
    dy: Array, x: Array, weight: Array, bias: Array | None, need: Any, how: int = NOTHING, extra: Array | None = None,
    slope: Array | None = None, dx: Array | None = None, shape: tuple[int, ...] | None = None,
) -> Gradients:  # fmt: skip
    """dx = dy W, dW = dyᵀ x, db = Σ dy of what `need` names, for rows (rows, out); the epilogue is dx's.

    dx is made in `shape`, in which it is asked for: a view of another array would be nobody's to add to (tensor.py).
    """
    dtype, rows, (n_out, n_in) = x.dtype, len(x), weight.shape
    none, nothing = NONE[dtype]
    if not need[0]:
        dx = None
    elif dx is None:
        dx = np.empty(shape or x.shape, dtype)
    dx_rows = nothing if dx is None else dx.reshape(rows, n_in)
    dweight = np.empty((n_out, n_in), dtype) if need[1] else None
    dbias = np.empty(n_out, dtype) if bias is not None and need[2] else None
    threads = threads_for(NS * rows * n_in * n_out)
    try:
        both = linear_backward[dtype]
    except CannotCompile:  # the kernel of the forward pass does one after the other
        if dx is not None:
            product(dy, weight, None, how, extra, slope, dx_rows)
        if dweight is not None:
            product(dy.T, x, out=dweight)
        if dbias is not None:
            dy.sum(0, out=dbias)
        return dx, dweight, dbias
    both(
        product_block[dtype], dy, x, weight, dx_rows, nothing if dweight is None else dweight,
        none if dbias is None else dbias, how, nothing if extra is None else extra,
        nothing if slope is None else slope, memory_for(dtype, threads), threads,
    )  # fmt: skip
    if dbias is not None and dweight is None:
        dy.sum(0, out=dbias)
    return dx, dweight, dbias


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, strided(T, 2), strided(T, 2), strided(T, 2), array(T, 2, writes=True), array(T, 2, writes=True),
            array(T, 1, writes=True), int64, array(T, 2), array(T, 2, writes=True), array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def linear_backward(worker, dy, x, weight, dx, dweight, dbias, how, extra, slope, memory, threads):
    none, nothing, records = dbias[:0], slope[:0], 0
    args = np.empty(1 + room(dx, threads) + room(dweight, threads), np.int64)
    if len(dx):
        record(args, records, dy, weight, none, how, extra, slope, none, dx, threads)  # dx = dy W
        records += 1
    if len(dweight):
        # dW = Σ_rows dyᵀ x,  db = Σ_rows dy
        record(args, records, dy.T, x, none, NOTHING, nothing, nothing, dbias, dweight, threads)
        records += 1
    share_products(worker, args, records, memory, threads)


def adds(residual: Array | None, shape: tuple[int, ...], dtype: Any) -> bool:
    """Can the epilogue add this to a value of this shape and dtype?"""
    return residual is None or (residual.shape == shape and residual.dtype == dtype and residual.flags.c_contiguous)


def fits(x: Array, weight: Array, bias: Array | None) -> bool:
    """Is this a case that the kernel does? (The definition says what is wrong with the others.)"""
    return bool(
        BITS
        and x.dtype in NONE
        and weight.dtype == x.dtype
        and weight.ndim == 2
        and x.ndim > 0
        and x.shape[-1] == weight.shape[1]
        and x.size > 0
        and weight.size > 0
        and (bias is None or (bias.dtype == x.dtype and bias.shape == weight.shape[:1] and bias.flags.c_contiguous))
    )
