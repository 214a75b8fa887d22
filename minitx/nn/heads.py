"""Heads: what stands on top of the hidden vectors and says something. (A language model's head is a Linear.)

Their losses are all `cross_entropy(head(hidden), targets)`, with the targets of places that do not count ignored. All
can be called as head(hidden, mask), where the mask says which tokens are real; only those that pool need it.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn.dropout import Dropout
from minitx.nn.embedding import Embedding
from minitx.nn.init import Init, normal
from minitx.nn.linear import Linear
from minitx.nn.module import Module
from minitx.nn.normalization import LayerNorm
from minitx.nn.pooling import HOW, pool
from minitx.ops import tanh
from minitx.ops.feedforward import ACTIVATIONS
from minitx.tensor import Tensor

BERT = normal(0.02)


class MaskedLanguageModelHead(Module):
    """
    logits = norm(φ(W h + b)) Eᵀ + c,   for hidden h (..., d_model) → (..., vocab_size)

    `dense` W, b (d_model wide) lets the hidden vector turn before it is compared with every embedding. E is the table
    of `embedding` itself (tied: its gradient is the sum of both uses) or, with None, a matrix of its own; c is one
    number per token. Only masked places have a target, so only they need logits: head(hidden[chosen]) does less.
    source: Devlin et al. 2019, "BERT", section 3.1 and the published code.
    """

    def __init__(
        self,
        d_model: int,
        vocab_size: int,
        embedding: Embedding | None = None,
        activation: str = "gelu",
        norm_eps: float = 1e-12,
        *,
        rng: np.random.Generator,
        init: Init = BERT,
    ) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation is one of {', '.join(ACTIVATIONS)}, not {activation!r}")
        if embedding is not None and embedding.weight.shape != (vocab_size, d_model):
            raise ValueError(
                f"the tied table is (vocab_size, d_model), ({vocab_size}, {d_model}), not {embedding.weight.shape}"
            )
        self.dense = Linear(d_model, d_model, rng=rng, init=init)
        self.norm = LayerNorm(d_model, norm_eps)
        self.decoder = Linear(d_model, vocab_size, rng=rng, init=init)
        if embedding is not None:
            self.decoder.weight = embedding.weight
        self.activation = activation

    def forward(self, hidden: Tensor, mask: Any = None) -> Tensor:
        h = self.norm(ACTIVATIONS[self.activation](self.dense(hidden)))  # (..., d_model)
        logits: Tensor = self.decoder(h)  # (..., vocab_size)
        return logits

    def extra(self) -> str:
        return self.activation


class ClassificationHead(Module):
    """
    logits = W dropout(tanh(W_p pool(h) + b_p)) + b,   for hidden h (B, T, d_model) → (B, classes)

    One answer for a whole row: `how` to pool is "first", "mean" or "last" (see `pool`, which never reads padding).
    `dense` W_p with its tanh is BERT's; with dense=False the pooled vector goes straight into W.
    source: Devlin et al. 2019, "BERT", section 4.1; "last": Radford et al. 2018, section 3.2.
    """

    def __init__(
        self,
        d_model: int,
        classes: int,
        how: str = "first",
        dense: bool = True,
        dropout: float = 0.1,
        *,
        rng: np.random.Generator,
        init: Init = BERT,
    ) -> None:
        if how not in HOW:
            raise ValueError(f"how to pool is one of {', '.join(HOW)}, not {how!r}")
        self.how = how
        self.dense = Linear(d_model, d_model, rng=rng, init=init) if dense else None
        self.dropout = Dropout(dropout, rng=rng)
        self.out = Linear(d_model, classes, rng=rng, init=init)

    def forward(self, hidden: Tensor, mask: Any = None) -> Tensor:
        h = pool(hidden, mask, self.how)  # (B, d_model)
        if self.dense is not None:
            h = tanh(self.dense(h))
        logits: Tensor = self.out(self.dropout(h))  # (B, classes)
        return logits

    def extra(self) -> str:
        return f"{self.how} token" if self.how != "mean" else "mean over tokens"


class TokenLabellingHead(Module):
    """
    logits = W dropout(h) + b,   for hidden h (B, T, d_model) → (B, T, labels)

    One answer for every token (its part of speech, whether it is part of a name ...). Padding gets logits too: its
    targets are to be ignored. source: Devlin et al. 2019, "BERT", section 5.3.
    """

    def __init__(
        self, d_model: int, labels: int, dropout: float = 0.1, *, rng: np.random.Generator, init: Init = BERT
    ) -> None:
        self.dropout = Dropout(dropout, rng=rng)
        self.out = Linear(d_model, labels, rng=rng, init=init)

    def forward(self, hidden: Tensor, mask: Any = None) -> Tensor:
        logits: Tensor = self.out(self.dropout(hidden))
        return logits
