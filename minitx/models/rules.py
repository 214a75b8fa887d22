"""What a configuration may say: every combination that cannot be built is refused, with its field, the rule, and a fix.

A setting that would be ignored is refused too: one that is read and never applied would show only in the results.
"""
from __future__ import annotations

import difflib
import math
from typing import TYPE_CHECKING, Any

from minitx.nn.attention import KERNELS
from minitx.nn.pooling import HOW
from minitx.nn.rotary import Rotary
from minitx.ops.feedforward import ACTIVATIONS, GATES
from minitx.ops.position_bias import relative_buckets

if TYPE_CHECKING:
    from minitx.models.config import TransformerConfig

CHOICES: dict[str, tuple[str, ...]] = {
    "architecture": ("encoder-decoder", "decoder", "encoder"),
    "norm": ("layer", "rms"),
    "norm_placement": ("pre", "post", "both"),
    "activation": (*ACTIVATIONS, *GATES),
    "position": ("sinusoidal", "learned", "rotary", "alibi", "relative", "none"),
    "attention_kernel": tuple(KERNELS),
    "head": ("language-model", "masked-lm", "classification", "tokens", "none"),
    "pooling": HOW,
    "init": ("xavier", "normal"),
}
COUNTS = (
    "layers", "d_model", "heads", "kv_heads", "head_dim", "value_dim", "d_ff", "max_length", "window", "window_every",
    "experts_per_token", "classes", "patch_dim", "rope_dim", "relative_buckets", "relative_max_distance",
)  # fmt: skip
COUNTS_FROM_0 = ("vocab_size", "experts", "shared_experts", "segments")
PROBABILITIES = ("dropout", "attention_dropout", "ff_dropout")
POSITIVE = (
    "norm_eps", "init_std", "attention_scale", "attention_softcap", "logit_scale", "logit_softcap", "rope_base",
)  # fmt: skip
SWITCHES = (
    "tie_embeddings", "scale_embeddings", "embedding_norm", "bias", "head_bias", "head_dense", "attention_bias",
    "attention_out_bias", "ff_bias", "norm_bias", "qk_norm", "rope_interleaved", "scale_residual_init",
)  # fmt: skip

# field → (the field that it belongs to, the values of that one with which it means something); elsewhere its default
BELONGS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "rope_base": ("position", ("rotary",)),
    "rope_dim": ("position", ("rotary",)),
    "rope_interleaved": ("position", ("rotary",)),
    "rope_scaling": ("position", ("rotary",)),
    "relative_buckets": ("position", ("relative",)),
    "relative_max_distance": ("position", ("relative",)),
    "norm_offset": ("norm", ("rms",)),
    "classes": ("head", ("classification", "tokens")),
    "pooling": ("head", ("classification",)),
    "head_dense": ("head", ("classification",)),
    "head_bias": ("head", ("language-model",)),
    "logit_scale": ("head", ("language-model",)),
    "logit_softcap": ("head", ("language-model",)),
    "window": ("architecture", ("decoder",)),
    "segments": ("architecture", ("decoder", "encoder")),
    "embedding_norm": ("architecture", ("decoder", "encoder")),
    "patch_dim": ("architecture", ("encoder",)),
}
HEADS = {  # architecture → the heads that it can have
    "encoder-decoder": ("language-model", "none"),
    "decoder": ("language-model", "classification", "tokens", "none"),
    "encoder": ("masked-lm", "classification", "tokens", "none"),
}


def check(c: TransformerConfig) -> None:
    """Raises ValueError, naming the field, the rule and what to change."""
    _one_by_one(c)
    _what_belongs_together(c)
    _attention(c)
    _positions(c)
    _inputs_and_output(c)
    if c.norm == "rms" and c.norm_bias:
        raise ValueError("norm_bias: an RMSNorm has no bias; leave norm_bias out or choose norm='layer'")
    if c.experts and c.experts_per_token > c.experts:
        raise ValueError(
            f"experts_per_token is at most experts: {c.experts_per_token} of {c.experts}; raise experts or lower it"
        )
    if not c.experts and (c.shared_experts or c.experts_per_token != 2):
        raise ValueError("experts_per_token and shared_experts belong to a mixture: set experts, or leave them out")


def without_effect(c: TransformerConfig) -> list[str]:
    """The fields whose defaults have nothing to act on in this configuration (false and 0 say so themselves)."""
    owned = [name for name, (owner, allowed) in BELONGS.items() if getattr(c, owner) not in allowed]
    names = [name for name in owned if _default(c, name) not in (False, 0)]
    names += [] if c.experts else ["experts_per_token"]
    names += [] if c.window is not None else ["window_every"]
    names += [] if c.init == "normal" else ["init_std"]
    return names


def _default(c: TransformerConfig, name: str) -> Any:
    return type(c).__dataclass_fields__[name].default


