"""Embedding: a learned vector for every id."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn.init import Init, normal, start
from minitx.nn.module import Module, Parameter
from minitx.ops import embedding
from minitx.ops.checks import number, padding_row, whole
from minitx.tensor import Tensor


class Embedding(Module):
    """y = scale * E[ids], for integer ids (...), giving (..., d_model); weight E (vocab_size, d_model), not decayed.

    An id is a row number, not a quantity: id 2 is not twice id 1. `scale` is √d_model in the 2017 paper (section 3.4).
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        rng: np.random.Generator,
        padding_idx: int | None = None,
        scale: float = 1.0,
        init: Init | None = None,
    ) -> None:
        init = init or normal(whole(d_model, "Embedding: d_model") ** -0.5)
        weight = start("Embedding", init, rng, vocab_size=vocab_size, d_model=d_model)
        self.weight = Parameter(weight, decay=False)
        self.padding_idx = padding_row(padding_idx, vocab_size)
        self.scale = number(scale, "Embedding: scale")

    def forward(self, ids: Any) -> Tensor:
        vectors = embedding(ids, self.weight, self.padding_idx)
        return vectors if self.scale == 1 else vectors * self.scale

    def extra(self) -> str:
        vocab_size, d_model = self.weight.shape
        return f"{vocab_size} x {d_model}{f', times {self.scale:.4g}' if self.scale != 1 else ''}"
