"""Rotary positions as a layer: one object turns the queries and keys of every block."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn.module import Module
from minitx.ops import rotary
from minitx.ops.rotary_scaling import Scaling, rotary_frequencies, rotary_scaling
from minitx.tensor import Tensor


class Rotary(Module):
    """Queries or keys (B, H, T, head_dim), turned by their positions: see ops/rotary.py. Nothing to learn.

    `rotary_dim` (even) of the head_dim features turn, all of them if None; `scaling` is a dict as in
    ops/rotary_scaling.py. Angles are made in float64 at every call, so casting the model does not touch them.

    Extrapolates? Any position has its angles, but a model has only learned those that occurred in training: past that
    length it fails soon, unless `scaling` brings the angles back into the range that it knows.
    """

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        rotary_dim: int | None = None,
        interleaved: bool = False,
        scaling: Scaling | None = None,
    ) -> None:
        if rotary_dim is not None and rotary_dim > head_dim:
            raise ValueError(f"rotary_dim is at most head_dim, not {rotary_dim} of {head_dim} features")
        if rotary_dim is None and head_dim % 2:
            raise ValueError(f"rotary: features turn in pairs: head_dim {head_dim} is odd, so give an even rotary_dim")
        self.head_dim, self.base, self.rotary_dim, self.interleaved = head_dim, base, rotary_dim, interleaved
        self.scaling = rotary_scaling(scaling)
        rotary_frequencies(rotary_dim or head_dim, base, scaling, length=1)  # what cannot be is refused here

    def forward(self, x: Tensor, positions: Any, cached: bool = False) -> Tensor:
        """`cached`: the result goes beside keys that were turned in earlier calls."""
        if cached:
            self._refuse_a_moving_base(positions)
        return rotary(
            x, positions, base=self.base, rotary_dim=self.rotary_dim, interleaved=self.interleaved, scaling=self.scaling
        )

    def _refuse_a_moving_base(self, positions: Any) -> None:
        s = self.scaling
        if s is not None and s["type"] == "dynamic" and s["length"] is None:
            last = int(np.max(positions)) if np.size(positions) else -1
            if last >= s["original_length"]:
                raise ValueError(
                    f"dynamic scaling turns all keys anew at every length past {s['original_length']}, and keys in "
                    f"a cache are turned already (position {last} arrived): fix the final length in the scaling, "
                    '{"type": "dynamic", "length": ...}, use yarn or llama3, or generate without a cache'
                )

    def extra(self) -> str:
        scaled = "" if self.scaling is None else f", {self.scaling['type']} x {self.scaling['factor']:g}"
        turned = "" if self.rotary_dim is None else f"{self.rotary_dim} of "
        return f"{turned}{self.head_dim}, base {self.base:g}{scaled}{', interleaved' if self.interleaved else ''}"
