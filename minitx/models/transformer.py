"""The Transformer: embeddings, a stack or two of blocks, and a head that turns hidden vectors into scores of tokens.

`_Builder` reads the configuration; the forward passes only follow the data.
"""
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from minitx.models.config import TransformerConfig
from minitx.nn import (
    DecoderBlock,
    Dropout,
    Embedding,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    LearnedPositions,
    Linear,
    Module,
    MultiHeadAttention,
    NoPositions,
    PostNorm,
    PreNorm,
    Residual,
    SinusoidalPositions,
)
from minitx.nn.init import Init, normal, xavier_uniform
from minitx.tensor import Array, Tensor


class Output(NamedTuple):
    """What a model returns; nothing is stored on modules."""

    logits: Tensor  # (B, T, V) scores for the next token
    hidden: Tensor  # (B, T, d_model) the vectors that the head reads
    aux_losses: dict[str, Tensor]  # further terms of the loss, by name
    weights: dict[str, Array]  # with weights=True: "encoder.0.self", "decoder.0.cross", ... → (B, H, T, S)


class Transformer(Module):
    """The model of a configuration, with weights that depend on `rng` alone; dropout draws from the same generator.

    encoder-decoder: `model(ids, target_ids, mask=..., target_mask=...)`, ids (B, S) the source, target_ids (B, T) what
    the decoder reads (the target shifted right). `mask` says which source tokens are real, for the encoder and for
    cross-attention; `target_mask` the same of the target. decoder: `model(ids, mask=...)`. The causal mask is always
    added inside. `positions` (T) or (B, T) are 0 ... T-1 unless given. Returns an `Output`.
    """

    def __init__(self, config: TransformerConfig, *, rng: np.random.Generator) -> None:
        self.config, self.rng = config, rng
        build = _Builder(config, rng)
        self.embedding = build.embedding()
        self.positions = build.positions()
        self.dropout = Dropout(config.dropout, rng=rng)
        if config.architecture == "encoder-decoder":
            self.target_embedding = self.embedding if config.tie_embeddings else build.embedding()
            self.encoder = [build.encoder_block() for _ in range(config.layers)]
            self.encoder_norm = build.final_norm()
        self.decoder = [build.decoder_block() for _ in range(config.layers)]
        self.decoder_norm = build.final_norm()
        self.head = build.head(self.embedding)

    def forward(
        self,
        ids: Any,
        target_ids: Any = None,
        *,
        mask: Any = None,
        target_mask: Any = None,
        positions: Any = None,
        cache: Any = None,
        weights: bool = False,
    ) -> Output:
        if self.config.architecture == "decoder":
            if target_ids is not None:
                raise TypeError("a decoder-only model reads one sequence, model(ids); it has no place for target_ids")
            return self.decode(ids, None, mask=mask, positions=positions, cache=cache, weights=weights)
        if target_ids is None:
            raise TypeError("an encoder-decoder reads two sequences: model(ids, target_ids)")
        record: dict[str, Array] | None = {} if weights else None
        memory = self.encode(ids, mask=mask, record=record)
        out = self.decode(
            target_ids, memory, mask=target_mask, memory_mask=mask, positions=positions, cache=cache, weights=weights
        )
        return out._replace(weights={**(record or {}), **out.weights})

    def encode(self, ids: Any, *, mask: Any = None, record: dict[str, Array] | None = None) -> Tensor:
        """ids (B, S) → memory (B, S, d_model); `record` receives the attention weights."""
        ids = _as_ids(ids)
        x = self.embedding(ids)  # (B, S, d_model)
        x = self.dropout(self.positions(x, np.arange(ids.shape[1])))
        for i, block in enumerate(self.encoder):
            seen: dict[str, Array] | None = None if record is None else {}
            x = block(x, mask=mask, record=seen)
            _keep(record, f"encoder.{i}", seen)
        memory: Tensor = self.encoder_norm(x)
        return memory

    def decode(
        self,
        ids: Any,
        memory: Tensor | None = None,
        *,
        mask: Any = None,
        memory_mask: Any = None,
        positions: Any = None,
        cache: Any = None,
        weights: bool = False,
    ) -> Output:
        """ids (B, T), and for an encoder-decoder the memory (B, S, d_model) → Output.

        `cache`, where given, is a sequence with one `append(key, value)` object per layer and a `length`: the number of
        tokens that it holds.
        """
        ids = _as_ids(ids)
        embed = self.embedding if memory is None else self.target_embedding
        x = embed(ids)  # (B, T, d_model)
        if positions is None:
            positions = np.arange(ids.shape[1]) + (0 if cache is None else cache.length)
        x = self.dropout(self.positions(x, np.asarray(positions)))
        record: dict[str, Array] | None = {} if weights else None
        for i, block in enumerate(self.decoder):
            seen: dict[str, Array] | None = None if record is None else {}
            x = block(
                x, memory, mask=mask, memory_mask=memory_mask, positions=positions,
                cache=None if cache is None else cache[i], record=seen,
            )  # fmt: skip
            _keep(record, f"decoder.{i}", seen)
        hidden = self.decoder_norm(x)
        return Output(self.head(hidden), hidden, {}, record or {})


