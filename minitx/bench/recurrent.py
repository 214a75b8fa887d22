"""A recurrent network from the same ops: what it remembers of a text is one vector a layer, however long the text.

    z = σ(W_z x_t + U_z h_(t-1))          how much is replaced
    c = tanh(W_c x_t + U_c h_(t-1))       by what
    h_t = h_(t-1) + z (c - h_(t-1))

The price: h_t needs h_(t-1), so a text is learned one token after the other. A Transformer reads all tokens at once.

source: the minimal gated unit of Zhou et al. 2016, without its gate inside c.
"""
from __future__ import annotations

import numpy as np

from minitx.nn import Embedding, Linear, Module
from minitx.ops import concatenate, sigmoid, split, tanh
from minitx.tensor import Array, Tensor


class RecurrentLayer(Module):
    """x (B, T, d), the state before it (B, 1, d) → all states (B, T, d)."""

    def __init__(self, d: int, *, rng: np.random.Generator) -> None:
        self.input, self.state = Linear(d, 2 * d, rng=rng), Linear(d, 2 * d, bias=False, rng=rng)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        states = []
        for of_input in split(self.input(x), x.shape[1], axis=1):  # (B, 1, 2 d), one after the other
            z, c = split(of_input + self.state(h), 2, axis=-1)  # (B, 1, d) each
            h = h + sigmoid(z) * (tanh(c) - h)
            states.append(h)
        return concatenate(states, axis=1)


class Recurrent(Module):
    """ids (B, T) and the states before them → logits (B, T, V) and the states after: one (B, 1, d) a layer."""

    def __init__(self, V: int, d: int, layers: int, *, rng: np.random.Generator) -> None:
        self.embedding, self.head = Embedding(V, d, rng=rng), Linear(d, V, rng=rng)
        self.layers = [RecurrentLayer(d, rng=rng) for _ in range(layers)]

    def forward(self, ids: Array, states: list[Tensor] | None = None) -> tuple[Tensor, list[Tensor]]:
        x: Tensor = self.embedding(ids)  # (B, T, d)
        before = [Tensor(np.zeros_like(x.data[:, :1]))] * len(self.layers) if states is None else states
        after = []
        for layer, h in zip(self.layers, before):
            y = layer(x, h)  # (B, T, d)
            after.append(y[:, -1:])
            x = x + y
        return self.head(x), after
