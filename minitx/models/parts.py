"""Small parts that only whole models have: what stands where a configuration has nothing, and the head for tokens."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn import Linear, Module
from minitx.nn.init import Init
from minitx.ops import tanh
from minitx.tensor import Tensor


class Identity(Module):
    """y = x: stands where a configuration has nothing, so that a forward pass needs no question."""

    def forward(self, x: Tensor, mask: Any = None) -> Tensor:
        return x


class NoSegments(Module):
    """x, for a model that has no segments; to be given some is an error."""

    def forward(self, x: Tensor, segments: Any = None) -> Tensor:
        if segments is not None:
            raise TypeError("this model has no segments to add: build it with `segments` in its configuration")
        return x


class LanguageModelHead(Linear):
    """
    logits = cap tanh(z / cap),   z = scale (W h + b),   for hidden h (..., d_model) → (..., vocab_size)

    `scale` is 1 and `softcap` None (logits = z) unless a model has them: T5 multiplies by 1/√d_model where W is the
    embedding (Raffel et al. 2020, published code), Gemma 2 bounds its logits by 30 (Gemma Team 2024, section 2).
    """

    def __init__(
        self,
        d_model: int,
        vocab_size: int,
        bias: bool = False,
        scale: float | None = None,
        softcap: float | None = None,
        *,
        rng: np.random.Generator,
        init: Init,
    ) -> None:
        super().__init__(d_model, vocab_size, bias, rng=rng, init=init)
        self.scale, self.softcap = scale, softcap

    def forward(self, hidden: Tensor, mask: Any = None) -> Tensor:
        z = super().forward(hidden)
        if self.scale is not None:
            z = z * self.scale
        if self.softcap is not None:
            z = self.softcap * tanh(z / self.softcap)
        return z

    def extra(self) -> str:
        scaled = "" if self.scale is None else f", times {self.scale:.4g}"
        return super().extra() + scaled + ("" if self.softcap is None else f", cap {self.softcap:g}")
