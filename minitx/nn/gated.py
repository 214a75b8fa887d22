"""The gated feed-forward network: at every position, one projection decides how much of another passes."""
from __future__ import annotations

import numpy as np

from minitx.nn.dropout import Dropout
from minitx.nn.init import Init, xavier_uniform
from minitx.nn.linear import Linear, plain
from minitx.nn.module import Module
from minitx.ops import gated_feed_forward
from minitx.ops.arithmetic import onto
from minitx.ops.feedforward import GATES
from minitx.tensor import Tensor


class GatedFeedForward(Module):
    """FFN(x) = W_down (φ(W_gate x) * W_up x), for x (..., d_model).

    `gate` and `up` are (d_ff, d_model) each, `down` is (d_model, d_ff): three matrices, so d_ff is usually 2/3 of an
    ungated network's to have as many parameters. No biases by default, as in the models that use it. Dropout is applied
    to what `down` reads. Source: Shazeer 2020, "GLU variants improve Transformer", equation 6.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "swiglu",
        bias: bool = False,
        dropout: float = 0.0,
        *,
        rng: np.random.Generator,
        init: Init = xavier_uniform,
        residual_init: Init | None = None,
    ) -> None:
        if activation not in GATES:
            raise ValueError(f"the gate is one of {', '.join(GATES)}, not {activation!r}")
        self.gate = Linear(d_model, d_ff, bias, rng=rng, init=init)
        self.up = Linear(d_model, d_ff, bias, rng=rng, init=init)
        self.down = Linear(d_ff, d_model, bias, rng=rng, init=residual_init or init)
        self.activation = activation
        self.gated = GATES[activation]
        self.dropout = Dropout(dropout, rng=rng)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """FFN(x), and `residual` if there is one."""
        if self.dropout.active or not plain(self.gate, self.up, self.down):
            h = self.dropout(self.gated(self.gate(x), self.up(x)))  # (..., d_ff)
            return onto(residual, self.down(h))  # (..., d_model)
        gate, up, down = self.gate, self.up, self.down
        return gated_feed_forward(
            x, gate.weight, gate.bias, up.weight, up.bias, down.weight, down.bias, self.activation, residual
        )

    def extra(self) -> str:
        return self.activation
