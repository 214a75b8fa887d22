"""Costs: the course's figures, rules by hand, and counts of what really ran over many configurations."""
import numpy as np
import pytest
from counting import count

from minitx.models import Transformer, TransformerConfig
from minitx.models.cost import Cost, Flops, cache_elements, flops, overtakes, pairs, score_elements
from minitx.models.example import example
from minitx.models.shapes import parameter_shapes
from minitx.ops import cross_entropy

SMALL = {"layers": 3, "d_model": 12, "heads": 6, "d_ff": 20, "vocab_size": 11, "max_length": 16, "dropout": 0.0}


def test_figure_of_the_course_scores():
    config = TransformerConfig.original()
    assert config.heads == 8
    assert score_elements(config, 1, 4096) == 134_217_728
    assert Cost(config, 1, 4096, "fp16").memory["attention scores, one layer"] == 256 * 2**20


def test_figure_of_the_course_cache():
    config = TransformerConfig.llama()
    assert (config.layers, config.kv_heads, config.head_width) == (32, 8, 128)
    assert cache_elements(config, 1, 8192) == 2 * 32 * 8192 * 8 * 128
    assert Cost(config, 1, 8192, "fp16").memory["KV cache"] == 2**30


def test_pairs_by_hand():
    assert pairs(4, causal=False) == 16
    assert pairs(4, causal=True) == 1 + 2 + 3 + 4
    assert pairs(5, True, window=2) == 1 + 2 + 2 + 2 + 2
    assert pairs(3, True, window=7) == 6


def test_one_layer_by_hand():
    config = TransformerConfig(
        architecture="decoder", layers=1, d_model=4, heads=2, kv_heads=1, d_ff=10, vocab_size=7, max_length=8
    )
    found = flops(config, 1, 3)
    assert found["attention projections"].forward == 2 * 3 * 4 * (4 + 2 + 2 + 4)
    assert found["attention pairs"].forward == 2 * 6 * 2 * (2 + 2)
    assert found["feed-forward"].forward == 2 * 2 * 3 * 4 * 10
    assert found["head"] == (2 * 3 * 4 * 7, 2 * 2 * 3 * 4 * 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "decoder", "kv_heads": 2, "head_dim": 4, "value_dim": 3, "bias": False},
        {"architecture": "decoder", "window": 3, "window_every": 2, "attention_kernel": "tiled"},
        {"architecture": "decoder", "attention_kernel": "linear", "norm_placement": "both", "norm": "rms"},
        {"architecture": "decoder", "position": "rotary", "qk_norm": True, "kv_heads": 3, "tie_embeddings": False},
        {"architecture": "decoder", "experts": 5, "experts_per_token": 3, "shared_experts": 2, "activation": "glu"},
        {"architecture": "decoder", "experts": 3, "experts_per_token": 1, "ff_bias": False, "segments": 2},
        {"architecture": "decoder", "head": "classification", "classes": 5, "pooling": "last", "norm_bias": False},
        {"architecture": "encoder", "head": "tokens", "classes": 5, "position": "relative", "embedding_norm": True},
        {"architecture": "encoder", "head": "masked-lm", "tie_embeddings": False, "attention_bias": False},
        {"architecture": "encoder", "head": "none", "position": "alibi", "attention_out_bias": False},
        {"tie_embeddings": False, "position": "relative", "head_bias": True, "norm_placement": "pre"},
        {"attention_kernel": "linear", "kv_heads": 3, "position": "learned", "logit_softcap": 5.0, "logit_scale": 0.5},
    ],
    ids=lambda changes: " ".join(list(changes)[:3]),
)
def test_equal_to_what_really_ran(changes):
    config = TransformerConfig(**SMALL | changes)
    model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)
    assert list(parameter_shapes(config).items()) == [(n, p.shape) for n, p in model.named_parameters()]
    inputs, targets = example(config, 2, 7, np.random.default_rng(1))
    counted = count(lambda: cross_entropy(model(*inputs).logits, targets))
    assert sum(flops(config, 2, 7).values(), Flops(0, 0)) == (counted.forward_total, counted.backward_total)


def test_overtaking_is_the_first_such_length():
    config = TransformerConfig.gpt2()
    assert overtakes(config) == 3072  # 4 T d² + T(T+1) d > 8 T d², in multiply-adds: T + 1 > 4 d
    assert overtakes(config, with_projections=False) == 6144  # T + 1 > 8 d
    assert overtakes(TransformerConfig.mistral(), with_projections=False) is None  # a window bounds a query's pairs


def test_a_window_bounds_the_cache_and_an_encoder_has_none():
    config = TransformerConfig.gemma2(max_length=16)  # 26 layers, half of them with a window of 8
    assert cache_elements(config, 1, 16) == 2 * 4 * 256 * 13 * (8 + 16)
    assert cache_elements(TransformerConfig.bert(), 1, 16) == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((0, 3), "batch is a whole number, at least 1, not 0"),
        ((1, -3), "length is a whole number"),
        ((1, 513), "past the 512 learned positions"),
        ((1, 3, "fp8"), "one of fp32, fp16, int8, not 'fp8'"),
    ],
)
def test_refused(given, words):
    with pytest.raises(ValueError, match=words):
        Cost(TransformerConfig.bert(), *given)
