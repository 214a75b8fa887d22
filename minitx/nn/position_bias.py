"""Positions as a bias on attention's scores. Called as `position_bias(T, S, query_offset=None)` → (1 or B, H, T, S)."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn.init import Init, normal, start
from minitx.nn.module import Module, Parameter
from minitx.ops import alibi_bias, relative_bias
from minitx.ops.position_bias import alibi_slopes, relative_buckets, relative_positions
from minitx.tensor import Array, Tensor


class AlibiBias(Module):
    """-m_h |distance|, with a fixed slope for every head: see ops/position_bias.py:alibi_bias. Nothing to learn.

    Extrapolates? Any distance has its penalty, on the same straight line; quality stays about what it was at the
    trained length, because far keys hardly count, and for the same reason they are not used.
    """

    def __init__(self, heads: int) -> None:
        self.slopes = alibi_slopes(heads)

    def forward(self, T: int, S: int, query_offset: Any = None) -> Array:
        return alibi_bias(relative_positions(T, S, query_offset), self.slopes).numpy()

    def extra(self) -> str:
        return f"{len(self.slopes)} heads"


class RelativeBias(Module):
    """A learned number for every bucket of distances and every head: see ops/position_bias.py:relative_bias.

    In T5 one of these serves all layers of a stack (give the same object to each), the encoder's with
    `bidirectional=True`, the decoder's not, and scores are not divided by √d (`scale=1.0`). Weight (buckets, heads),
    not decayed.

    Extrapolates? Distances above max_distance share one number: nothing breaks in longer texts, and among far keys
    there is no order.
    """

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        *,
        rng: np.random.Generator,
        init: Init | None = None,
    ) -> None:
        relative_buckets(0, buckets, max_distance, bidirectional)  # what cannot be is refused here
        init = init or normal(0.02)
        self.weight = Parameter(start("RelativeBias", init, rng, buckets=buckets, heads=heads), decay=False)
        self.max_distance, self.bidirectional = max_distance, bidirectional

    def forward(self, T: int, S: int, query_offset: Any = None) -> Tensor:
        relative = relative_positions(T, S, query_offset)
        return relative_bias(relative, self.weight, max_distance=self.max_distance, bidirectional=self.bidirectional)

    def extra(self) -> str:
        buckets, heads = self.weight.shape
        way = "both ways" if self.bidirectional else "backwards"
        return f"{heads} heads, {buckets} buckets up to {self.max_distance}, {way}"
