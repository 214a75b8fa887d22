"""The feed-forward networks as one op each: smaller ops in the definition, products with epilogues in the kernel."""
from __future__ import annotations

import functools
from collections.abc import Callable

from minitx.op import composite
from minitx.ops.activation import gelu, relu, silu
from minitx.ops.arithmetic import onto
from minitx.ops.gated import geglu, glu, reglu, swiglu
from minitx.ops.linear import linear
from minitx.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": functools.partial(gelu, approximate="tanh"),
    "silu": silu,
}
GATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "glu": glu,
    "reglu": reglu,
    "geglu": geglu,
    "geglu_tanh": functools.partial(geglu, approximate="tanh"),
    "swiglu": swiglu,
}


@composite("x", "up", "up_bias", "down", "down_bias", "residual")
def feed_forward(
    x: Tensor, up: Tensor, up_bias: Tensor | None, down: Tensor, down_bias: Tensor | None, activation: str = "relu",
    residual: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """
    for: the same two-layer network at every position, without dropout inside; together, for speed.

    equation:
        y = r + h W₂ᵀ + b₂,  h = φ(x W₁ᵀ + b₁)

    where:
        x     (..., d_model)
        up    (d_ff, d_model)   W₁;  up_bias (d_ff,) or None
        down  (d_model, d_ff)   W₂;  down_bias (d_model,) or None
        activation  φ: "relu", "gelu", "gelu_tanh" or "silu"
        residual    r: what passes the network by, of y's shape; or None

    backward: that of its parts. The kernel keeps φ'(z) of z = x W₁ᵀ + b₁ in the place of z (of ReLU h alone), and makes
        dz = (dy W₂) * φ'(z)
        while a piece of the product dy W₂ is still in the cache.

    saved: x, h, φ'(z) and the weights.

    source: Vaswani et al. 2017, "Attention is all you need", section 3.3.
    """
    return onto(residual, linear(ACTIVATIONS[activation](linear(x, up, up_bias)), down, down_bias))


@composite("x", "gate", "gate_bias", "up", "up_bias", "down", "down_bias", "residual")
def gated_feed_forward(
    x: Tensor, gate: Tensor, gate_bias: Tensor | None, up: Tensor, up_bias: Tensor | None, down: Tensor,
    down_bias: Tensor | None, activation: str = "swiglu", residual: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """
    for: the gated network at every position, without dropout inside; together, for speed.

    equation:
        y = r + h W_downᵀ + b_down,  h = φ(g) * u,  g = x W_gateᵀ + b_gate,  u = x W_upᵀ + b_up

    where:
        x         (..., d_model)
        gate, up  (d_ff, d_model), and their biases (d_ff,) or None
        down      (d_model, d_ff), and its bias (d_model,) or None
        activation  names the gate: "glu", "reglu", "geglu", "geglu_tanh" or "swiglu"
        residual  r: what passes the network by, of y's shape; or None

    backward: that of its parts. The kernel keeps φ(g) and u * φ'(g), and makes both
        du = dh * φ(g)
        dg = dh * u * φ'(g)
        while a piece of the product dh = dy W_down is still in the cache.

    saved: x, h, φ(g), u * φ'(g) and the weights.

    source: Shazeer 2020, "GLU variants improve Transformer".
    """
    h = GATES[activation](linear(x, gate, gate_bias), linear(x, up, up_bias))
    return onto(residual, linear(h, down, down_bias))
