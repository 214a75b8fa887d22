"""From a configuration to parts: this is the only place that reads the configuration."""
from __future__ import annotations

import math

import numpy as np

from minitx.models.config import TransformerConfig
from minitx.models.parts import Identity, LanguageModelHead, NoSegments
from minitx.nn import (
    AlibiBias,
    BothNorm,
    ClassificationHead,
    DecoderBlock,
    Embedding,
    EncoderBlock,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    LearnedPositions,
    MaskedLanguageModelHead,
    MixtureOfExperts,
    Module,
    MultiHeadAttention,
    NoPositions,
    PatchEmbedding,
    PostNorm,
    PreNorm,
    RelativeBias,
    Residual,
    RMSNorm,
    Rotary,
    SegmentEmbedding,
    SinusoidalPositions,
    TokenLabellingHead,
)
from minitx.nn.init import Init, normal, xavier_uniform
from minitx.ops.feedforward import GATES


class Builder:
    """Each method makes one part, with weights drawn from `rng` in the order of the calls."""

    def __init__(self, config: TransformerConfig, rng: np.random.Generator) -> None:
        self.config, self.rng = config, rng
        c = config
        self.init: Init = xavier_uniform if c.init == "xavier" else normal(c.init_std)
        self.embedding_init: Init = normal(c.d_model**-0.5) if c.init == "xavier" else normal(c.init_std)
        self.residual_init: Init = self.init
        if c.scale_residual_init:
            branches = c.layers * (3 if c.architecture == "encoder-decoder" else 2)
            self.residual_init = lambda rng, shape: self.init(rng, shape) / math.sqrt(branches)
        self.rotary: Module | None = None  # one for all layers
        if c.position == "rotary":
            self.rotary = Rotary(c.head_width, c.rope_base, c.rope_dim, c.rope_interleaved, c.rope_scaling)

    # ------------------------------------------------------------------ inputs

    def embedding(self) -> Module:
        c = self.config
        if c.patch_dim is not None:
            return PatchEmbedding(c.patch_dim, c.d_model, rng=self.rng, init=self.embedding_init)
        scale = math.sqrt(c.d_model) if c.scale_embeddings else 1.0
        return Embedding(c.vocab_size, c.d_model, rng=self.rng, scale=scale, init=self.embedding_init)

    def positions(self) -> Module:
        c = self.config
        if c.position == "learned":
            return LearnedPositions(c.max_length, c.d_model, rng=self.rng, init=self.embedding_init)
        return SinusoidalPositions(c.d_model) if c.position == "sinusoidal" else NoPositions()

    def segments(self) -> Module:
        c = self.config
        if not c.segments:
            return NoSegments()
        return SegmentEmbedding(c.segments, c.d_model, rng=self.rng, init=self.embedding_init)

    def embedding_norm(self) -> Module:
        return self.norm(self.config.d_model) if self.config.embedding_norm else Identity()

    # ------------------------------------------------------------------ blocks

    def encoder(self) -> list[EncoderBlock]:
        bias = self.position_bias(bidirectional=True)
        return [
            EncoderBlock(self.attention(i, bias), self.feedforward(), self.residual) for i in range(self.config.layers)
        ]

    def decoder(self) -> list[DecoderBlock]:
        bias = self.position_bias(bidirectional=False)
        return [self.decoder_block(i, bias) for i in range(self.config.layers)]

    def decoder_block(self, layer: int, bias: Module | None) -> DecoderBlock:
        cross = self.cross_attention() if self.config.architecture == "encoder-decoder" else None
        return DecoderBlock(self.attention(layer, bias), cross, self.feedforward(), self.residual)

    def position_bias(self, bidirectional: bool) -> Module | None:
        """One for all layers of a stack: the bias depends on distances alone."""
        c = self.config
        if c.position == "alibi":
            return AlibiBias(c.heads)
        if c.position == "relative":
            return RelativeBias(
                c.heads, c.relative_buckets, c.relative_max_distance, bidirectional,
                rng=self.rng, init=self.embedding_init,
            )  # fmt: skip
        return None

    def attention(self, layer: int, bias: Module | None) -> MultiHeadAttention:
        c = self.config
        window = c.window if layer % c.window_every == 0 else None
        return self._attention(self.rotary, bias, window)

    def cross_attention(self) -> MultiHeadAttention:
        """The memory's positions are not the target's: nothing here goes by distance."""
        return self._attention(None, None, None)

    def _attention(self, rotary: Module | None, bias: Module | None, window: int | None) -> MultiHeadAttention:
        c = self.config
        return MultiHeadAttention(
            c.d_model, c.heads, c.kv_heads, c.head_dim,
            c.bias if c.attention_bias is None else c.attention_bias,
            c.dropout if c.attention_dropout is None else c.attention_dropout,
            rng=self.rng, init=self.init, residual_init=self.residual_init,
            rotary=rotary, position_bias=bias, qk_norm=self.norm if c.qk_norm else None,
            scale=c.attention_scale, softcap=c.attention_softcap, window=window, value_dim=c.value_dim,
            out_bias=c.attention_out_bias, kernel=c.attention_kernel,
        )  # fmt: skip

    def feedforward(self) -> Module:
        c = self.config
        d_ff = c.d_ff or 4 * c.d_model
        bias = c.bias if c.ff_bias is None else c.ff_bias
        p = c.dropout if c.ff_dropout is None else c.ff_dropout
        if c.experts:
            return MixtureOfExperts(
                c.d_model, d_ff, c.experts, c.experts_per_token, c.shared_experts, c.activation, bias, p,
                rng=self.rng, init=self.init, residual_init=self.residual_init,
            )  # fmt: skip
        network = GatedFeedForward if c.activation in GATES else FeedForward
        return network(
            c.d_model, d_ff, c.activation, bias, p,
            rng=self.rng, init=self.init, residual_init=self.residual_init,
        )  # fmt: skip

    # ------------------------------------------------------------------ norms

    def norm(self, width: int) -> Module:
        c = self.config
        if c.norm == "rms":
            return RMSNorm(width, c.norm_eps, c.norm_offset)
        return LayerNorm(width, c.norm_eps, c.norm_bias is not False)

    def residual(self) -> Residual:
        c = self.config
        norm = self.norm(c.d_model)
        if c.norm_placement == "both":
            return BothNorm(norm, self.norm(c.d_model), c.dropout, rng=self.rng)
        return (PreNorm if c.norm_placement == "pre" else PostNorm)(norm, c.dropout, rng=self.rng)

    def final_norm(self) -> Module:
        """Where blocks do not end with a norm, the stack does."""
        return Identity() if self.config.norm_placement == "post" else self.norm(self.config.d_model)

    # ------------------------------------------------------------------ output

    def head(self, embedding: Module) -> Module:
        """Called as head(hidden, mask): the mask says which tokens are real, for heads that pool."""
        c = self.config
        if c.head == "none":
            return Identity()
        if c.head == "classification":
            return ClassificationHead(
                c.d_model, c.classes or 0, c.pooling, c.head_dense, c.dropout, rng=self.rng, init=self.init
            )
        if c.head == "tokens":
            return TokenLabellingHead(c.d_model, c.classes or 0, c.dropout, rng=self.rng, init=self.init)
        tied = embedding if c.tie_embeddings and isinstance(embedding, Embedding) else None
        if c.head == "masked-lm":
            activation = c.activation if c.activation not in GATES else "gelu"
            return MaskedLanguageModelHead(
                c.d_model, c.vocab_size, tied, activation, c.norm_eps, rng=self.rng, init=self.init
            )
        head = LanguageModelHead(
            c.d_model, c.vocab_size, c.head_bias, c.logit_scale, c.logit_softcap, rng=self.rng, init=self.init
        )
        if tied is not None:
            head.weight = tied.weight  # one matrix reads ids and writes logits; its gradient is the sum of both
        return head
