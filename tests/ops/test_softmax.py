import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.ops import log_softmax, softmax

BOTH = pytest.mark.parametrize("f", [softmax, log_softmax])


def run(f, x, dy, **options):
    x = Tensor(x, requires_grad=True)
    y = f(x, **options)
    y.backward(dy)
    return y.numpy(), x.grad


@BOTH
@settings(deadline=None, max_examples=20)
@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3), data=st.data())
def test_gradients(f, shape, data):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = np.random.default_rng(0).standard_normal(shape)
    y = f(x, axis=axis).numpy()
    y = np.exp(y) if f is log_softmax else y
    np.testing.assert_allclose(y.sum(axis), 1, rtol=1e-14)
    gradcheck(f, x, axis=axis)


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_large_scores_do_not_overflow(f, dtype):
    top = np.finfo(dtype).max / 4
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        y, dx = run(f, np.array([[top, 0, -top], [1000, 1000, -1000]], dtype), np.ones((2, 3), dtype))
    assert y.dtype == dx.dtype == dtype
    y = np.exp(y) if f is log_softmax else y
    np.testing.assert_allclose(y, [[1, 0, 0], [0.5, 0.5, 0]], rtol=1e-6)
    assert np.isfinite(dx).all()


def test_log_softmax_keeps_what_softmax_rounds_to_zero():
    y, dx = run(log_softmax, np.array([0.0, -2000.0]), np.array([0.0, 1.0]))
    np.testing.assert_array_equal(y, [0, -2000])
    np.testing.assert_array_equal(dx, [-1, 1])


def test_adding_a_constant_changes_nothing():
    x = np.random.default_rng(0).integers(-8, 8, (3, 5)) / 4  # exact in binary, so that the shift is exact too
    np.testing.assert_array_equal(softmax(x + 1024).numpy(), softmax(x).numpy())
    np.testing.assert_array_equal(log_softmax(x + 1024).numpy(), log_softmax(x).numpy())


@BOTH
def test_pitfall_01_slices_of_nothing_but_minus_infinity(f):
    x = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    with np.errstate(all="raise"):
        y, dx = run(f, x, np.array([[2.0, 3.0], [5.0, 7.0]]))
    if f is softmax:
        np.testing.assert_array_equal(y, [[0, 0], [1, 0]])
        np.testing.assert_array_equal(dx, [[0, 0], [0, 0]])
    else:
        np.testing.assert_array_equal(y, [[-np.inf, -np.inf], [0, -np.inf]])
        np.testing.assert_array_equal(dx, [[0, 0], [5 - 12, 7]])


@BOTH
def test_nan_is_not_hidden(f):
    y = f(np.array([[0.0, np.nan], [0.0, 0.0]])).numpy()
    assert np.isnan(y[0]).all()
    assert np.isfinite(y[1]).all()


@BOTH
@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (0, 0)])
def test_pitfall_35_empty(f, shape):
    y, dx = run(f, np.zeros(shape), np.zeros(shape))
    assert y.shape == dx.shape == shape


def test_differs_from_pytorch_where_nothing_is_left():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nothing = np.full(3, -np.inf)
    assert torch.softmax(torch.tensor(nothing), 0).isnan().all()
    np.testing.assert_array_equal(softmax(nothing).numpy(), 0)
