"""Published models as values of the configuration's fields: nothing here that a configuration could not say itself.

Sizes are the published ones; `values` scales them down in proportion to what is asked for. Initial weights are GPT-2's
where a paper does not give its own.
"""
from __future__ import annotations

import difflib
from typing import Any

GPT = {
    "architecture": "decoder", "norm_placement": "pre", "scale_embeddings": False,
    "init": "normal", "scale_residual_init": True,
}  # fmt: skip
LLAMA = {
    **GPT, "norm": "rms", "position": "rotary", "activation": "swiglu", "bias": False, "tie_embeddings": False,
    "dropout": 0.0,
}  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    # Vaswani et al. 2017, "Attention is all you need", table 3, base.
    "original": {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "vocab_size": 37000},
    # Devlin et al. 2019, "BERT", section 3, base; the published code for epsilon and the initialisation.
    "bert": {
        "architecture": "encoder", "head": "masked-lm", "layers": 12, "d_model": 768, "heads": 12, "vocab_size": 30522,
        "max_length": 512, "segments": 2, "position": "learned", "embedding_norm": True, "activation": "gelu",
        "norm_eps": 1e-12, "scale_embeddings": False, "init": "normal",
    },
    # Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3, the smallest model.
    "gpt2": {
        **GPT, "layers": 12, "d_model": 768, "heads": 12, "vocab_size": 50257, "max_length": 1024,
        "activation": "gelu_tanh", "position": "learned",
    },
    # Raffel et al. 2020, "Exploring the limits of transfer learning", section 2.1, base; the published code for the
    # scales: none in attention, 1/√d_model on the logits. (The initial weights are Glorot's here, not T5's own.)
    "t5": {
        "layers": 12, "d_model": 768, "heads": 12, "vocab_size": 32128, "norm": "rms", "norm_placement": "pre",
        "norm_eps": 1e-6, "bias": False, "position": "relative", "scale_embeddings": False, "attention_scale": 1.0,
        "logit_scale": 768**-0.5,
    },
    # Dubey et al. 2024, "The Llama 3 herd of models", table 3, 8B; the published weights for the vocabulary.
    "llama": {
        **LLAMA, "layers": 32, "d_model": 4096, "heads": 32, "kv_heads": 8, "d_ff": 14336, "vocab_size": 128256,
        "max_length": 8192, "rope_base": 500000.0,
    },
    # Jiang et al. 2023, "Mistral 7B", table 1.
    "mistral": {
        **LLAMA, "layers": 32, "d_model": 4096, "heads": 32, "kv_heads": 8, "d_ff": 14336, "vocab_size": 32000,
        "max_length": 8192, "window": 4096,
    },
    # Jiang et al. 2024, "Mixtral of experts", table 1; the published weights for the base.
    "mixtral": {
        **LLAMA, "layers": 32, "d_model": 4096, "heads": 32, "kv_heads": 8, "d_ff": 14336, "vocab_size": 32000,
        "max_length": 32768, "rope_base": 1000000.0, "experts": 8, "experts_per_token": 2,
    },
    # Gemma Team 2024, "Gemma 2", table 1 and section 2, 2B (its "feedforward dim" counts gate and up together).
    "gemma2": {
        **LLAMA, "layers": 26, "d_model": 2304, "heads": 8, "kv_heads": 4, "head_dim": 256, "d_ff": 9216,
        "vocab_size": 256128, "max_length": 8192, "norm_eps": 1e-6, "norm_offset": 1.0, "norm_placement": "both",
        "activation": "geglu_tanh", "tie_embeddings": True, "scale_embeddings": True, "window": 4096,
        "window_every": 2, "attention_softcap": 50.0, "logit_softcap": 30.0,
    },
    # MosaicML 2023, "Introducing MPT-7B", and the configuration published with its weights; ALiBi: Press et al. 2022.
    "mpt": {
        **GPT, "layers": 32, "d_model": 4096, "heads": 32, "vocab_size": 50432, "max_length": 2048, "position": "alibi",
        "activation": "gelu", "bias": False, "norm_bias": False, "dropout": 0.0,
    },
    # Dosovitskiy et al. 2021, "An image is worth 16x16 words", table 1, Base; 224 x 224 pixels in 16 x 16 ones.
    "vit": {
        "architecture": "encoder", "head": "classification", "classes": 1000, "head_dense": False, "layers": 12,
        "d_model": 768, "heads": 12, "patch_dim": 16 * 16 * 3, "vocab_size": 0, "max_length": 14 * 14 + 1,
        "tie_embeddings": False, "scale_embeddings": False, "position": "learned", "norm_placement": "pre",
        "norm_eps": 1e-6, "activation": "gelu", "init": "normal",
    },
}  # fmt: skip

# Where one of these changes, what a preset says about the others may no longer be meant, and is left to its default.
BELONG = {
    "position": ("rope_base", "rope_dim", "rope_interleaved", "rope_scaling", "relative_buckets"),
    "norm": ("norm_offset", "norm_bias"),
    "head": ("classes", "head_dense", "pooling"),
    "experts": ("experts_per_token", "shared_experts"),
}


def values(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The fields of a preset with changes. What depends on a size that changed keeps its proportion to it.

    d_ff follows d_model, kv_heads the heads (as the largest divisor that is not above the proportion), head_dim both,
    the window max_length, and the scale of T5's logits d_model. Anything given in `changes` is taken as it is.

    >>> values("llama", {"d_model": 64, "heads": 8})["kv_heads"]
    2
    """
    if name not in PRESETS:
        close = difflib.get_close_matches(name, PRESETS, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"a preset is one of {', '.join(PRESETS)}, not {name!r}{hint}")
    base = PRESETS[name]
    scaled = {**base, **changes}
    for owner, fields in BELONG.items():
        if owner in changes and changes[owner] != base.get(owner):
            for field in fields:
                if field not in changes:
                    scaled.pop(field, None)
    if "d_model" in changes or "heads" in changes:
        scaled.update({"head_dim": None} if "head_dim" in base and "head_dim" not in changes else {})
    if "d_model" in changes and _whole(changes["d_model"]):
        if "d_ff" not in changes and "d_ff" in base:
            exact = 4 * base["d_model"] == base["d_ff"]  # then d_ff may go on following d_model
            scaled["d_ff"] = None if exact else max(1, base["d_ff"] * changes["d_model"] // base["d_model"])
        if "logit_scale" not in changes and "logit_scale" in base:
            scaled["logit_scale"] = changes["d_model"] ** -0.5
    if "heads" in changes and "kv_heads" not in changes and "kv_heads" in base and _whole(changes["heads"]):
        heads = changes["heads"]
        most = max(1, heads * base["kv_heads"] // base["heads"])
        scaled["kv_heads"] = next(n for n in range(most, 0, -1) if heads % n == 0)
    if "max_length" in changes and "window" not in changes and "window" in base and _whole(changes["max_length"]):
        scaled["window"] = max(1, base["window"] * changes["max_length"] // base["max_length"])
    return scaled


def _whole(value: Any) -> bool:
    """Anything else is for the rules to refuse."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
