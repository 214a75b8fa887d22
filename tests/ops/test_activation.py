from __future__ import annotations

import math

import numpy as np
import pytest
from drawn import apart, generators, quick, shapes
from hypothesis import given

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck


def tanh_form(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


SCALAR = {
    "tanh": (ops.tanh, math.tanh),
    "sigmoid": (ops.sigmoid, lambda x: 1 / (1 + math.exp(-x))),
    "erf": (ops.erf, math.erf),
    "relu": (ops.relu, lambda x: max(x, 0.0)),
    "gelu": (ops.gelu, lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2))),
    "gelu tanh": (lambda x: ops.gelu(x, "tanh"), tanh_form),
    "silu": (ops.silu, lambda x: x / (1 + math.exp(-x))),
}
every_activation = pytest.mark.parametrize("name", SCALAR)


@every_activation
@given(shapes, generators)
@quick
def test_value_and_gradient(name, shape, rng):
    op, scalar = SCALAR[name]
    (x,) = apart(rng, shape)
    expected = np.reshape([scalar(v) for v in x.ravel()], shape)
    np.testing.assert_allclose(op(x).numpy(), expected, rtol=1e-13, atol=1e-15)
    gradcheck(op, x)


def value_and_slope(f, x, dtype):
    t = Tensor(np.array(x, dtype), requires_grad=True)
    y = f(t)
    y.backward(np.ones(t.shape, dtype))
    assert y.dtype == t.grad.dtype == dtype
    return y.numpy(), t.grad


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_activation
def test_pitfall_25_no_overflow_and_no_nan_at_the_ends(name, dtype):
    ends = [-np.inf, -1e20, -1000.0, 1000.0, 1e20, np.inf]
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        y, slope = value_and_slope(SCALAR[name][0], ends, dtype)
    if name in ("relu", "gelu", "gelu tanh", "silu"):
        np.testing.assert_array_equal(y, [0, 0, 0, 1000, dtype(1e20), np.inf])
        np.testing.assert_array_equal(slope, [0, 0, 0, 1, 1, 1])
    else:
        low = 0 if name == "sigmoid" else -1
        np.testing.assert_array_equal(y, [low, low, low, 1, 1, 1])
        np.testing.assert_array_equal(slope, np.zeros(6))


@every_activation
def test_nan_stays_nan(name):
    assert np.isnan(SCALAR[name][0](Tensor([np.nan])).numpy()).all()


def test_pitfall_25_gelu_values():
    one = Tensor(np.float64(1))
    assert ops.gelu(one).item() == pytest.approx(0.8413447460685429, rel=1e-15)
    assert ops.gelu(one, approximate="tanh").item() == pytest.approx(0.8411919906082768, rel=1e-15)
    assert ops.gelu(Tensor(np.float32(-6))).item() == pytest.approx(-5.9195e-9, rel=1e-4)
    assert ops.gelu(Tensor(np.float64(-6))).item() == pytest.approx(-6 * 0.5 * math.erfc(6 / math.sqrt(2)), rel=1e-13)


def test_gelu_refuses_a_third_form():
    with pytest.raises(ValueError, match=r'"none".*"tanh".*True'):
        ops.gelu(Tensor([1.0]), approximate=True)


@pytest.mark.parametrize(("dtype", "end"), [(np.float32, 80.0), (np.float64, 700.0)])
def test_sigmoid_is_accurate_at_both_ends(dtype, end):
    x = np.array([-end, -20.0, 20.0, end], dtype)
    y, slope = value_and_slope(ops.sigmoid, x, dtype)
    tail = np.exp(-np.abs(x.astype(np.float64))) * np.array([1, 1 / (1 + np.exp(-20)), 1 / (1 + np.exp(-20)), 1])
    np.testing.assert_allclose(y, [tail[0], tail[1], 1 - tail[2], 1], rtol=3e-6 if dtype == np.float32 else 1e-14)
    exact = [tail[0], tail[1] / (1 + np.exp(-20)), tail[2] / (1 + np.exp(-20)), tail[3]]
    np.testing.assert_allclose(slope, exact, rtol=3e-6 if dtype == np.float32 else 1e-14)


def test_kinks():
    assert value_and_slope(ops.relu, [0.0, -0.0], np.float64)[1].tolist() == [0, 0]


def test_relu_multiplies_no_infinity_by_zero():
    x = Tensor([-1.0, 1.0], requires_grad=True)
    ops.relu(x).backward([np.inf, np.inf])
    np.testing.assert_array_equal(x.grad, [0, np.inf])
