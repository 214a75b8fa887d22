from __future__ import annotations

import numpy as np
import pytest
from drawn import apart, axes_of, generators, quick, shapes
from hypothesis import given
from hypothesis import strategies as st

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck


def logsumexp(x, axis, keepdims):
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x).sum(axis=axis, keepdims=keepdims))


NUMPY = {"sum": np.sum, "mean": np.mean, "var": np.var, "max": np.max, "min": np.min, "logsumexp": logsumexp}


@pytest.mark.parametrize("name", NUMPY)
@given(st.data(), shapes, generators, st.booleans())
@quick
def test_over_any_axes(name, data, shape, rng, keepdims):
    axis = data.draw(axes_of(len(shape)))
    (x,) = apart(rng, shape)
    reduced = shape if axis is None else [shape[i] for i in np.atleast_1d(axis)]
    if 0 in reduced and name != "sum":
        return  # see the tests of empty axes
    y = getattr(ops, name)(x, axis, keepdims)
    np.testing.assert_allclose(y.numpy(), NUMPY[name](x, axis=axis, keepdims=keepdims), rtol=1e-13, atol=1e-13)
    assert gradcheck(getattr(ops, name), x, axis=axis, keepdims=keepdims).error < 1e-6


@pytest.mark.parametrize("name", NUMPY)
def test_the_axis_that_0_d_arrays_have_in_numpy(name):
    x = Tensor(np.array(3.0), requires_grad=True)
    getattr(x, name)(axis=0).backward()
    assert x.grad == (0 if name == "var" else 1)


@pytest.mark.parametrize("name", NUMPY)
def test_an_axis_that_is_not_there(name):
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        getattr(ops, name)(Tensor(np.ones((2, 3))), 2)


def test_pitfall_35_empty_axes():
    x = Tensor(np.ones((4, 0)), requires_grad=True)
    assert ops.sum(x, 1).numpy().tolist() == [0] * 4
    assert ops.logsumexp(x, 1).numpy().tolist() == [-np.inf] * 4
    assert np.isnan(ops.mean(x, 1).numpy()).all()
    assert np.isnan(ops.var(x, 1).numpy()).all()
    for f in (ops.sum, ops.mean, ops.var, ops.logsumexp):
        x.grad = None
        f(x, 1).backward(np.ones(4))
        assert x.grad.shape == (4, 0)
        assert f(x, 0).shape == (0,)
        assert f(x, 0, True).shape == (1, 0)
    assert ops.max(x, 0).shape == ops.min(x, 0).shape == (0,)
    with pytest.raises(ValueError, match="zero-size array"):
        ops.max(x, 1)


def test_ties_share_equally():
    x = Tensor(np.array([[1.0, 3.0, 3.0, 3.0], [2.0, 2.0, 0.0, 1.0]]), requires_grad=True)
    ops.max(x, 1).backward([3.0, 4.0])
    assert x.grad.tolist() == [[0, 1, 1, 1], [2, 2, 0, 0]]
    x.grad = None
    ops.min(x).backward()
    assert x.grad.tolist() == [[0, 0, 0, 0], [0, 0, 1, 0]]
    x.grad = None
    ops.max(-x * 0, (0, 1)).backward()
    assert x.grad.tolist() == [[-0.0] * 4] * 2


def test_max_of_nan_and_infinite_cotangents():
    with np.errstate(all="raise"):
        x = Tensor(np.array([1.0, np.nan]), requires_grad=True)
        y = ops.max(x)
        y.backward()
        assert np.isnan(y.item())
        x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
        ops.max(x).backward(np.inf)
    assert x.grad.tolist() == [0, np.inf]


def test_var_with_correction():
    x = np.array([1.0, 3.0, 4.0])
    assert ops.var(x, correction=1).item() == pytest.approx(np.var(x, ddof=1), rel=1e-15)
    gradcheck(ops.var, x, correction=1)
    assert np.isnan(ops.var(x[:1], correction=1).item())
    assert Tensor(x).var(correction=1).item() == pytest.approx(np.var(x, ddof=1))


def test_pitfall_08_variance_far_from_zero():
    x = Tensor(np.array([40000, 40001, 40002, 40003], np.float32), requires_grad=True)
    y = ops.var(x)
    y.backward()
    assert y.item() == 1.25
    assert x.grad.tolist() == [-0.75, -0.25, 0.25, 0.75]
    x = (1e4 + 1e-3 * np.arange(101)).astype(np.float32)
    assert ops.var(Tensor(x)).item() == pytest.approx(x.var(dtype=np.float64), rel=1e-5)


def test_logsumexp_at_its_ends():
    inf = np.inf
    x = Tensor(np.array([[1000.0, 1000.0], [-1000.0, -inf], [-inf, -inf]]), requires_grad=True)
    with np.errstate(all="raise", under="ignore"):
        y = ops.logsumexp(x, -1)
        y.backward([1.0, 2.0, 3.0])
    np.testing.assert_allclose(y.numpy(), [1000 + np.log(2), -1000, -inf], rtol=1e-15)
    np.testing.assert_array_equal(x.grad, [[0.5, 0.5], [2, 0], [0, 0]])
    assert ops.logsumexp(Tensor([inf, 1.0])).item() == inf


def test_many_float32_numbers_are_added_in_pairs():
    assert ops.sum(Tensor(np.full(10**6, 0.1, np.float32))).item() == pytest.approx(1e5, rel=1e-6)


def test_methods_take_axis_and_keepdims():
    x = Tensor(np.arange(6.0).reshape(2, 3))
    for name in NUMPY:
        assert getattr(x, name)(1, True).shape == (2, 1)
        assert getattr(x, name)(axis=(0, 1)).shape == ()
