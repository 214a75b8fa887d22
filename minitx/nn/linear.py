"""Linear: y = x Wᵀ + b."""
from __future__ import annotations

import numpy as np

from minitx import settings
from minitx.nn.init import Init, start, xavier_uniform
from minitx.nn.module import Module, Parameter, original
from minitx.ops import linear
from minitx.tensor import Tensor


class Linear(Module):
    """y = x Wᵀ + b, for x (..., d_in); weight (d_out, d_in), bias (d_out) starting at 0 and not decayed."""

    def __init__(
        self, d_in: int, d_out: int, bias: bool = True, *, rng: np.random.Generator, init: Init = xavier_uniform
    ) -> None:
        self.weight = Parameter(start("Linear", init, rng, d_out=d_out, d_in=d_in))
        self.bias = Parameter(np.zeros(d_out, np.float32), decay=False) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)

    def extra(self) -> str:
        d_out, d_in = self.weight.shape
        return f"{d_in} -> {d_out}{'' if self.bias is not None else ', no bias'}"


def plain(*layers: Module) -> bool:
    """May one op take the weights of these layers and do the work of all: is each a Linear and no more?

    Where somebody watches (a trace, the search for the first NaN) the answer is no, and each layer is seen at work,
    unless the observer says that it takes things as they are (`whole`).
    """
    for layer in layers:
        if not original(layer, Linear):
            return False
    return unwatched()


def unwatched() -> bool:
    """May a layer's work be done by another?"""
    observer = settings.current.get().observer
    return observer is None or getattr(observer, "whole", False)
