"""The training steps that are compared: on both sides the same model and the same data."""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minitx.data import Batch
from minitx.models import TransformerConfig
from minitx.models.cost import Flops, flops
from minitx.tasks import get_task


class Size(NamedTuple):
    """B sequences of T tokens, width d, heads, layers, the vocabulary V, and of which kind the model is.

    kind "decoder": pre-norm with LayerNorm, GELU and learned positions; "llama": that preset; "reverse": the
    encoder-decoder of `minitx train reverse` with a batch of its task.
    """

    B: int
    T: int
    d: int
    heads: int
    layers: int
    V: int = 32
    kind: str = "decoder"

    def __str__(self) -> str:
        return f"{self.kind} {self.B}x{self.T}, d {self.d}, {self.heads} heads, {self.layers} layers"

    def config(self) -> TransformerConfig:
        values: dict[str, Any] = {
            "layers": self.layers, "d_model": self.d, "heads": self.heads, "vocab_size": self.V, "max_length": self.T,
            "dropout": 0.0, "tie_embeddings": False,
        }  # fmt: skip
        if self.kind == "decoder":
            return TransformerConfig.gpt2(activation="gelu", **values)
        if self.kind == "llama":
            return TransformerConfig.llama(**values)
        return TransformerConfig.original(**values | {"tie_embeddings": True})

    def flops(self) -> int:
        """Of the products of one step, forward and backward (models/cost.py); padding counts."""
        return sum(sum(part) for part in self.parts().values())

    def parts(self) -> dict[str, Flops]:
        return flops(self.config(), self.B, self.T)


SIZES = [
    Size(32, 16, 32, 4, 2),
    Size(64, 16, 64, 4, 2),
    Size(64, 32, 128, 4, 2),
    Size(16, 128, 256, 8, 4),
    Size(4, 256, 384, 6, 6, V=65),
]
MODELS = [
    *SIZES,
    Size(64, 13, 64, 4, 2, V=13, kind="reverse"),
    Size(64, 32, 128, 4, 2, kind="llama"),
    Size(16, 128, 256, 8, 4, kind="llama"),
]


def batch(size: Size) -> Batch:
    """The same ids, targets and padding for both sides."""
    rng = np.random.default_rng(0)
    if size.kind == "reverse":
        return get_task("reverse", longest=size.T - 1).batch(rng, size.B)
    ids = rng.integers(0, size.V, (size.B, size.T + 1))
    return Batch(ids[:, :-1], ids[:, 1:])
