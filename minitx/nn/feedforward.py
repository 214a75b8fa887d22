"""The position-wise feed-forward network: the same two-layer network at every position."""
from __future__ import annotations

import numpy as np

from minitx.nn.dropout import Dropout
from minitx.nn.init import Init, xavier_uniform
from minitx.nn.linear import Linear, plain
from minitx.nn.module import Module
from minitx.ops import feed_forward
from minitx.ops.arithmetic import onto
from minitx.ops.feedforward import ACTIVATIONS
from minitx.tensor import Tensor


class FeedForward(Module):
    """FFN(x) = W₂ φ(W₁ x + b₁) + b₂, for x (..., d_model): attention mixes positions, this mixes features.

    `up` is W₁ (d_ff, d_model), `down` is W₂ (d_model, d_ff): wider inside, the same width outside, so that the result
    can be added to x. Dropout is applied to φ(...). Source: Vaswani et al. 2017, section 3.3 (with φ = ReLU).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        activation: str = "relu",
        bias: bool = True,
        dropout: float = 0.0,
        *,
        rng: np.random.Generator,
        init: Init = xavier_uniform,
        residual_init: Init | None = None,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {activation!r}")
        self.up = Linear(d_model, d_ff, bias, rng=rng, init=init)
        self.down = Linear(d_ff, d_model, bias, rng=rng, init=residual_init or init)
        self.activation = activation
        self.phi = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout, rng=rng)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """FFN(x), and `residual` if there is one."""
        if self.dropout.active or not plain(self.up, self.down):
            h = self.dropout(self.phi(self.up(x)))  # (..., d_ff)
            return onto(residual, self.down(h))  # (..., d_model)
        up, down = self.up, self.down
        return feed_forward(x, up.weight, up.bias, down.weight, down.bias, self.activation, residual)

    def extra(self) -> str:
        return self.activation
