"""Several linear layers of one x, yᵢ = x Wᵢᵀ + bᵢ, as one work for the threads: queries, keys, values; gate and up."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import int64, types, void

from minitx.kernels.block import product_block, record
from minitx.kernels.compile import CannotCompile, array, for_dtypes, kernel, strided
from minitx.kernels.epilogue import GATE, MORE, NOTHING
from minitx.kernels.matmul import NS, room, share_products
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import threads_for

Array = np.ndarray[Any, Any]

MOST = 3  # layers; those that are not there are empty
three: Any = functools.partial(types.UniTuple, count=MOST)


def forward(x: Array, weights: Sequence[Array], biases: Sequence[Array | None]) -> list[Array]:
    """x Wᵢᵀ + bᵢ for rows (rows, in)."""
    dtype, rows = x.dtype, len(x)
    none, nothing = NONE[dtype]
    ys = [np.empty((rows, len(w)), dtype) for w in weights]
    threads = threads_for(NS * rows * sum([w.size for w in weights]))
    forward_kernel[dtype](
        product_block[dtype], x, _three(weights, nothing), _three(biases, none), _three(ys, nothing),
        memory_for(dtype, threads), threads,
    )  # fmt: skip
    return ys


def gated(
    x: Array, gate: Array, gate_bias: Array | None, up: Array, up_bias: Array | None, activation: int
) -> tuple[Array, Array]:
    """For rows, g = x W_gateᵀ + b_gate and u = x W_upᵀ + b_up: φ(g) * u; and φ(g), with φ'(g) * u below it."""
    dtype, rows = x.dtype, len(x)
    h, both, none = np.empty((rows, len(up)), dtype), np.empty((2 * rows, len(up)), dtype), NONE[dtype][0]
    threads = threads_for(2 * NS * rows * up.size)
    gate_kernel[dtype](
        product_block[dtype], x, gate, none if gate_bias is None else gate_bias, up,
        none if up_bias is None else up_bias, activation, both[:rows], both[rows:], h,
        memory_for(dtype, threads), threads,
    )  # fmt: skip
    return h, both


def gradients(
    dys: Sequence[Array], x: Array, weights: Sequence[Array], biases: Sequence[Array | None], need: Sequence[bool],
    shape: tuple[int, ...],
) -> list[Array | None]:  # fmt: skip
    """dx = Σᵢ dyᵢ Wᵢ, and dWᵢ = dyᵢᵀ x and dbᵢ = Σ dyᵢ for each i; `need` names them in this order, x first.

    dx is made in `shape`, in which it is asked for: a view of another array would be nobody's to add to (tensor.py).
    """
    dtype = x.dtype
    none, nothing = NONE[dtype]
    dx = np.empty(shape, dtype) if need[0] else None
    dx_rows = nothing if dx is None else dx.reshape(x.shape)
    dweights = [np.empty(w.shape, dtype) if wanted else None for w, wanted in zip(weights, need[1::2])]
    dbiases = [
        np.empty(len(b), dtype) if wanted and b is not None else None for b, wanted in zip(biases, need[2::2])
    ]
    threads = threads_for(2 * NS * len(x) * sum([w.size for w in weights]))
    try:
        together = backward_kernel[dtype]
    except CannotCompile:
        if dx is not None:
            dx_rows[:] = sum([dy @ w for dy, w in zip(dys, weights)])
        for dy, dw, db in zip(dys, dweights, dbiases):
            if dw is not None:
                np.matmul(dy.T, x, out=dw)
            if dw is not None and db is not None:
                dy.sum(0, out=db)
    else:
        together(
            product_block[dtype], _three(dys, nothing), x, _three(weights, nothing), dx_rows,
            _three(dweights, nothing), _three(dbiases, none), memory_for(dtype, threads), threads,
        )  # fmt: skip
    found: list[Array | None] = [dx]
    for dy, dw, db in zip(dys, dweights, dbiases):
        if db is not None and dw is None:
            dy.sum(0, out=db)
        found += [dw, db]
    return found


def _three(arrays: Sequence[Array | None], empty: Array) -> tuple[Array, ...]:
    """`empty` for what is None or beyond the end."""
    return (*[empty if a is None else a for a in arrays], *[empty] * (MOST - len(arrays)))


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, strided(T, 2), three(strided(T, 2)), three(array(T, 1)), three(array(T, 2, writes=True)),
            array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def forward_kernel(worker, x, weights, biases, ys, memory, threads):
    none, nothing, records, places = memory[0, :0], memory[:0], 0, 1
    for y in ys:
        places += room(y, threads)
    args = np.empty(places, np.int64)
    for i in range(MOST):
        if len(ys[i]):
            record(args, records, x, weights[i].T, biases[i], NOTHING, nothing, nothing, none, ys[i], threads)
            records += 1
    share_products(worker, args, records, memory, threads)


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, three(strided(T, 2)), strided(T, 2), three(strided(T, 2)), array(T, 2, writes=True),
            three(array(T, 2, writes=True)), three(array(T, 1, writes=True)), array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def backward_kernel(worker, dys, x, weights, dx, dweights, dbiases, memory, threads):
    none, nothing, records, layers = memory[0, :0], memory[:0], 0, 0
    places = 1 + MOST * room(dx, threads)
    for i in range(MOST):
        layers += len(weights[i]) > 0
        places += room(dweights[i], threads)
    args = np.empty(places, np.int64)
    if len(dx):
        for i in range(layers):  # dx = Σᵢ dyᵢ Wᵢ: to each block of the first product the others add theirs
            how = NOTHING if i == 0 else MORE
            record(args, i, dys[i], weights[i], none, how, nothing, nothing, none, dx, threads, layers - 1 - i)
        records = layers
    for i in range(layers):
        if len(dweights[i]):
            # dWᵢ = Σ_rows dyᵢᵀ x,  dbᵢ = Σ_rows dyᵢ
            record(args, records, dys[i].T, x, none, NOTHING, nothing, nothing, dbiases[i], dweights[i], threads)
            records += 1
    share_products(worker, args, records, memory, threads)


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, strided(T, 2), strided(T, 2), array(T, 1), strided(T, 2), array(T, 1), int64,
            array(T, 2, writes=True), array(T, 2, writes=True), array(T, 2, writes=True), array(T, 2, writes=True),
            int64,
        )
    )
)  # fmt: skip
def gate_kernel(worker, x, gate, gate_bias, up, up_bias, activation, a, slope, h, memory, threads):
    """Each row of tiles is computed for g and then for u: a and the slope are still in the first-level cache."""
    none, nothing = memory[0, :0], memory[:0]
    args = np.empty(1 + 2 * room(h, threads, x.shape[1], 2), np.int64)
    record(args, 0, x, gate.T, gate_bias, activation, nothing, slope, none, a, threads, along=1, same_a=True)
    record(args, 1, x, up.T, up_bias, GATE, a, slope, none, h, threads)
    share_products(worker, args, 2, memory, threads)
