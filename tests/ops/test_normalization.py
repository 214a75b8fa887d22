import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.ops import layer_norm


def run(x, dy, weight=None, bias=None, **options):
    tensors = [None if a is None else Tensor(a, requires_grad=True) for a in (x, weight, bias)]
    y = layer_norm(*tensors, **options)
    y.backward(dy)
    return y.numpy(), *(None if t is None else t.grad for t in tensors)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3), max_size=2), st.integers(1, 7), st.booleans(), st.booleans(), st.integers(0, 99))
def test_gradients(leading, n, with_weight, with_bias, seed):
    rng = np.random.default_rng(seed)
    options = {"weight": rng.standard_normal(n)} if with_weight else {}
    options |= {"bias": rng.standard_normal(n)} if with_bias else {}
    gradcheck(layer_norm, rng.standard_normal((*leading, n)), eps=1e-3, **options)


def test_pitfall_08_mean_large_beside_the_spread():
    x = np.array([40000, 40001, 40002, 40003], np.float32)
    expected = [-1.341635, -0.447212, 0.447212, 1.341635]
    np.testing.assert_allclose(layer_norm(x).numpy(), expected, atol=1e-5)
    one_pass = (x * x).mean() - x.mean() ** 2  # the fault, for comparison
    assert one_pass < 0


def test_pitfall_08_mean_is_rounded():
    """Row mean 1e4, spread 1e-3 * i: in float32 the first mean is wrong by up to a step, the second corrects it."""
    rng = np.random.default_rng(0)
    x = (1e4 + 1e-3 * rng.permutation(997)).astype(np.float32)[None]
    dy, weight = rng.standard_normal(x.shape), rng.standard_normal(997)
    y, dx, dweight, _ = run(x, dy.astype(np.float32), weight.astype(np.float32))
    wide = run(x.astype(np.float64), dy, weight)
    for ours, exact in zip((y, dx, dweight), wide):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, exact, atol=3e-6 * np.abs(exact).max())


def test_by_hand():
    np.testing.assert_array_equal(layer_norm(np.array([1.0, 3.0]), eps=0.0).numpy(), [-1, 1])
    np.testing.assert_array_equal(
        layer_norm(np.array([1.0, 3.0]), np.array([2.0, 5.0]), np.array([10.0, 20.0]), eps=0.0).numpy(), [8, 25]
    )


def test_a_constant_row_becomes_the_bias():
    bias = np.array([1.0, -2.0, 3.0])
    y, dx, _, _ = run(np.full((1, 3), 1e6), np.array([[1.0, 2.0, 4.0]]), np.ones(3), bias)
    np.testing.assert_array_equal(y, bias[None])
    assert np.isfinite(dx).all()


def test_pitfall_06_gain_and_bias_gradients_of_many_rows():
    x = np.tile(np.array([[-1.0, 1.0]], np.float32), (10_000, 1))
    _, _, dweight, dbias = run(x, np.ones_like(x), np.ones(2, np.float32), np.zeros(2, np.float32), eps=0.0)
    np.testing.assert_array_equal(dweight, [-10_000, 10_000])
    np.testing.assert_array_equal(dbias, [10_000, 10_000])


def test_the_gradient_has_no_part_along_ones_nor_along_xhat():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 7))
    y, dx, _, _ = run(x, rng.standard_normal((5, 7)), eps=0.0)
    np.testing.assert_allclose(dx.sum(-1), 0, atol=1e-14)
    np.testing.assert_allclose((dx * y).sum(-1), 0, atol=1e-14)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (2, 0, 3)])
def test_pitfall_35_empty(shape):
    y, dx, dweight, dbias = run(np.zeros(shape), np.zeros(shape), np.ones(shape[-1]), np.ones(shape[-1]))
    assert y.shape == dx.shape == shape
    np.testing.assert_array_equal(dweight, np.zeros(shape[-1]))
    np.testing.assert_array_equal(dbias, np.zeros(shape[-1]))


def test_eps_of_any_float_type_keeps_float32():
    assert layer_norm(np.ones(3, np.float32), eps=np.float64(1e-5)).dtype == np.float32


def test_errors():
    with pytest.raises(ValueError, match=r"one weight per feature, \(3,\) for x \(2, 3\), not \(2,\)"):
        layer_norm(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match=r"one bias per feature, \(3,\) for x \(2, 3\), not \(2, 3\)"):
        layer_norm(np.ones((2, 3)), np.ones(3), np.ones((2, 3)))
    with pytest.raises(ValueError, match="a single number has none"):
        layer_norm(np.ones(()))
    for eps in (-1e-5, float("nan")):
        with pytest.raises(ValueError, match="eps is added to a variance"):
            layer_norm(np.ones(3), eps=eps)
