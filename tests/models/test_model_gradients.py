"""Both models of the library, whole: every parameter's gradient against differences, by direction and by entry."""
from __future__ import annotations

import numpy as np
import pytest

from minitx import GradientError, gradcheck_model, masks, ops
from minitx.models import Transformer, TransformerConfig

DECODER = {"architecture": "decoder", "norm_placement": "pre", "position": "learned", "activation": "gelu"}
ENCODER_DECODER = {"architecture": "encoder-decoder", "position": "sinusoidal", "activation": "relu"}


def model_and_loss(tied, **changes):
    """A small model away from its initial gains and biases, and a loss with padding, ignored targets and smoothing."""
    rng = np.random.default_rng(0)
    sizes = {"layers": 2, "d_model": 12, "heads": 3, "d_ff": 20, "vocab_size": 11, "max_length": 13, "dropout": 0.0}
    model = Transformer(TransformerConfig(**sizes, tie_embeddings=tied, **changes), rng=rng).astype(np.float64)
    for p in model.parameters():
        p.data += 0.1 * rng.standard_normal(p.shape)
    source, target, labels = rng.integers(1, 11, (2, 5)), rng.integers(1, 11, (2, 7)), rng.integers(0, 11, (2, 7))
    labels[0, 4:] = -100

    def loss():
        if changes["architecture"] == "decoder":
            logits = model(target, mask=masks.padding([4, 7])).logits
        else:
            logits = model(source, target, mask=masks.padding([3, 5]), target_mask=masks.padding([4, 7])).logits
        return ops.cross_entropy(logits, labels, label_smoothing=0.1)

    return model, loss


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("changes", [DECODER, {**ENCODER_DECODER, "norm_placement": "post"}], ids=["decoder", "both"])
def test_whole_model(changes, tied):
    model, loss = model_and_loss(tied, **changes)
    before = {name: p.data.tobytes() for name, p in model.named_parameters()}
    report = gradcheck_model(loss, model, samples=2)
    assert len(report.rows) == 3 + len(before)
    assert {name: p.data.tobytes() for name, p in model.named_parameters()} == before


def test_pitfall_12_tied_gradient_dropped():
    model, loss = model_and_loss(True, **DECODER)

    def head_without_gradient(x, weight, bias=None):
        rows = x.reshape(-1, x.shape[-1])

        def backward(dy):
            dy_rows = dy.reshape(-1, dy.shape[-1])
            dweight = dy_rows.T @ rows
            return dy @ weight, dweight * (weight.shape != (11, 12)), dy_rows.sum(0)

        return x @ weight.T + (0 if bias is None else bias), backward

    with ops.linear.using(head_without_gradient), pytest.raises(GradientError) as caught:
        gradcheck_model(loss, model, samples=2)
    guilty = {row.name for row in caught.value.report.rows if row.error > 1e-6}
    assert guilty == {"direction 1", "direction 2", "direction 3", "embedding.weight"}
