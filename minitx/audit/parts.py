"""Every layer and block of minitx.nn, and every preset at small size: at least one use of each."""
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from minitx import masks, nn
from minitx.audit.cases.transformer import SameKey
from minitx.audit.part import Arguments, Part
from minitx.audit.reasons import NOT_IN_TORCH
from minitx.audit.small import small
from minitx.models import Transformer, parts
from minitx.models.example import example
from minitx.models.presets import PRESETS
from minitx.nn.init import normal
from minitx.nn.pooling import HOW
from minitx.ops.feedforward import ACTIVATIONS, GATES

Rng = np.random.Generator
B, T, S, D, V = 2, 5, 7, 12, 11
PADDED, SOURCE = masks.padding([3, 5]), masks.padding([7, 4])


def floats(*shapes: tuple[int, ...], **options: Any) -> Callable[[Rng], Arguments]:
    return lambda rng: (tuple(rng.standard_normal(shape) for shape in shapes), options)


def after(first: Callable[[Rng], Arguments], *more: Any) -> Callable[[Rng], Arguments]:
    def both(rng: Rng) -> Arguments:
        args, options = first(rng)
        return (*args, *more), options

    return both


def given(*args: Any, **options: Any) -> Callable[[Rng], Arguments]:
    return lambda rng: (args, options)



X = floats((B, T, D))
AT = np.array([[3, 4, 0, 1, 2], [0, 7, 100, 8, 9]])  # positions per row
IDS = np.array([[3, 1, 3, 0, 10], [2, 2, 9, 5, 4]])


def dropped(rng: Rng) -> nn.Dropout:
    layer = nn.Dropout(0.3, rng=rng)
    layer.rng = SameKey()  # type: ignore[assignment]  # drops the same elements at every call
    return layer


def mha(**options: Any) -> Callable[[Rng], nn.MultiHeadAttention]:
    made = {"kv_heads": 3, **options}
    return lambda rng: nn.MultiHeadAttention(D, 6, rng=rng, **{n: f(rng) if n in MADE else f for n, f in made.items()})


MADE = ("rotary", "position_bias")  # options that are modules, given as functions that make one
SCALED = {"type": "yarn", "factor": 4.0, "original_length": 64}


def layer(name: str, label: str, build: Any, arguments: Any, why: str = "", aux: bool = False) -> Part:
    return Part("layer", name, label, build, arguments, why, aux)


def curve(h: Any) -> Any:
    """A branch for a residual."""
    return h * h * 0.3 + h


def moe(k: int, shared: int, activation: str, bias: bool) -> Callable[[Rng], nn.MixtureOfExperts]:
    return lambda rng: nn.MixtureOfExperts(D, 7, 5, k, shared, activation, bias, rng=rng)


LAYERS = [
    layer("Linear", "", lambda r: nn.Linear(D, 7, rng=r), X),
    layer("Linear", "no bias", lambda r: nn.Linear(D, 7, bias=False, rng=r), X),
    layer("Embedding", "", lambda r: nn.Embedding(V, D, rng=r), given(IDS)),
    layer("Embedding", "scale, padding_idx", lambda r: nn.Embedding(V, D, rng=r, scale=3.0, padding_idx=7), given(IDS)),
    layer("LayerNorm", "", lambda r: nn.LayerNorm(D), X),
    layer("LayerNorm", "no bias", lambda r: nn.LayerNorm(D, 0.1, bias=False), X),
    layer("RMSNorm", "", lambda r: nn.RMSNorm(D), X),
    layer("RMSNorm", "1 + w", lambda r: nn.RMSNorm(D, offset=1.0), X),
    layer("Dropout", "", dropped, X, NOT_IN_TORCH["dropout"]),
    layer("SegmentEmbedding", "", lambda r: nn.SegmentEmbedding(3, D, rng=r), after(X, IDS % 3)),
    layer("PatchEmbedding", "", lambda r: nn.PatchEmbedding(7, D, rng=r), floats((B, T, 7))),
    layer("sinusoidal", "odd width", lambda r: nn.sinusoidal, given(AT, 7)),
    layer("SinusoidalPositions", "", lambda r: nn.SinusoidalPositions(D), after(X, AT)),
    layer("LearnedPositions", "", lambda r: nn.LearnedPositions(101, D, rng=r), after(X, AT)),
    layer("NoPositions", "", lambda r: nn.NoPositions(), after(X, AT)),
    layer("Rotary", "", lambda r: nn.Rotary(6, interleaved=True, rotary_dim=4), after(floats((B, 3, T, 6)), AT)),
    layer("Rotary", "yarn", lambda r: nn.Rotary(6, scaling=SCALED), after(floats((B, 3, T, 6)), AT),
          NOT_IN_TORCH["rotary[yarn]"]),
    layer("AlibiBias", "6 heads", lambda r: nn.AlibiBias(6), given(T, S)),
    layer("RelativeBias", "", lambda r: nn.RelativeBias(3, 8, 16, rng=r), given(T, S)),
    layer("RelativeBias", "one direction", lambda r: nn.RelativeBias(3, 8, 16, False, rng=r), given(T, S)),
    layer("MultiHeadAttention", "groups, padding", mha(), floats((B, T, D), mask=PADDED)),
    layer("MultiHeadAttention", "cross", mha(value_dim=3, bias=False), floats((B, T, D), (B, S, D), mask=SOURCE)),
    layer("MultiHeadAttention", "rotary, query and key norms, one key head",
          mha(kv_heads=1, rotary=lambda r: nn.Rotary(2), qk_norm=nn.RMSNorm), floats((B, T, D), mask=PADDED)),
    layer("MultiHeadAttention", "relative bias, window, scale",
          mha(position_bias=lambda r: nn.RelativeBias(6, 8, 16, rng=r), window=2, scale=1.0), X),
    layer("MultiHeadAttention", "tiled, softcap, ALiBi",
          mha(kernel="tiled", softcap=0.7, position_bias=lambda r: nn.AlibiBias(6)), floats((B, T, D), mask=PADDED)),
    layer("MultiHeadAttention", "linear", mha(kernel="linear", out_bias=False), floats((B, T, D), mask=PADDED)),
    *[layer("FeedForward", a, lambda r, a=a: nn.FeedForward(D, 7, a, rng=r), X) for a in ACTIVATIONS],
    *[layer("GatedFeedForward", a, lambda r, a=a: nn.GatedFeedForward(D, 7, a, rng=r), X) for a in GATES],
    layer("ExpertLinear", "", lambda r: nn.ExpertLinear(3, D, 7, True, rng=r, init=normal(0.3)),
          after(floats((T, D)), [2, 0, 3])),
    layer("MixtureOfExperts", "gated, shared, padding", moe(2, 1, "swiglu", False),
          floats((B, T, D), mask=PADDED), aux=True),
    layer("MixtureOfExperts", "one expert a token, bias", moe(1, 0, "gelu", True), X, aux=True),
    layer("PreNorm", "", lambda r: nn.PreNorm(nn.LayerNorm(D), rng=r), after(X, curve)),
    layer("PostNorm", "", lambda r: nn.PostNorm(nn.LayerNorm(D), rng=r), after(X, curve)),
    layer("BothNorm", "", lambda r: nn.BothNorm(nn.RMSNorm(D), nn.RMSNorm(D), rng=r), after(X, curve)),
    *[layer("pool", how, lambda r: nn.pool, floats((B, T, D), mask=PADDED, how=how)) for how in HOW],
    layer("MaskedLanguageModelHead", "", lambda r: nn.MaskedLanguageModelHead(D, V, rng=r), X),
    *[layer("ClassificationHead", how, lambda r, how=how: nn.ClassificationHead(D, 3, how, how != "mean", 0.0, rng=r),
            after(X, PADDED)) for how in HOW],
    layer("TokenLabellingHead", "", lambda r: nn.TokenLabellingHead(D, 3, 0.0, rng=r), X),
    layer("LanguageModelHead", "", lambda r: parts.LanguageModelHead(D, V, rng=r, init=normal(0.3)), X),
    layer("LanguageModelHead", "bias, scale, softcap",
          lambda r: parts.LanguageModelHead(D, V, True, 0.3, 0.7, rng=r, init=normal(0.3)), X),
    layer("Identity", "", lambda r: parts.Identity(), X),
    layer("NoSegments", "", lambda r: parts.NoSegments(), X),
]  # fmt: skip


