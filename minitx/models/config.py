"""What a Transformer is made of, as plain data: one flat, checked record."""
from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from minitx.models import presets, rules


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The architecture. Everything that changes what the weights mean is here, and nothing else.

    Whatever cannot be built is refused when the record is made (models/rules.py). A field that is None follows from
    others, as the comment beside it says, or is a part that is absent.
    """

    architecture: str = "encoder-decoder"  # encoder-decoder, decoder, encoder
    layers: int = 2  # blocks of each stack
    d_model: int = 64

    # attention
    heads: int = 4
    kv_heads: int | None = None  # heads
    head_dim: int | None = None  # d_model / heads
    value_dim: int | None = None  # head_dim
    attention_kernel: str = "textbook"  # textbook, tiled (the same function), linear (an approximation)
    window: int | None = None  # keys that a query sees, itself and those before it; all
    window_every: int = 1  # 1: every layer has the window; 2: layers 0, 2, 4, ... have it and the others see all
    qk_norm: bool = False  # queries and keys are normalised head by head, before they turn
    attention_scale: float | None = None  # 1 / √head_dim
    attention_softcap: float | None = None
    attention_bias: bool | None = None  # of queries, keys and values; bias
    attention_out_bias: bool | None = None  # of what goes back to the residual stream; attention_bias

    # feed-forward
    d_ff: int | None = None  # 4 d_model
    activation: str = "relu"  # or a gate: glu, reglu, geglu, geglu_tanh, swiglu
    ff_bias: bool | None = None  # bias
    experts: int = 0  # 0: one network; else so many, of which a token uses experts_per_token
    experts_per_token: int = 2
    shared_experts: int = 0  # further ones, which every token uses

    # inputs and output
    vocab_size: int = 32  # 0 where the inputs are patches
    max_length: int = 512  # the trained length
    tie_embeddings: bool = True
    scale_embeddings: bool = True  # by √d_model
    embedding_norm: bool = False  # after token, position and segment are added
    segments: int = 0  # kinds of segment (token type)
    patch_dim: int | None = None  # inputs are patches with so many numbers, after a learned CLS vector, and not ids
    head: str = "language-model"  # masked-lm, classification, tokens; none: logits are the hidden vectors
    head_bias: bool = False  # of the language-model head
    head_dense: bool = True  # a layer with tanh between pooling and classes
    classes: int | None = None  # of a classification (one answer a row) or tokens head (one a token)
    pooling: str = "first"  # first, mean, last: what a classification reads
    logit_scale: float | None = None  # 1
    logit_softcap: float | None = None

    # positions
    position: str = "sinusoidal"  # learned, rotary, alibi, relative, none
    rope_base: float = 10000.0
    rope_dim: int | None = None  # head_dim
    rope_interleaved: bool = False
    rope_scaling: dict[str, Any] | None = dataclasses.field(default=None, hash=False)  # see ops/rotary_scaling.py
    relative_buckets: int = 32
    relative_max_distance: int = 128

    # normalisation
    norm: str = "layer"  # layer, rms
    norm_placement: str = "post"  # pre, post, both
    norm_eps: float = 1e-5
    norm_bias: bool | None = None  # a LayerNorm has one
    norm_offset: float = 0.0  # the gain of an RMSNorm is norm_offset + w

    bias: bool = True  # of linear layers, where nothing above says otherwise

    # dropout: of embeddings and residual branches; of the weights of attention; inside the feed-forward
    dropout: float = 0.1
    attention_dropout: float | None = None  # dropout
    ff_dropout: float | None = None  # dropout

    # Initial weights. "xavier": every matrix Glorot uniform, embeddings N(0, 1/d_model); "normal": all N(0, init_std²).
    # scale_residual_init: the last matrix of each residual branch is divided by √(number of branches), as in GPT-2.
    init: str = "xavier"
    init_std: float = 0.02
    scale_residual_init: bool = False

    def __post_init__(self) -> None:
        rules.check(self)

    # ------------------------------------------------------------------ what follows from the fields

    @property
    def head_width(self) -> int:
        """head_dim as a number."""
        return self.d_model // self.heads if self.head_dim is None else self.head_dim

    def resolved(self) -> dict[str, Any]:
        """All fields as they act: numbers where None follows from others, None where a field has nothing to act on."""
        values = self.to_dict()

        def follow(name: str, value: Any) -> None:
            if values[name] is None:
                values[name] = value

        follow("kv_heads", self.heads)
        follow("head_dim", self.head_width)
        follow("value_dim", values["head_dim"])
        follow("attention_scale", values["head_dim"] ** -0.5)
        follow("attention_bias", self.bias)
        follow("attention_out_bias", values["attention_bias"])
        follow("d_ff", 4 * self.d_model)
        follow("ff_bias", self.bias)
        follow("norm_bias", self.norm == "layer")
        follow("logit_scale", 1.0)
        follow("attention_dropout", self.dropout)
        follow("ff_dropout", self.dropout)
        follow("rope_dim", values["head_dim"])
        return values | dict.fromkeys(rules.without_effect(self))

    # ------------------------------------------------------------------ as plain data

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TransformerConfig:
        """Raises ValueError for an unknown key (naming the nearest right one) or a value that cannot be built."""
        known = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in known:
                close = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"the keys are {', '.join(known)}"
                raise ValueError(f"the model configuration has no key {key!r}: {hint}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def replace(self, **changes: Any) -> TransformerConfig:
        return self.from_dict(self.to_dict() | changes)

    # ------------------------------------------------------------------ presets: models/presets.py has their values

    @classmethod
    def original(cls, **changes: Any) -> TransformerConfig:
        """The base model of Vaswani et al. 2017 (encoder-decoder, post-norm, sinusoidal, ReLU, tied)."""
        return cls.from_dict(presets.values("original", changes))

    @classmethod
    def bert(cls, **changes: Any) -> TransformerConfig:
        """BERT base of Devlin et al. 2019 (encoder, masked tokens, segments)."""
        return cls.from_dict(presets.values("bert", changes))

    @classmethod
    def gpt2(cls, **changes: Any) -> TransformerConfig:
        """GPT-2 small of Radford et al. 2019 (decoder, pre-norm, learned positions, GELU in its tanh form, tied)."""
        return cls.from_dict(presets.values("gpt2", changes))

    @classmethod
    def t5(cls, **changes: Any) -> TransformerConfig:
        """T5 base of Raffel et al. 2020 (encoder-decoder, relative bias, RMSNorm, no biases)."""
        return cls.from_dict(presets.values("t5", changes))

    @classmethod
    def llama(cls, **changes: Any) -> TransformerConfig:
        """Llama 3 8B of Dubey et al. 2024 (decoder, pre-RMSNorm, RoPE, grouped heads, SwiGLU)."""
        return cls.from_dict(presets.values("llama", changes))

    @classmethod
    def mistral(cls, **changes: Any) -> TransformerConfig:
        """Mistral 7B of Jiang et al. 2023 (as llama, with a window)."""
        return cls.from_dict(presets.values("mistral", changes))

    @classmethod
    def mixtral(cls, **changes: Any) -> TransformerConfig:
        """Mixtral 8x7B of Jiang et al. 2024 (as llama, with a mixture of experts)."""
        return cls.from_dict(presets.values("mixtral", changes))

    @classmethod
    def gemma2(cls, **changes: Any) -> TransformerConfig:
        """Gemma 2 2B of the Gemma Team 2024 (norms on both sides, soft caps, GEGLU, a window in every other layer)."""
        return cls.from_dict(presets.values("gemma2", changes))

    @classmethod
    def mpt(cls, **changes: Any) -> TransformerConfig:
        """MPT-7B of MosaicML 2023 (decoder, ALiBi, no biases at all)."""
        return cls.from_dict(presets.values("mpt", changes))

    @classmethod
    def vit(cls, **changes: Any) -> TransformerConfig:
        """ViT-B/16 of Dosovitskiy et al. 2021 (encoder of image patches, classification)."""
        return cls.from_dict(presets.values("vit", changes))
