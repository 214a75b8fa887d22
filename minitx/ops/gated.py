"""Gates: one projection decides how much of another passes. The first layer of most feed-forward networks today."""
from __future__ import annotations

from typing import Any

from minitx.op import Array, Forward, op
from minitx.ops.activation import gelu, relu, sigmoid, silu


@op
def glu(gate: Array, up: Array) -> Forward:
    """
    for: the original gate: a number between 0 and 1 for each feature, made from the input itself.

    equation:
        y = σ(gate) * up

    where:
        gate  (..., d_ff)  x W_gateᵀ, a projection of its own
        up    (..., d_ff)  x W_upᵀ

    by hand:
        >>> glu(np.log([1.0, 3.0]), np.array([2.0, 4.0])).numpy()
        array([1., 3.])

    backward:
        dgate = dy * up * σ'(gate)
        dup   = dy * σ(gate)

    why: a product, so each factor's gradient is dy times the other factor; the gate's then goes back through σ, and
        that is the activation's own rule: nothing is derived twice.

    saved: up, σ(gate) and σ'(gate).

    cost: the activation, and one product forward, two back.

    differs from: PyTorch's glu, which takes both halves in one array, the gate second: F.glu(concatenate(up, gate)).

    goes wrong: gate and up exchanged runs, learns, and is another model: published weights then give nonsense.

    source: Dauphin et al. 2017, "Language modeling with gated convolutional networks".
    """
    return _gated(sigmoid.definition(gate), gate, up, "glu")


@op
def reglu(gate: Array, up: Array) -> Forward:
    """
    for: a gate that is shut or open in proportion.

    equation:
        y = max(gate, 0) * up

    by hand:
        >>> reglu(np.array([-1.0, 3.0]), np.array([2.0, 4.0])).numpy()
        array([ 0., 12.])

    backward:
        dgate = dy * up where gate > 0, else 0
        dup   = dy * max(gate, 0)

    why: as glu.

    source: Shazeer 2020, "GLU variants improve Transformer".
    """
    return _gated(relu.definition(gate), gate, up, "reglu")


@op
def geglu(gate: Array, up: Array, approximate: str = "none") -> Forward:
    """
    for: the gate of Gemma and of T5 1.1: GELU in the place of σ.

    equation:
        y = gelu(gate) * up

    where:
        approximate  "none" or "tanh": two functions, see gelu (Gemma and T5 1.1: "tanh")

    by hand:
        >>> geglu(np.array([-50.0, 50.0]), np.array([2.0, 4.0])).numpy()
        array([ -0., 200.])

    backward:
        dgate = dy * up * gelu'(gate)
        dup   = dy * gelu(gate)

    why: as glu.

    source: Shazeer 2020, "GLU variants improve Transformer".
    """
    return _gated(gelu.definition(gate, approximate), gate, up, "geglu")


@op
def swiglu(gate: Array, up: Array) -> Forward:
    """
    for: the gate of Llama, Mistral and most current decoders: SiLU (swish) in the place of σ.

    equation:
        y = silu(gate) * up = gate * σ(gate) * up

    where:
        gate  (..., d_ff)  x W_gateᵀ, a projection of its own
        up    (..., d_ff)  x W_upᵀ

    by hand:
        >>> swiglu(np.log([1.0, 3.0]), np.array([2.0, 4.0])).numpy() / np.log(3.0)
        array([0., 3.])

    backward:
        dgate = dy * up * (σ(gate)            (term 1)
                         + gate * σ'(gate))   (term 2)
        dup   = dy * silu(gate)

    why: as glu; the two terms are silu's own, the product rule for gate * σ(gate). Because up multiplies the result,
        one feature can scale another, which an activation by itself cannot do.

    saved: up, gate, σ(gate) and σ'(gate).

    cost: the activation, and one product forward, two back. A gated network has three matrices instead of two, so d_ff
        is usually 2/3 of what it would be, to have as many parameters.

    differs from: the paper's swish has a factor β in σ(β gate); here, as everywhere, β = 1.

    goes wrong: gate and up exchanged runs, learns, and is another model: published weights then give nonsense.

    exercise: swiglu

    source: Shazeer 2020, "GLU variants improve Transformer".
    """
    return _gated(silu.definition(gate), gate, up, "swiglu")


def _gated(activated: Forward, gate: Array, up: Array, name: str) -> Forward:
    """y = a * up, where `activated` is (a, the backward of the activation)."""
    a, activation_backward = activated
    if gate.shape != up.shape:
        raise ValueError(f"{name}: gate and up are two projections of one shape, not {gate.shape} and {up.shape}")
    y = a * up

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        # y = a * up,  a = activation(gate)
        dgate = activation_backward(dy * up) if need.gate else None
        dup = dy * a if need.up else None
        return dgate, dup

    return y, backward
