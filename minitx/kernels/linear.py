"""linear, fast, and linear with an activation in one kernel: contract and mathematics are in ops/linear.py."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, void

from minitx.kernels.compile import array, for_dtypes, kernel, strided
from minitx.kernels.matmul import (
    GELU,
    GELU_TANH,
    NOTHING,
    RELU,
    SILU,
    multiply,
    product_block,
    product_kernel,
)  # fmt: skip
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import threads_for
from minitx.kernels.tile import BITS

Array = np.ndarray[Any, Any]

ACTIVATIONS = {"none": NOTHING, "relu": RELU, "gelu": GELU, "gelu_tanh": GELU_TANH, "silu": SILU}
NS = 0.02  # nanoseconds a multiply-add takes one thread


def linear(x: Array, weight: Array, bias: Array | None = None) -> tuple[Array, Callable[..., Any]]:
    """y = x Wᵀ + b"""
    return linear_activation(x, weight, bias, "none")


def linear_activation(
    x: Array, weight: Array, bias: Array | None = None, activation: str = "gelu"
) -> tuple[Array, Callable[..., Any]]:
    """y = φ(x Wᵀ + b). Stored for backward: the slope φ'(x Wᵀ + b) in place of the sum itself."""
    if not fits(x, weight, bias):
        return NotImplemented  # type: ignore[no-any-return]
    dtype, how = x.dtype, ACTIVATIONS[activation]
    n_out, n_in = weight.shape
    rows = math.prod(x.shape[:-1])
    x_rows = x.reshape(rows, n_in)
    none, nothing = NONE[dtype]
    y = np.empty((rows, n_out), dtype)
    slope = np.empty((rows, n_out), dtype) if how else nothing
    threads = threads_for(NS * rows * n_in * n_out)
    worker, memory = product_block[dtype], memory_for(dtype, threads)
    bias_row = none if bias is None else bias
    # y = φ(x Wᵀ + b)
    product_kernel[dtype](worker, x_rows, weight.T, bias_row, how, nothing, slope, y, memory, threads)
    backward_kernel = linear_backward[dtype]

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        dx = np.empty((rows, n_in), dtype) if need[0] else None
        dweight = np.empty((n_out, n_in), dtype) if need[1] else None
        dbias = np.empty(n_out, dtype) if bias is not None and need[2] else None
        dz = dy.reshape(rows, n_out)
        if how:
            dz = np.where(slope > 0, dz, 0) if how == RELU else dz * slope
        memory = memory_for(dtype, threads)
        backward_kernel(
            worker, dz, x_rows, weight, nothing if dx is None else dx,
            nothing if dweight is None else dweight, none if dbias is None else dbias, nothing, memory, threads,
        )  # fmt: skip
        if dbias is not None and dweight is None:
            dz.sum(0, out=dbias)
        return None if dx is None else dx.reshape(x.shape), dweight, dbias

    return y.reshape(*x.shape[:-1], n_out), backward


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, strided(T, 2), strided(T, 2), strided(T, 2), array(T, 2, writes=True), array(T, 2, writes=True),
            array(T, 1, writes=True), array(T, 2, writes=True), array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def linear_backward(worker, dy, x, weight, dx, dweight, dbias, nothing, memory, threads):
    none = dbias[:0]
    if len(dx):
        multiply(worker, dy, weight, none, NOTHING, nothing, nothing, none, dx, memory, threads)  # dx = dy W
    if len(dweight):
        # dW = Σ_rows dyᵀ x,  db = Σ_rows dy
        multiply(worker, dy.T, x, none, NOTHING, nothing, nothing, dbias, dweight, memory, threads)


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
