import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.ops import layer_norm, rms_norm


def run(x, dy, weight=None, **options):
    tensors = [None if a is None else Tensor(a, requires_grad=True) for a in (x, weight)]
    y = rms_norm(*tensors, **options)
    y.backward(dy)
    return y.numpy(), *(None if t is None else t.grad for t in tensors)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 3), max_size=2), st.integers(1, 7), st.booleans(), st.floats(-1, 1), st.integers(0, 99))
def test_gradients(leading, n, with_weight, offset, seed):
    rng = np.random.default_rng(seed)
    options = {"weight": rng.standard_normal(n)} if with_weight else {}
    gradcheck(rms_norm, rng.standard_normal((*leading, n)), eps=1e-3, offset=offset, **options)


def test_pitfall_38_by_hand():
    y = rms_norm(np.array([3.0, 4.0]), np.ones(2), eps=0.0).numpy()
    np.testing.assert_allclose(y, [0.848528137, 1.131370850], atol=1e-9)
    np.testing.assert_allclose(rms_norm(np.array([1.0, 3.0]), eps=0.0).numpy(), np.array([1, 3]) / np.sqrt(5))


def test_pitfall_38_one_plus_w():
    """The same gain, stored in two ways; the gradient of what is stored is the same."""
    rng = np.random.default_rng(0)
    x, gain, dy = rng.standard_normal((2, 3, 5)), rng.standard_normal(5), rng.standard_normal((2, 3, 5))
    for a, b in zip(run(x, dy, gain), run(x, dy, gain - 1, offset=1.0)):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert np.abs(run(x, dy, gain - 1)[0] - run(x, dy, gain)[0]).max() > 0.1  # the other convention is another model


def test_pitfall_38_statistics_in_float32_and_out():
    rng = np.random.default_rng(0)
    x, dy, gain = (100 * rng.standard_normal((7, 997))).astype(np.float32), rng.standard_normal((7, 997)), np.ones(997)
    narrow = run(x, dy.astype(np.float32), gain.astype(np.float32))
    for ours, exact in zip(narrow, run(x.astype(np.float64), dy, gain)):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, exact, atol=2e-6 * np.abs(exact).max())


def test_rows_of_mean_0_are_those_of_layer_norm():
    x = np.random.default_rng(0).standard_normal((3, 5))
    centred = x - x.mean(-1, keepdims=True)
    np.testing.assert_allclose(rms_norm(centred, eps=1e-5).numpy(), layer_norm(x, eps=1e-5).numpy(), rtol=1e-12)
    assert np.abs(rms_norm(x, eps=1e-5).numpy() - layer_norm(x, eps=1e-5).numpy()).max() > 0.1


def test_scaling_the_input_changes_nothing_and_has_no_gradient():
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 3, 5))
    y, dx, _ = run(x, dy, eps=0.0)
    np.testing.assert_allclose(y, rms_norm(7 * x, eps=0.0).numpy(), rtol=1e-14)
    np.testing.assert_allclose((x * dx).sum(-1), 0, atol=1e-14)


def test_a_row_of_zeros_stays_zero():
    y, dx, dweight = run(np.zeros((1, 3)), np.ones((1, 3)), np.ones(3))
    np.testing.assert_array_equal(y, 0)
    np.testing.assert_array_equal(dweight, 0)
    np.testing.assert_allclose(dx, 1e3)  # 1/√ε


def test_bad_input():
    with pytest.raises(ValueError, match=r"rms_norm: one weight per feature, \(5,\) for x \(2, 5\), not \(4,\)"):
        rms_norm(np.ones((2, 5)), np.ones(4))
    with pytest.raises(ValueError, match="rms_norm works along the last axis"):
        rms_norm(1.0)
    with pytest.raises(ValueError, match=r"rms_norm: eps is added to .* at least 0"):
        rms_norm(np.ones(3), eps=-1.0)
