"""The training steps that are compared: a pre-norm decoder at five sizes, on both sides the same model and data."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minitx.tensor import Array


class Size(NamedTuple):
    """B sequences of T tokens, width d, heads, layers, and the vocabulary V."""

    B: int
    T: int
    d: int
    heads: int
    layers: int
    V: int = 32

    def __str__(self) -> str:
        return f"{self.B}x{self.T}, d {self.d}, {self.heads} heads, {self.layers} layers"

    def flops(self) -> float:
        """Multiply-adds times 2 of the products of one step (backward does each twice); causal pairs T(T+1)/2."""
        linear = self.B * self.T * (self.layers * 12 * self.d**2 + self.d * self.V)
        attention = self.layers * self.B * (self.T * (self.T + 1) // 2) * self.d * 2
        return 3 * 2.0 * (linear + attention)


SIZES = [
    Size(32, 16, 32, 4, 2),
    Size(64, 16, 64, 4, 2),
    Size(64, 32, 128, 4, 2),
    Size(16, 128, 256, 8, 4),
    Size(4, 256, 384, 6, 6, V=65),
]


def batch(size: Size) -> tuple[Array, Array]:
    """The same ids and targets for both sides."""
    ids = np.random.default_rng(0).integers(0, size.V, (size.B, size.T + 1))
    return ids[:, :-1], ids[:, 1:]