def _one_by_one(c: TransformerConfig) -> None:
    optional = {name for name, field in type(c).__dataclass_fields__.items() if "None" in str(field.type)}

    def given(names: tuple[str, ...]) -> list[tuple[str, Any]]:
        return [(n, v) for n in names if (v := getattr(c, n)) is not None or n not in optional]

    for name, allowed in CHOICES.items():
        if (value := getattr(c, name)) not in allowed:
            close = difflib.get_close_matches(str(value), allowed, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"{name} is one of {', '.join(allowed)}, not {value!r}{hint}")
    for names, least in ((COUNTS, 1), (COUNTS_FROM_0, 0)):
        for name, value in given(names):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is a whole number, at least {least}, not {value!r}")
    for name, value in given(PROBABILITIES):
        if isinstance(value, bool) or not (isinstance(value, int | float) and 0 <= value < 1):
            raise ValueError(f"{name} is a probability, 0 <= p < 1, not {value!r}")
    for name, value in given(POSITIVE):
        if isinstance(value, bool) or not (isinstance(value, int | float) and 0 < value < math.inf):
            raise ValueError(f"{name} is a positive number, not {value!r}")
    for name, value in given(SWITCHES):
        if not isinstance(value, bool):
            raise ValueError(f"{name} is true or false, not {value!r}")
    if isinstance(c.norm_offset, bool) or c.norm_offset not in (0, 1):
        raise ValueError(f"norm_offset is 0 (the gain is w) or 1 (the gain is 1 + w), not {c.norm_offset!r}")


def _what_belongs_together(c: TransformerConfig) -> None:
    for name, (owner, allowed) in BELONGS.items():
        value, of = getattr(c, name), getattr(c, owner)
        if value != _default(c, name) and of not in allowed:
            raise ValueError(
                f"{name} belongs to {owner} {' or '.join(map(repr, allowed))}, and {owner} is {of!r}: it would be "
                f"ignored, so leave {name} out or change {owner}"
            )
    if c.window is None and c.window_every != 1:
        raise ValueError(f"window_every {c.window_every} says which layers have a window: set window, or 1")


def _attention(c: TransformerConfig) -> None:
    if c.head_dim is None and c.d_model % c.heads:
        raise ValueError(f"heads divides d_model unless head_dim is given: {c.heads} heads, d_model {c.d_model}")
    if c.heads % (c.kv_heads or c.heads):
        raise ValueError(
            f"kv_heads divides heads, each serving as many queries: {c.heads} heads, {c.kv_heads} kv_heads"
        )
    if c.attention_kernel != "linear":
        return
    dropout = c.dropout if c.attention_dropout is None else c.attention_dropout
    on_scores = {
        "attention_scale": c.attention_scale, "attention_softcap": c.attention_softcap, "window": c.window,
        "attention_dropout": dropout or None, "position": c.position if c.position in ("alibi", "relative") else None,
    }  # fmt: skip
    for name, value in on_scores.items():
        if value is not None:
            raise ValueError(
                f"{name} {value!r} acts on attention's scores, and attention_kernel 'linear' never has them: leave it "
                f"out{' (set it to 0)' if name == 'attention_dropout' else ''} or choose 'textbook' or 'tiled'"
            )


def _positions(c: TransformerConfig) -> None:
    if c.position == "rotary":
        width, name = (c.head_width, "head_dim") if c.rope_dim is None else (c.rope_dim, "rope_dim")
        if width % 2:
            raise ValueError(
                f"{name} is even with position 'rotary', features turn in pairs, not {width}; "
                "change it (or d_model and heads), or give an even rope_dim"
            )
        if c.rope_dim is not None and c.rope_dim > c.head_width:
            raise ValueError(f"rope_dim is at most head_dim, {c.head_width}, not {c.rope_dim}")
        field = "rope_base" if c.rope_scaling is None else "rope_scaling"
        try:
            Rotary(c.head_width, c.rope_base, c.rope_dim, c.rope_interleaved, c.rope_scaling)
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from None
    if c.position == "relative":
        for both_ways in {"encoder": [True], "decoder": [False]}.get(c.architecture, [True, False]):
            try:
                relative_buckets(0, c.relative_buckets, c.relative_max_distance, both_ways)
            except ValueError as error:
                raise ValueError(f"relative_buckets, relative_max_distance: {error}") from None


def _inputs_and_output(c: TransformerConfig) -> None:
    if c.head not in HEADS[c.architecture]:
        raise ValueError(
            f"head of an architecture {c.architecture!r} is one of {', '.join(HEADS[c.architecture])}, not {c.head!r}"
            f"{'; a bidirectional stack has seen the token that comes next' if c.head == 'language-model' else ''}"
        )
    if c.head in ("classification", "tokens") and c.classes is None:
        raise ValueError(f"classes: a head {c.head!r} has to know how many there are; give classes")
    if c.patch_dim is None and c.vocab_size == 0:
        raise ValueError(f"vocab_size: {c.architecture!r} reads token ids and needs a vocabulary; give vocab_size >= 1")
    if c.patch_dim is not None:
        for name in ("vocab_size", "segments", "tie_embeddings", "scale_embeddings"):
            if value := getattr(c, name):
                raise ValueError(
                    f"{name} {value!r} is about tokens, and with patch_dim the inputs are patches: "
                    f"set {name} to {'false' if value is True else 0}, or leave patch_dim out"
                )
        if c.head == "masked-lm":
            raise ValueError("head 'masked-lm' names tokens, and with patch_dim there are none; choose another head")
