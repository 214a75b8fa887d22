"""LayerNorm and RMSNorm: each token's features are brought to one scale, then given a learned gain."""
from __future__ import annotations

import numpy as np

from minitx.nn.module import Module, Parameter
from minitx.ops import layer_norm, rms_norm
from minitx.ops.checks import number, whole
from minitx.tensor import Tensor


class LayerNorm(Module):
    """y = γ ⊙ (x - μ) / √(v + ε) + β over the last axis of x (..., d_model), per token; γ starts at 1, β at 0.

    The same in training and inference: there are no running statistics. Gain and bias are not decayed.
    """

    def __init__(self, d_model: int, eps: float = 1e-5, bias: bool = True) -> None:
        self.weight = Parameter(np.ones(whole(d_model, "LayerNorm: d_model"), np.float32), decay=False)
        self.bias = Parameter(np.zeros(d_model, np.float32), decay=False) if bias else None
        self.eps = _eps(eps)

    def forward(self, x: Tensor) -> Tensor:
        return layer_norm(x, self.weight, self.bias, self.eps)

    def extra(self) -> str:
        return f"{self.weight.shape[0]}, eps {self.eps:g}"


class RMSNorm(Module):
    """y = (offset + w) ⊙ x / √(mean(x²) + ε) over the last axis of x (..., d_model), per token; no centring, no bias.

    The gain offset + w starts at 1: w at 1, or, in the "1 + w" convention (offset 1, Gemma), w at 0. Not decayed. The
    same in training and inference.
    """

    def __init__(self, d_model: int, eps: float = 1e-6, offset: float = 0.0) -> None:
        self.offset = number(offset, "RMSNorm: offset")
        self.weight = Parameter(np.full(whole(d_model, "RMSNorm: d_model"), 1 - offset, np.float32), decay=False)
        self.eps = _eps(eps)

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps, offset=self.offset)

    def extra(self) -> str:
        return f"{self.weight.shape[0]}, eps {self.eps:g}{f', gain {self.offset:g} + w' if self.offset else ''}"


def _eps(eps: float) -> float:
    if not number(eps, "eps") >= 0:
        raise ValueError(f"eps is not negative, it keeps the root away from 0; it cannot be {eps}")
    return eps
