"""What a Transformer is made of, as plain data: one flat, checked record."""
from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from minitx.nn.feedforward import ACTIVATIONS

CHOICES: dict[str, tuple[str, ...]] = {
    "architecture": ("encoder-decoder", "decoder"),
    "norm": ("layer",),
    "norm_placement": ("pre", "post"),
    "activation": tuple(ACTIVATIONS),
    "position": ("sinusoidal", "learned", "none"),
    "init": ("xavier", "normal"),
}


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
    """The architecture. Everything that changes what the weights mean is here, and nothing else.

    `layers` counts the blocks of each stack; `d_ff`, `kv_heads`, `head_dim` follow from the rest where they are None.
    `dropout` is applied to the embeddings and to each residual branch; `attention_dropout` (to the weights) and
    `ff_dropout` (inside the feed-forward) are places of their own and equal `dropout` where they are None.
    `init` "xavier": every weight matrix Glorot uniform, embeddings N(0, 1/d_model); "normal": all N(0, init_std²), and
    with `scale_residual_init` the last matrix of each residual branch divided by √(number of branches) (GPT-2).
    """

    architecture: str = "encoder-decoder"
    layers: int = 2
    d_model: int = 64
    heads: int = 4
    kv_heads: int | None = None
    head_dim: int | None = None
    d_ff: int | None = None
    vocab_size: int = 32
    max_length: int = 512
    dropout: float = 0.1
    attention_dropout: float | None = None
    ff_dropout: float | None = None
    tie_embeddings: bool = True
    scale_embeddings: bool = True
    norm: str = "layer"
    norm_placement: str = "post"
    norm_eps: float = 1e-5
    activation: str = "relu"
    position: str = "sinusoidal"
    bias: bool = True
    head_bias: bool = False
    init: str = "xavier"
    init_std: float = 0.02
    scale_residual_init: bool = False

    @classmethod
    def original(cls, **changes: Any) -> TransformerConfig:
        """The base model of Vaswani et al. 2017, table 3 (encoder-decoder, post-norm, sinusoidal, ReLU, tied)."""
        base: dict[str, Any] = {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "vocab_size": 37000}
        return cls._preset(base, changes)

    @classmethod
    def gpt2(cls, **changes: Any) -> TransformerConfig:
        """GPT-2 small of Radford et al. 2019 (decoder, pre-norm, learned positions, GELU in its tanh form, tied)."""
        base: dict[str, Any] = {
            "architecture": "decoder", "layers": 12, "d_model": 768, "heads": 12, "vocab_size": 50257,
            "max_length": 1024, "norm_placement": "pre",
            "activation": "gelu_tanh", "position": "learned", "scale_embeddings": False,
            "init": "normal", "scale_residual_init": True,
        }  # fmt: skip
        return cls._preset(base, changes)

    @classmethod
    def _preset(cls, base: dict[str, Any], changes: dict[str, Any]) -> TransformerConfig:
        if "d_model" in changes or "d_ff" in changes:
            base.pop("d_ff", None)  # a scaled-down model keeps the ratio d_ff = 4 d_model
        return cls.from_dict(base | changes)

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

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                close = difflib.get_close_matches(str(value), allowed, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise ValueError(f"{name} is one of {', '.join(allowed)}, not {value!r}{hint}")
        for name in ("layers", "d_model", "heads", "kv_heads", "head_dim", "d_ff", "vocab_size", "max_length"):
            value = getattr(self, name)
            if value is None and name in ("kv_heads", "head_dim", "d_ff"):
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is a whole number, at least 1, not {value!r}")
        for name in ("dropout", "attention_dropout", "ff_dropout"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 <= value < 1):
                raise ValueError(f"{name} is a probability, 0 <= p < 1, not {value!r}")
        for name in ("norm_eps", "init_std"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"{name} is a positive number, not {value!r}")
        for name in ("tie_embeddings", "scale_embeddings", "bias", "head_bias", "scale_residual_init"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is true or false, not {getattr(self, name)!r}")
        if self.head_dim is None and self.d_model % self.heads:
            raise ValueError(
                f"heads divides d_model unless head_dim is given: {self.heads} heads, d_model {self.d_model}"
            )
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(
                f"kv_heads divides heads, each serving as many queries: {self.heads} heads, {self.kv_heads} kv_heads"
            )
