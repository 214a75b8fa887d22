"""Dropout as a layer: on in training, absent in evaluation."""
from __future__ import annotations

import numpy as np

from minitx.nn.module import Module
from minitx.ops import dropout
from minitx.ops.checks import generator, probability
from minitx.tensor import Tensor


class Dropout(Module):
    """In training each element is 0 with probability p, else divided by 1 - p; in evaluation y = x, bit for bit.

    The randomness comes from `rng`, which the model shares among its layers and a checkpoint saves.
    """

    def __init__(self, p: float, *, rng: np.random.Generator) -> None:
        self.p = probability(p, "dropout")
        self.rng = generator(rng, "Dropout") if self.p else rng

    @property
    def active(self) -> bool:
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        return dropout(x, self.p, self.rng) if self.active else x

    def extra(self) -> str:
        return f"p {self.p:g}"
