"""expert_linear, fast: contract and mathematics are in ops/mixture.py. The products are matmul.py's, one an expert.

So a row's result has the same bits whatever else goes to its expert, and no second pool of threads is at work.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minitx.kernels.matmul import product
from minitx.kernels.memory import NONE
from minitx.kernels.tile import BITS

Array = np.ndarray[Any, Any]


def expert_linear(
    x: Array, weight: Array, counts: Any, bias: Array | None = None
) -> tuple[Array, Callable[..., Any]]:
    """y_m = x_m W_eᵀ + b_e, for the rows m of expert e"""
    counts = np.array(counts)
    if not fits(x, weight, counts, bias):
        return NotImplemented  # type: ignore[no-any-return]
    y = np.empty((len(x), weight.shape[1]), x.dtype)
    for e, rows in experts(counts):
        product(x[rows], weight[e].T, None if bias is None else bias[e], out=y[rows])

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        dx = np.empty(x.shape, x.dtype) if need[0] else None
        dweight = np.zeros(weight.shape, x.dtype) if need[1] else None
        dbias = np.zeros(weight.shape[:2], x.dtype) if need[2] else None
        for e, rows in experts(counts):
            # y = x W_eᵀ + b_e
            if dx is not None:
                product(dy[rows], weight[e], out=dx[rows])
            if dweight is not None:
                product(dy[rows].T, x[rows], out=dweight[e])
            if dbias is not None:
                dbias[e] = dy[rows].sum(0)
        return dx, dweight, dbias

    return y, backward


def experts(counts: Array) -> Iterator[tuple[int, slice]]:
    """Each expert that has rows, with these rows."""
    end = 0
    for e, n in enumerate(counts.tolist()):
        start, end = end, end + n
        if n:
            yield e, slice(start, end)


def fits(x: Array, weight: Array, counts: Array, bias: Array | None) -> bool:
    """Is this a case that the kernel does? (The definition says what is wrong with the others.)"""
    return bool(
        BITS
        and x.dtype in NONE
        and weight.dtype == x.dtype
        and x.ndim == 2
        and weight.ndim == 3
        and x.shape[1] == weight.shape[2]
        and x.size > 0
        and weight.size > 0
        and counts.shape == weight.shape[:1]
        and counts.dtype.kind in "iu"
        and counts.min() >= 0
        and counts.sum() == len(x)
        and (bias is None or (bias.dtype == x.dtype and bias.shape == weight.shape[:2] and bias.flags.c_contiguous))
    )
