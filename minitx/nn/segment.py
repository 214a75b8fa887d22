"""Which part a token belongs to: the first sentence or the second, question or text."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn.init import Init, normal, start
from minitx.nn.module import Module, Parameter
from minitx.ops import embedding
from minitx.ops.checks import integers
from minitx.tensor import Tensor


class SegmentEmbedding(Module):
    """x + E[segments], for x (B, T, d_model) and integer segments (B, T) or (T,); None: all 0. E (segments, d_model).

    Also called token type embedding. Not decayed.
    source: Devlin et al. 2019, "BERT", figure 2.
    """

    def __init__(
        self, segments: int, d_model: int, *, rng: np.random.Generator, init: Init | None = None
    ) -> None:
        init = init or normal(0.02)
        self.weight = Parameter(
            start("SegmentEmbedding", init, rng, segments=segments, d_model=d_model), decay=False
        )

    def forward(self, x: Tensor, segments: Any = None) -> Tensor:
        """Raises IndexError for a segment outside the table."""
        ids = np.zeros(x.shape[1], np.int64) if segments is None else integers(segments, "segments")
        if ids.shape not in (x.shape[:2], x.shape[1:2]):
            raise ValueError(f"one segment per token, {x.shape[:2]} for x {x.shape}, not {ids.shape}")
        return x + embedding(ids, self.weight)

    def extra(self) -> str:
        return f"{self.weight.shape[0]} x {self.weight.shape[1]}"
