"""feed_forward and gated_feed_forward, fast: what they compute is in ops/feedforward.py.

The activation, the gate and their backward passes are epilogues of the products (epilogue.py): done to each piece of a
row while it is in the cache. Stored for backward: the slope of the activation in the place of what it was given (of
ReLU nothing: h shows it).
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.kernels import side_by_side
from minitx.kernels.epilogue import (
    GATE_BACKWARD,
    GELU,
    GELU_TANH,
    OPEN,
    RELU,
    SIGMOID,
    SILU,
    TIMES,
)
from minitx.kernels.linear import adds, fits, forward, gradients, project

Array = np.ndarray[Any, Any]

ACTIVATIONS = {"relu": RELU, "gelu": GELU, "gelu_tanh": GELU_TANH, "silu": SILU}
GATES = {"glu": SIGMOID, "geglu": GELU, "geglu_tanh": GELU_TANH, "swiglu": SILU}


def feed_forward(
    x: Array, up: Array, up_bias: Array | None, down: Array, down_bias: Array | None, activation: str = "relu",
    residual: Array | None = None,
) -> tuple[Array, Callable[..., Any]]:  # fmt: skip
    """y = h W₂ᵀ + b₂ + r,  h = φ(x W₁ᵀ + b₁)"""
    fine = fits(x, up, up_bias) and down.shape == up.shape[::-1] and fits(down, down, down_bias)
    fine = fine and adds(residual, x.shape, x.dtype)
    if activation not in ACTIVATIONS or not fine:
        return NotImplemented  # type: ignore[no-any-return]
    x_rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    relu = activation == "relu"  # whose slope can be seen in h itself
    slope = None if relu else np.empty((len(x_rows), len(up)), x.dtype)
    h = forward(x_rows, up, up_bias, ACTIVATIONS[activation], slope=slope)
    y = project(h, down, down_bias, residual)
    through, by = (OPEN, h) if relu else (TIMES, slope)  # (an infinite gradient is not multiplied by 0)

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        # z = x W₁ᵀ + b₁,  h = φ(z):  dz = (dy W₂) * φ'(z)
        inner = need.x or need.up or need.up_bias
        dz, ddown, ddown_bias = gradients(
            dy.reshape(y.shape), h, down, down_bias, (inner, need.down, need.down_bias), through, extra=by
        )
        if dz is None:
            return None, None, None, ddown, ddown_bias, dy
        dx, dup, dup_bias = gradients(dz, x_rows, up, up_bias, (need.x, need.up, need.up_bias), shape=x.shape)
        return dx, dup, dup_bias, ddown, ddown_bias, dy

    return y.reshape(x.shape), backward


def gated_feed_forward(
    x: Array, gate: Array, gate_bias: Array | None, up: Array, up_bias: Array | None, down: Array,
    down_bias: Array | None, activation: str = "swiglu", residual: Array | None = None,
) -> tuple[Array, Callable[..., Any]]:  # fmt: skip
    """y = h W_downᵀ + b_down + r,  h = a * u,  a = φ(x W_gateᵀ + b_gate),  u = x W_upᵀ + b_up"""
    fine = fits(x, gate, gate_bias) and fits(x, up, up_bias) and gate.shape == up.shape == down.shape[::-1]
    if activation not in GATES or not (fine and fits(down, down, down_bias) and adds(residual, x.shape, x.dtype)):
        return NotImplemented  # type: ignore[no-any-return]
    x_rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    h, both = side_by_side.gated(x_rows, gate, gate_bias, up, up_bias, GATES[activation])  # both: a and u * φ'
    y = project(h, down, down_bias, residual)

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        # h = a * u:  du = dh * a,  dg = dh * u * φ'(g)
        dg = np.empty(h.shape, x.dtype)
        inner = any(need[:5])
        du, ddown, ddown_bias = gradients(
            dy.reshape(y.shape), h, down, down_bias, (inner, need.down, need.down_bias), GATE_BACKWARD, both, dg
        )
        if du is None:
            return None, None, None, None, None, ddown, ddown_bias, dy
        rest = side_by_side.gradients((dg, du), x_rows, (gate, up), (gate_bias, up_bias), need, x.shape)
        return *rest, ddown, ddown_bias, dy

    return y.reshape(x.shape), backward
