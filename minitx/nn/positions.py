"""Where a token stands: attention alone treats its keys as a set, so the order has to be put into the vectors."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn.init import Init, normal, start
from minitx.nn.module import Module, Parameter
from minitx.ops import embedding
from minitx.ops.checks import integers
from minitx.tensor import Array, Tensor

LONGEST_TABLE = 1 << 16  # positions that SinusoidalPositions keeps


def sinusoidal(positions: Any, d_model: int, base: float = 10000.0) -> Array:
    """
    PE[p, 2i] = sin(p / base^(2i / d_model)),  PE[p, 2i+1] = cos(p / base^(2i / d_model))

    `positions` are integers (...); the result is float64 (..., d_model), for any width, odd ones too (the last sine
    then has no cosine). Each pair of features is a clock hand; shifting p turns every hand by a fixed angle, whatever p
    is. Any position can be computed; that does not mean that a model has learned to use positions it never saw.

    source: Vaswani et al. 2017, section 3.5.
    """
    positions = positions.numpy() if isinstance(positions, Tensor) else np.asarray(positions)
    if positions.dtype.kind not in "iu":
        raise TypeError(f"positions are integers, not {positions.dtype}: a float cannot tell neighbours apart far out")
    rates = base ** (-np.arange(0, d_model, 2) / d_model)  # (⌈d_model / 2⌉,)
    angles = positions[..., None] * rates  # (..., ⌈d_model / 2⌉)
    table = np.empty((*positions.shape, d_model))
    table[..., 0::2] = np.sin(angles)
    table[..., 1::2] = np.cos(angles)[..., : d_model // 2]
    return table


class SinusoidalPositions(Module):
    """x + PE[positions]: nothing to learn, no longest position."""

    def __init__(self, d_model: int) -> None:
        self.d_model = d_model
        self._table = sinusoidal(np.arange(0), d_model)  # grows as longer inputs come; always the same values

    def forward(self, x: Tensor, positions: Any) -> Tensor:
        positions = _one_per_token(positions, x)
        needed = int(positions.max()) + 1 if positions.size else 0
        if positions.min(initial=0) < 0:
            raise IndexError(f"positions count from 0; position {positions.min()} arrived")
        if needed > LONGEST_TABLE:  # far out: only what is asked for
            return x + sinusoidal(positions, self.d_model).astype(x.dtype)
        if needed > len(self._table):
            self._table = sinusoidal(np.arange(max(needed, 2 * len(self._table))), self.d_model)
        y: Tensor = x + self._table[positions].astype(x.dtype)
        return y


class LearnedPositions(Module):
    """x + P[positions], with a learned table P (max_length, d_model): there is no vector for a position past the table.

    source: Gehring et al. 2017, "Convolutional sequence to sequence learning", section 3.1; used by BERT and GPT.
    """

    def __init__(self, max_length: int, d_model: int, *, rng: np.random.Generator, init: Init | None = None) -> None:
        init = init or normal(0.02)
        weight = start("LearnedPositions", init, rng, max_length=max_length, d_model=d_model)
        self.weight = Parameter(weight, decay=False)

    def forward(self, x: Tensor, positions: Any) -> Tensor:
        positions = _one_per_token(positions, x)
        last = int(positions.max()) if positions.size else -1
        if last >= len(self.weight):
            raise IndexError(
                f"this model has learned {len(self.weight)} positions (max_length), and position {last} arrived; "
                "shorten the input or train with a larger max_length"
            )
        return x + embedding(positions, self.weight)

    def extra(self) -> str:
        return f"{self.weight.shape[0]} x {self.weight.shape[1]}"


class NoPositions(Module):
    """x: without positions, self-attention without a mask is permutation equivariant.

    Under a causal mask a decoder can still tell how many tokens stand before one, and so learn some order. Longer
    inputs run; that what was learned holds for them is not to be expected.
    """

    def forward(self, x: Tensor, positions: Any) -> Tensor:
        _one_per_token(positions, x)
        return x


def _one_per_token(positions: Any, x: Tensor) -> Array:
    """Positions of x (B, T, d_model) as integers (T,) or (B, T); another shape is refused, not broadcast."""
    at = integers(positions, "positions")
    if at.shape not in (x.shape[-2:-1], x.shape[:-1]):
        raise ValueError(f"one position per token, {x.shape[-2:-1]} or {x.shape[:-1]} for x {x.shape}, not {at.shape}")
    return at