# ---------------------------------------------------------------------- blocks


def encoder_block(rng: Rng) -> nn.EncoderBlock:
    network = nn.FeedForward(D, 7, "gelu", rng=rng)
    return nn.EncoderBlock(mha()(rng), network, lambda: nn.PostNorm(nn.LayerNorm(D), rng=rng))


def encoder_block_of_experts(rng: Rng) -> nn.EncoderBlock:
    return nn.EncoderBlock(mha()(rng), moe(2, 0, "swiglu", False)(rng), lambda: nn.PreNorm(nn.RMSNorm(D), rng=rng))


def decoder_block(rng: Rng) -> nn.DecoderBlock:
    network = nn.FeedForward(D, 7, "relu", rng=rng)
    return nn.DecoderBlock(mha()(rng), mha(kv_heads=6)(rng), network, lambda: nn.PostNorm(nn.LayerNorm(D), rng=rng))


def decoder_block_of_today(rng: Rng) -> nn.DecoderBlock:
    attention = mha(rotary=lambda r: nn.Rotary(2), window=3, bias=False)(rng)
    network = nn.GatedFeedForward(D, 7, rng=rng)
    return nn.DecoderBlock(
        attention, None, network, lambda: nn.BothNorm(nn.RMSNorm(D), nn.RMSNorm(D), rng=rng)
    )


BLOCKS = [
    Part("block", "EncoderBlock", "post-norm", encoder_block, floats((B, T, D), mask=PADDED)),
    Part("block", "EncoderBlock", "experts, pre-norm", encoder_block_of_experts, floats((B, T, D), mask=PADDED),
         aux=True),
    Part("block", "DecoderBlock", "cross-attention, post-norm", decoder_block,
         floats((B, T, D), (B, S, D), mask=PADDED, memory_mask=SOURCE)),
    Part("block", "DecoderBlock", "rotary, window, gated, norms on both sides", decoder_block_of_today,
         floats((B, T, D), positions=AT)),
]  # fmt: skip


# ---------------------------------------------------------------------- models


def preset(name: str) -> Part:
    """With padding, and for BERT two segments; ids of an image model are its patches."""
    config = small(name, d_ff=7, vocab_size=0 if "patch_dim" in PRESETS[name] else V)

    def arguments(rng: Rng) -> Arguments:
        inputs = example(config, B, T, rng).inputs
        options: dict[str, Any] = {"mask": PADDED}
        if config.architecture == "encoder-decoder":
            options = {"mask": masks.padding([5, 3]), "target_mask": PADDED}
        if config.segments:
            options["segments"] = rng.integers(0, config.segments, (B, T))
        return inputs, options

    return Part("model", name, config.architecture, partial(_model, config), arguments)


def _model(config: Any, rng: Rng) -> Transformer:
    return Transformer(config, rng=rng)


MODELS = [preset(name) for name in PRESETS]
PARTS = [*LAYERS, *BLOCKS, *MODELS]
