"""Figures per layer: what the observer reads is what a model with its own instruments reads."""
import math

import numpy as np
import pytest
from small_runs import decoder, trainer_of

from minitx import settings
from minitx.ops import attention_weights
from minitx.training.monitor import Monitor, largest_logit, layer_name


def test_layer_names():
    assert layer_name("decoder.1.attention.query.weight") == "decoder.1"
    assert layer_name("decoder.0.mixture.experts.3.up.weight") == "decoder.0"
    assert layer_name("body.blocks.12.norm.bias") == "body.blocks.12"
    assert layer_name("embedding.weight") == layer_name("decoder_norm.weight") == "other"


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_monitor_reads_what_an_instrumented_copy_of_the_model_reads(placement):
    model = decoder(layers=2, norm_placement=placement)
    seen = {}
    for i, block in enumerate(model.decoder):

        def forward(x, *args, block=block, i=i, **options):
            y = type(block).forward(block, x, *args, **options)
            seen[f"decoder.{i}"] = y.numpy()
            return y

        block.forward = forward
    monitor = Monitor(model)
    with settings.changed(observer=monitor):
        out = model(np.array([[3, 4, 5], [6, 7, 8]]))
    monitor.end_of_pass()
    loss = out.logits.sum()
    loss.backward()
    figures = monitor.figures()
    assert set(figures) == {"decoder.0", "decoder.1", "other"}
    for layer, y in seen.items():
        assert figures[layer]["residual_rms"] == pytest.approx(np.sqrt((y**2).mean()), rel=1e-12)
        assert figures[layer]["activation"] >= np.abs(y).max()
    norms = {"decoder.0": 0.0, "decoder.1": 0.0, "other": 0.0}
    for name, p in model.named_parameters():
        norms[layer_name(name)] += (p.grad**2).sum()
    assert {k: math.sqrt(v) for k, v in norms.items()} == pytest.approx({k: v["grad_norm"] for k, v in figures.items()})


def test_the_largest_logit_is_the_one_behind_the_largest_weight():
    rng = np.random.default_rng(5)
    q, k = rng.standard_normal((2, 4, 3, 7)), rng.standard_normal((2, 2, 5, 7))
    bias = rng.standard_normal((1, 4, 3, 5))
    mask = np.ones((3, 5), bool)
    mask[:, 2] = False
    options = {"mask": mask, "bias": bias, "softcap": 3.0, "scale": 0.7}
    w = attention_weights(q, k, **options).numpy()
    z = 3 * np.tanh(0.7 * np.einsum("bhtd,bhsd->bhts", q, np.repeat(k, 2, axis=1)) / 3) + bias
    np.testing.assert_allclose(w, np.where(mask, np.exp(z), 0) / np.where(mask, np.exp(z), 0).sum(-1, keepdims=True))
    assert largest_logit(q, k, k, dropout=0.1, rng=rng, **options) == np.where(mask, z, -np.inf).max()
    assert largest_logit(q, k, k, mask=np.zeros((3, 5), bool)) == -np.inf


def test_an_observer_that_was_there_keeps_watching():
    class Counting:
        forwards = backwards = 0

        def forward(self, *_):
            self.forwards += 1

        def backward(self, *_):
            self.backwards += 1

    counts = []
    for detail_every in (0, 1):
        counting = Counting()
        with settings.changed(observer=counting):
            trainer_of(detail_every=detail_every).train_step()
        counts.append((counting.forwards, counting.backwards))
    assert counts[0] == counts[1]
    assert min(counts[0]) > 10