class Identity(Module):
    """y = x: stands where a configuration has nothing, so that a forward pass needs no question."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class _Builder:
    """Reads the configuration, and is the only place that does: each method makes one part."""

    def __init__(self, config: TransformerConfig, rng: np.random.Generator) -> None:
        self.config, self.rng = config, rng
        c = config
        self.init: Init = xavier_uniform if c.init == "xavier" else normal(c.init_std)
        self.embedding_init: Init = normal(c.d_model**-0.5) if c.init == "xavier" else normal(c.init_std)
        self.residual_init: Init = self.init
        if c.scale_residual_init:
            branches = c.layers * (2 if c.architecture == "decoder" else 3)
            self.residual_init = lambda rng, shape: self.init(rng, shape) / math.sqrt(branches)

    def embedding(self) -> Embedding:
        c = self.config
        scale = math.sqrt(c.d_model) if c.scale_embeddings else 1.0
        return Embedding(c.vocab_size, c.d_model, rng=self.rng, scale=scale, init=self.embedding_init)

    def positions(self) -> Module:
        c = self.config
        if c.position == "learned":
            return LearnedPositions(c.max_length, c.d_model, rng=self.rng, init=self.embedding_init)
        return SinusoidalPositions(c.d_model) if c.position == "sinusoidal" else NoPositions()

    def norm(self) -> Module:
        return LayerNorm(self.config.d_model, self.config.norm_eps)

    def residual(self) -> Residual:
        kind = PreNorm if self.config.norm_placement == "pre" else PostNorm
        return kind(self.norm(), self.config.dropout, rng=self.rng)

    def final_norm(self) -> Module:
        return self.norm() if self.config.norm_placement == "pre" else Identity()

    def attention(self) -> MultiHeadAttention:
        c = self.config
        p = c.dropout if c.attention_dropout is None else c.attention_dropout
        return MultiHeadAttention(
            c.d_model, c.heads, c.kv_heads, c.head_dim, c.bias, p,
            rng=self.rng, init=self.init, residual_init=self.residual_init,
        )  # fmt: skip

    def feedforward(self) -> FeedForward:
        c = self.config
        p = c.dropout if c.ff_dropout is None else c.ff_dropout
        return FeedForward(
            c.d_model, c.d_ff or 4 * c.d_model, c.activation, c.bias, p,
            rng=self.rng, init=self.init, residual_init=self.residual_init,
        )  # fmt: skip

    def encoder_block(self) -> EncoderBlock:
        return EncoderBlock(self.attention(), self.feedforward(), self.residual)

    def decoder_block(self) -> DecoderBlock:
        cross = self.attention() if self.config.architecture == "encoder-decoder" else None
        return DecoderBlock(self.attention(), cross, self.feedforward(), self.residual)

    def head(self, embedding: Embedding) -> Linear:
        c = self.config
        head = Linear(c.d_model, c.vocab_size, c.head_bias, rng=self.rng, init=self.init)
        if c.tie_embeddings:
            head.weight = embedding.weight  # one matrix reads ids and writes logits; its gradient is the sum of both
        return head


def _as_ids(given: Any) -> Array:
    ids: Array = np.asarray(given)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"ids are integers of shape (batch, length), not {ids.dtype} of shape {ids.shape}")
    return ids


def _keep(record: dict[str, Array] | None, block: str, seen: dict[str, Array] | None) -> None:
    if record is not None and seen is not None:
        record.update({f"{block}.{name}": w for name, w in seen.items()})
