import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.ops import linear


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3), max_size=3), st.integers(0, 5), st.integers(0, 7), st.booleans())
def test_any_leading_axes(leading, n_in, n_out, with_bias):
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((*leading, n_in)), rng.standard_normal((n_out, n_in))
    bias = rng.standard_normal(n_out) if with_bias else None
    y = linear(x, weight, bias).numpy()
    assert y.shape == (*leading, n_out)
    np.testing.assert_allclose(y, np.einsum("...i,oi->...o", x, weight) + (bias if with_bias else 0), atol=1e-13)
    gradcheck(linear, *(a for a in (x, weight, bias) if a is not None))


def test_pitfall_35_no_rows():
    x, weight, bias = (Tensor(np.ones(shape), requires_grad=True) for shape in ((0, 3), (2, 3), (2,)))
    y = linear(x, weight, bias)
    assert y.shape == (0, 2)
    y.backward(np.zeros((0, 2)))
    assert x.grad.shape == (0, 3)
    np.testing.assert_array_equal(weight.grad, np.zeros((2, 3)))
    np.testing.assert_array_equal(bias.grad, np.zeros(2))


def test_pitfall_06_bias_gradient_of_many_rows():
    rows = 10_000
    bias = Tensor(np.zeros(3, np.float32), requires_grad=True)
    linear(np.ones((rows, 2)), np.ones((3, 2)), bias).backward(np.ones((rows, 3)))
    np.testing.assert_array_equal(bias.grad, np.full(3, rows, np.float32))


def test_only_what_is_needed():
    x, weight, bias = np.ones((5, 3)), np.ones((2, 3)), np.ones(2)
    _, backward = linear.definition(x, weight, bias)

    class Need:
        x, weight, bias = False, True, False

    dx, dweight, dbias = backward(np.ones((5, 2)), Need)
    assert dx is None
    assert dweight.shape == (2, 3)
    assert dbias is None


def test_errors():
    with pytest.raises(ValueError, match=r"x is \(5, 2\), weight \(2, 3\) takes 3; is weight transposed\?"):
        linear(np.ones((5, 2)), np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"x is \(5, 7\), weight \(2, 3\) takes 3(?!;)"):
        linear(np.ones((5, 7)), np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"x is \(\)"):
        linear(np.ones(()), np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"two axes, \(out, in\), not the shape \(3,\)"):
        linear(np.ones(3), np.ones(3))
    with pytest.raises(ValueError, match=r"one bias per output, \(2,\) for weight \(2, 3\), not \(3,\)"):
        linear(np.ones(3), np.ones((2, 3)), np.ones(3))
