"""Projections to heads, fast: what they compute is in ops/heads.py. Heads are views into the products."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitx.kernels import side_by_side
from minitx.kernels.linear import adds, fits, gradients, project

Array = np.ndarray[Any, Any]
Heads = tuple[tuple[Array, ...], Callable[..., Any]]


def self_attention_projections(
    x: Array, query: Array, query_bias: Array | None, key: Array, key_bias: Array | None, value: Array,
    value_bias: Array | None, heads: int = 1, kv_heads: int = 1,
) -> Heads:  # fmt: skip
    """q, k, v = the heads of x W_qᵀ + b_q, x W_kᵀ + b_k, x W_vᵀ + b_v"""
    return projections(x, ((query, query_bias, heads), (key, key_bias, kv_heads), (value, value_bias, kv_heads)))


def key_value_projections(
    memory: Array, key: Array, key_bias: Array | None, value: Array, value_bias: Array | None, kv_heads: int = 1
) -> Heads:
    """k, v = the heads of M W_kᵀ + b_k, M W_vᵀ + b_v"""
    return projections(memory, ((key, key_bias, kv_heads), (value, value_bias, kv_heads)))


def projections(x: Array, parts: Sequence[tuple[Array, Array | None, int]]) -> Heads:
    """The heads of x Wᵀ + b for each (W, b, number of heads)."""
    if x.ndim != 3 or not all(fits(x, w, b) and n > 0 and len(w) % n == 0 for w, b, n in parts):
        return NotImplemented  # type: ignore[no-any-return]
    B, T, n_in = x.shape
    x_rows = x.reshape(B * T, n_in)
    weights, biases, numbers = zip(*parts)
    ys = side_by_side.forward(x_rows, weights, biases)
    outputs = tuple([y.reshape(B, T, n, -1).swapaxes(1, 2) for y, n in zip(ys, numbers)])

    def backward(dy: tuple[Array, ...], need: Any) -> tuple[Array | None, ...]:
        rows = [d.swapaxes(1, 2).reshape(B * T, -1) for d in dy]
        return tuple(side_by_side.gradients(rows, x_rows, weights, biases, need, x.shape))

    return outputs, backward


def output_projection(
    x: Array, weight: Array, bias: Array | None = None, residual: Array | None = None
) -> tuple[Array, Callable[..., Any]]:
    """y = r + merge_heads(x) Wᵀ + b"""
    if x.ndim != 4:
        return NotImplemented  # type: ignore[no-any-return]
    B, H, T, d = x.shape
    rows = x.swapaxes(1, 2).reshape(B * T, H * d)
    shape = (B, T, len(weight))
    if not (fits(rows, weight, bias) and adds(residual, shape, x.dtype)):
        return NotImplemented  # type: ignore[no-any-return]
    y = project(rows, weight, bias, residual)

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        dx, dweight, dbias = gradients(dy.reshape(y.shape), rows, weight, bias, need)
        return None if dx is None else dx.reshape(B, T, H, d).swapaxes(1, 2), dweight, dbias, dy

    return y.reshape(shape), backward
