import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitx
from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.ops import cross_entropy, mse


def run(logits, targets, dy=None, **options):
    logits = Tensor(logits, requires_grad=True)
    loss = cross_entropy(logits, targets, **options)
    loss.backward(dy)
    return loss.numpy(), logits.grad


def one_row_at_a_time(logits, targets, ignore_index, epsilon):
    losses = np.zeros(targets.shape)
    V = logits.shape[-1]
    for place in np.ndindex(targets.shape):
        if targets[place] != ignore_index:
            log_p = logits[place] - np.log(np.exp(logits[place]).sum())
            losses[place] = -(1 - epsilon) * log_p[targets[place]] - epsilon / V * log_p.sum()
    return losses


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_row_by_itself(data):
    shape = data.draw(st.lists(st.integers(0, 3), max_size=2))
    V, ignore = data.draw(st.integers(2, 5)), data.draw(st.sampled_from([-100, -1, 0]))
    epsilon = data.draw(st.sampled_from([0.0, 0.1, 1.0]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    logits, targets = rng.standard_normal((*shape, V)), rng.integers(0, V, shape)
    targets = np.where(rng.random(shape) < 0.3, ignore, targets)
    losses = one_row_at_a_time(logits, targets, ignore, epsilon)
    counted = max((targets != ignore).sum(), 1)
    options = {"ignore_index": ignore, "label_smoothing": epsilon}
    for reduction, expected in (("none", losses), ("sum", losses.sum()), ("mean", losses.sum() / counted)):
        loss = cross_entropy(logits, targets, reduction=reduction, **options)
        np.testing.assert_allclose(loss.numpy(), expected, atol=1e-13)
        gradcheck(cross_entropy, logits, targets, reduction=reduction, **options)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_pitfall_13_ignored_rows_are_not_read(reduction, epsilon, poison):
    rng = np.random.default_rng(0)
    logits, targets = rng.standard_normal((2, 7, 5)), rng.integers(0, 5, (2, 7))
    ignored = rng.random((2, 7)) < 0.5
    targets[ignored] = -100
    dy = rng.standard_normal((2, 7)) if reduction == "none" else None
    options = {"reduction": reduction, "label_smoothing": epsilon}
    expected = run(logits, targets, dy, **options)
    logits[ignored] = poison
    if dy is not None:
        dy[ignored] = poison  # what comes back for an ignored loss is not read either
    with np.errstate(all="raise"):
        loss, dlogits = run(logits, targets, dy, **options)
    np.testing.assert_array_equal(loss, expected[0])
    np.testing.assert_array_equal(dlogits, expected[1])
    np.testing.assert_array_equal(dlogits[ignored], 0)


def test_pitfall_20_the_divisor_counts_what_is_not_ignored():
    """One token with loss 4 and three with loss 1: together 1.75, and the gradient adds up from sums."""
    logits, targets = np.random.default_rng(0).standard_normal((2, 3, 5)), np.array([[1, -100, -100], [0, 4, 2]])
    loss, dlogits = run(logits, targets)
    parts = [run(row, t, reduction="sum") for row, t in zip(logits, targets)]
    np.testing.assert_allclose(loss, (parts[0][0] + parts[1][0]) / 4)
    np.testing.assert_allclose(dlogits, np.stack([g for _, g in parts]) / 4)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_all_ignored(reduction, label_smoothing):
    logits, targets = np.full((3, 5), np.nan), np.full(3, -100)
    dy = np.ones(3) if reduction == "none" else None
    with np.errstate(all="raise"):
        loss, dlogits = run(logits, targets, dy, reduction=reduction, label_smoothing=label_smoothing)
    np.testing.assert_array_equal(loss, np.zeros(3) if reduction == "none" else 0)
    np.testing.assert_array_equal(dlogits, np.zeros((3, 5)))


def test_pitfall_35_no_rows():
    for reduction, dy in (("mean", None), ("sum", None), ("none", np.zeros((0, 3)))):
        loss, dlogits = run(np.zeros((0, 3, 5)), np.zeros((0, 3), int), dy, reduction=reduction)
        assert dlogits.shape == (0, 3, 5)
        assert loss.sum() == 0
    with pytest.raises(ValueError, match=r"there are none in \(3, 0\)"):
        cross_entropy(np.zeros((3, 0)), np.zeros(3, int))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("targets", "ignore_index", "message"),
    [
        ([0, 5], -1, r"targets\[1\] is 5, but there are 5 classes, 0 to 4 \(or ignore_index, -1\)"),
        ([0, -4], -1, r"targets\[1\] is -4"),
        ([-100, 1], -1, r"targets\[0\] is -100"),
        ([255, 1], 254, r"targets\[0\] is 255"),
    ],
)
def test_pitfall_07_21_targets_out_of_range(targets, ignore_index, message, reduction):
    with pytest.raises(IndexError, match=message):
        cross_entropy(np.zeros((2, 5)), targets, ignore_index=ignore_index, reduction=reduction)


def test_pitfall_21_ignore_index_anywhere():
    logits = np.random.default_rng(0).standard_normal((3, 3))
    targets = np.array([0, 1, 255], np.uint8)
    losses = cross_entropy(logits, targets, ignore_index=255, reduction="none").numpy()
    assert losses[2] == 0
    np.testing.assert_allclose(cross_entropy(logits, targets, ignore_index=255).item(), losses.sum() / 2)
    inside, dlogits = run(logits, [0, 1, 2], np.ones(3), ignore_index=1, reduction="none")
    assert inside[1] == 0
    np.testing.assert_array_equal(dlogits[1], 0)
    assert inside[2] > 0


def test_targets_are_copied():
    targets, logits = np.array([0, 1]), Tensor(np.zeros((2, 3)), requires_grad=True)
    loss = cross_entropy(logits, targets, reduction="sum")
    targets[:] = 2
    loss.backward()
    np.testing.assert_allclose(logits.grad, [[-2 / 3, 1 / 3, 1 / 3], [1 / 3, -2 / 3, 1 / 3]])


def test_minus_infinity_among_the_logits():
    """Harmless beside the target; an infinite loss at it, or where smoothing asks for it. Gradients stay finite."""
    logits = np.array([[0.0, -np.inf, 0.0]])
    with np.errstate(all="raise"):
        loss, dlogits = run(logits, [0])
    np.testing.assert_allclose(loss, np.log(2))
    np.testing.assert_allclose(dlogits, [[-0.5, 0, 0.5]])
    loss, dlogits = run(logits, [1])
    assert loss == np.inf
    np.testing.assert_allclose(dlogits, [[0.5, -1, 0.5]])
    loss, dlogits = run(logits, [0], label_smoothing=0.3)
    assert loss == np.inf
    np.testing.assert_allclose(dlogits, [[0.5 - 0.8, -0.1, 0.5 - 0.1]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_logits(dtype):
    top = np.finfo(dtype).max / 4
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        loss, dlogits = run(np.array([[top, -top, 0], [1e4, 1e4, 0]], dtype), [0, 1], np.ones(2), reduction="none")
    np.testing.assert_allclose(loss, [0, np.log(2)], rtol=1e-6)
    assert loss.dtype == dlogits.dtype == dtype
    assert np.isfinite(dlogits).all()


def test_a_distant_target_keeps_its_digits():
    """log(softmax) would be log(0); and near certainty the loss is small but not 0 where p rounds to 1."""
    assert cross_entropy(np.array([[0.0, 2000.0]]), [0]).item() == 2000
    np.testing.assert_allclose(cross_entropy(np.array([[30.0, 0.0]]), [0]).item(), np.log1p(np.exp(-30.0)), rtol=1e-2)


def test_differs_from_pytorch_when_all_are_ignored():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    theirs = torch.nn.functional.cross_entropy(torch.zeros(2, 3), torch.tensor([-100, -100]))
    assert theirs.isnan()
    assert cross_entropy(np.zeros((2, 3)), [-100, -100]).item() == 0


def test_errors():
    logits = np.zeros((2, 7, 5))
    with pytest.raises(ValueError, match=r"logits \(2, 7, 5\) want targets \(2, 7\), not \(14,\)"):
        cross_entropy(logits, np.zeros(14, int))
    with pytest.raises(ValueError, match="one target per row"):
        cross_entropy(np.zeros(()), np.zeros((), int))
    with pytest.raises(TypeError, match="targets are integers, not float64"):
        cross_entropy(logits, np.zeros((2, 7)))
    with pytest.raises(TypeError, match="targets are integers, not bool"):
        cross_entropy(logits, np.zeros((2, 7), bool))
    with pytest.raises(ValueError, match="reduction is 'mean' or 'sum' or 'none', not 'avg'"):
        cross_entropy(logits, np.zeros((2, 7), int), reduction="avg")
    for epsilon in (-0.1, 1.1):
        with pytest.raises(ValueError, match="label_smoothing is between 0 and 1"):
            cross_entropy(logits, np.zeros((2, 7), int), label_smoothing=epsilon)


# ---------------------------------------------------------------------- mse


def test_mse_values():
    x, y = np.array([[1.0, 2.0, 4.0]]), np.array([[1.0, 6.0, 3.0]])
    np.testing.assert_array_equal(mse(x, y, "none").numpy(), [[0, 16, 1]])
    assert mse(x, y, "sum").item() == 17
    np.testing.assert_allclose(mse(x, y).item(), 17 / 3)
    assert mse(np.zeros((0, 3)), np.zeros((0, 3))).item() == 0


def test_mse_does_not_broadcast():
    with pytest.raises(ValueError, match=r"one shape, not \(3,\) and \(3, 1\)"):
        mse(np.zeros(3), np.zeros((3, 1)))
    with pytest.raises(ValueError, match="mse: reduction is"):
        mse(np.zeros(3), np.zeros(3), "avg")


@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_an_infinite_loss_is_not_nan(smoothing):
    logits = np.array([[0.0, -np.inf, 1.0]])
    assert cross_entropy(logits, [1], label_smoothing=smoothing).item() == np.inf
    with minitx.reference():
        assert cross_entropy(logits, [1], label_smoothing=smoothing).item() == np.inf


def test_targets_from_an_integer_tensor_and_from_an_empty_list():
    logits = np.random.default_rng(0).standard_normal((2, 3))
    assert cross_entropy(logits, Tensor(np.array([0, 2]))).item() == cross_entropy(logits, [0, 2]).item()
    assert cross_entropy(logits, targets=Tensor(np.array([0, 2]))).item() == cross_entropy(logits, [0, 2]).item()
    assert cross_entropy(np.zeros((0, 3)), []).item() == 0
    with pytest.raises(TypeError, match="targets are integers, not float32"):
        cross_entropy(logits, Tensor([0, 2]))
