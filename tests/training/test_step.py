"""One step: the gradient of a batch in pieces is the gradient of the batch, token by token."""
import math

import numpy as np
import pytest
from small_runs import decoder

from minitx import Tensor
from minitx.data import IGNORED, Batch
from minitx.data.packing import pack
from minitx.models import Transformer, TransformerConfig
from minitx.models.transformer import Output
from minitx.ops import cross_entropy
from minitx.tasks import get_task
from minitx.training import TrainingConfig
from minitx.training.step import backward, forward


class TwoRows:
    """A batch of 1 counted token in one row and 3 in the other."""

    ids = np.array([[3, 4, 5], [6, 7, 8]])
    targets = np.array([[4, IGNORED, IGNORED], [7, 8, 9]])
    batch = Batch(ids, targets)


def test_pitfall_20_accumulation_counts_tokens_not_pieces():
    def fixed(ids, target_ids=None, **_):
        """A model whose losses are known: 4 for the token of the first row, 1 for each of the second."""
        x = np.zeros((*ids.shape, 13))
        for b, row in enumerate(ids):
            loss, targets = (4.0, [4, 0, 0]) if row[0] == 3 else (1.0, [7, 8, 9])
            # One logit a beside 12 zeros: loss = log(e^a + 12) - a = log(1 + 12 e^-a).
            x[b, np.arange(3), targets] = -math.log((math.exp(loss) - 1) / 12)
        return Output(Tensor(x, requires_grad=True), None, {}, {})

    for accumulate in (1, 2):
        loss = backward(fixed, TwoRows.batch, TrainingConfig(accumulate=accumulate))
        assert loss == pytest.approx(1.75, rel=1e-12)


@pytest.mark.parametrize("accumulate", [2, 3, 5, 9])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_pitfall_20_pieces_add_up_to_the_gradient_of_the_batch(accumulate, smoothing):
    model, batch = decoder(), get_task("copy", longest=5).batch(np.random.default_rng(0), 5)
    batch = Batch(batch.ids, np.where(np.arange(batch.ids.shape[1]) < 1 + np.arange(5)[:, None], batch.ids, IGNORED))
    found = []
    for pieces in (1, accumulate):
        model.zero_grad()
        loss = backward(model, batch, TrainingConfig(accumulate=pieces, label_smoothing=smoothing))
        found.append((loss, {n: p.grad for n, p in model.named_parameters()}))
    (whole, dwhole), (parts, dparts) = found
    direct = cross_entropy(model(batch.ids).logits, batch.targets, label_smoothing=smoothing).item()
    assert whole == pytest.approx(direct, rel=1e-12)
    assert parts == pytest.approx(whole, rel=1e-12)
    largest = max(np.abs(g).max() for g in dwhole.values())  # a key's bias has gradient 0 but for rounding
    for name, g in dwhole.items():
        np.testing.assert_allclose(dparts[name], g, rtol=0, atol=1e-12 * largest, err_msg=name)


def test_pitfall_20_a_piece_without_targets_adds_nothing():
    model = decoder()
    batch = Batch(TwoRows.ids, np.where([[True], [False]], TwoRows.targets, IGNORED))
    backward(model, batch, TrainingConfig(accumulate=2))
    assert all(np.isfinite(p.grad).all() for p in model.parameters())
    model.zero_grad()
    assert backward(model, Batch(TwoRows.ids, np.full((2, 3), IGNORED)), TrainingConfig()) == 0
    assert all((p.grad == 0).all() for p in model.parameters())


def test_auxiliary_losses_count_by_rows_and_not_in_the_loss():
    class WithBalance:
        def __init__(self, model):
            self.model = model

        def __call__(self, ids, *args, **options):
            out = self.model(ids, *args, **options)
            weight = self.model.embedding.weight
            return out._replace(aux_losses={"decoder.0.balance": (weight * weight).sum() * float(len(ids))})

    model, batch = decoder(), Batch(np.arange(3, 12).reshape(3, 3), np.full((3, 3), IGNORED))
    assert backward(WithBalance(model), batch, TrainingConfig(balance_weight=0.5, accumulate=2)) == 0
    # Pieces of 2 and 1 rows (or 1 and 2): Σ (rows / 3) · rows · 0.5 · 2 w = 5/3 w
    np.testing.assert_allclose(model.embedding.weight.grad, 5 / 3 * model.embedding.weight.data, rtol=1e-12)


def test_a_packed_batch_brings_its_positions():
    documents = [np.array([3, 4, 5]), np.array([6, 7])]
    batch = pack(documents, 6)
    model = decoder()
    logits = forward(model, batch).logits.data
    for document in documents:
        alone = model(document[None]).logits.data[0]
        row = next(i for i in range(6) if batch.ids[0, i : i + len(document)].tolist() == document.tolist())
        np.testing.assert_allclose(logits[0, row : row + len(document)], alone, rtol=1e-9, atol=1e-12)


def test_the_losses_of_a_router_have_weights_of_their_own():
    config = TransformerConfig(
        architecture="decoder", layers=1, d_model=8, heads=2, vocab_size=13, experts=3, dropout=0.0
    )
    batch = Batch(np.arange(3, 12).reshape(3, 3), np.full((3, 3), IGNORED))
    grads = []
    for weights in [{"balance_weight": 1.0, "router_z_weight": 0.0}, {"balance_weight": 0.0, "router_z_weight": 0.0}]:
        model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)
        assert backward(model, batch, TrainingConfig(**weights)) == 0
        grads.append(np.abs(model.decoder[0].feedforward.router.weight.grad).max())
    assert grads[0] > 0
    assert grads[1] == 0
