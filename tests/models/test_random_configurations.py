"""Configurations at random: either refused with one clear message, or built, run, counted and written down right."""
import numpy as np
import pytest
from counting import count

from minitx.models import Card, Transformer, TransformerConfig
from minitx.models.cost import Flops, flops
from minitx.models.example import example
from minitx.models.rules import CHOICES
from minitx.models.shapes import parameter_shapes
from minitx.ops import cross_entropy

OTHERS = {
    "layers": [1, 2], "kv_heads": [1, 2], "head_dim": [3, 4], "value_dim": [5], "window": [2], "window_every": [2],
    "qk_norm": [True], "attention_scale": [1.0], "attention_softcap": [2.0], "attention_bias": [True, False],
    "attention_out_bias": [True, False], "d_ff": [7], "ff_bias": [True, False], "experts": [3],
    "experts_per_token": [1], "shared_experts": [1], "vocab_size": [0], "tie_embeddings": [False],
    "scale_embeddings": [False], "embedding_norm": [True], "segments": [2], "patch_dim": [3], "head_bias": [True],
    "head_dense": [False], "classes": [3], "logit_scale": [0.5], "logit_softcap": [3.0], "rope_base": [100.0],
    "rope_dim": [2], "rope_interleaved": [True], "relative_buckets": [4], "relative_max_distance": [8],
    "rope_scaling": [{"type": "dynamic", "factor": 2.0, "original_length": 4}], "norm_bias": [True, False],
    "norm_offset": [1.0], "bias": [False], "dropout": [0.0], "scale_residual_init": [True],
} | {name: list(values) for name, values in CHOICES.items()}  # fmt: skip


def draw(rng):
    """A configuration that is not refused."""
    while True:
        changes = {"d_model": 4 * int(rng.integers(2, 4)), "heads": int(rng.choice([1, 2, 4])), "vocab_size": 11}
        changes |= {name: values[rng.integers(len(values))] for name, values in OTHERS.items() if rng.random() < 0.15}
        try:
            return TransformerConfig(**changes, max_length=9)
        except ValueError as error:
            refused = str(error)
        assert len(refused) > 30
        assert "\n" not in refused


@pytest.mark.parametrize("seed", range(40))
def test_what_is_not_refused_is_built(seed):
    rng = np.random.default_rng(seed)
    config = draw(rng)
    model = Transformer(config, rng=rng).astype(np.float64).eval()
    assert list(parameter_shapes(config).items()) == [(n, p.shape) for n, p in model.named_parameters()]
    inputs, targets = example(config, 2, 5, rng)
    counted = count(lambda: cross_entropy(model(*inputs).logits, targets))
    assert sum(flops(config, 2, 5).values(), Flops(0, 0)) == (counted.forward_total, counted.backward_total)
    card = Card(config)
    assert Card.from_json(card.to_json()) == Card.from_toml(card.to_toml()) == card
    assert TransformerConfig.from_dict(config.to_dict()) == config
