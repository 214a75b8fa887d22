"""Patches of an image as tokens: a linear map in the place of the table, and one learned vector in front."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn.init import Init, normal, start
from minitx.nn.linear import Linear
from minitx.nn.module import Module, Parameter
from minitx.ops import broadcast_to, concatenate
from minitx.tensor import Tensor


class PatchEmbedding(Module):
    """patches (B, N, patch_dim), floats → (B, N + 1, d_model): [c, W p_1 + b, ... W p_N + b].

    A patch is the numbers of a small square of the image in any fixed order. `first` c, learned and not decayed, stands
    before them (BERT's CLS): a vector of no patch in particular, which the head can read.
    source: Dosovitskiy et al. 2021, "An image is worth 16x16 words", section 3.1, equation 1.
    """

    def __init__(self, patch_dim: int, d_model: int, *, rng: np.random.Generator, init: Init | None = None) -> None:
        init = init or normal(0.02)
        self.first = Parameter(start("PatchEmbedding", init, rng, rows=1, d_model=d_model)[0], decay=False)
        self.projection = Linear(patch_dim, d_model, rng=rng, init=init)

    def forward(self, patches: Any) -> Tensor:
        x = patches if isinstance(patches, Tensor) else Tensor(np.asarray(patches, self.first.dtype))
        d_model, patch_dim = self.projection.weight.shape
        if x.ndim != 3 or x.shape[2] != patch_dim:
            raise ValueError(f"patches are (B, N, {patch_dim}), each a row of {patch_dim} numbers, not {x.shape}")
        first = broadcast_to(self.first, (x.shape[0], 1, d_model))
        y: Tensor = concatenate([first, self.projection(x)], axis=1)  # (B, N + 1, d_model)
        return y
