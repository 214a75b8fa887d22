"""The operators and methods of Tensor: each is the op it says, with its operands in the right order."""
from __future__ import annotations

import operator

import numpy as np
import pytest

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck

OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow]
NUMBERS = [1.5, 2, np.float64(1.5), np.float32(2)]
ARRAYS = [np.array(1.5), np.array([[0.5, 1.5, 2.5]]), np.array([[3], [4]]), [1.5]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("other", NUMBERS + ARRAYS, ids=repr)
@pytest.mark.parametrize("f", OPERATORS)
def test_pitfall_15_numbers_and_arrays_on_either_side(f, other, dtype):
    x = np.random.default_rng(0).uniform(0.5, 2.0, (2, 3)).astype(dtype)
    for flipped in (False, True):
        g = (lambda a, b: f(b, a)) if flipped else f
        t = Tensor(x, requires_grad=True)
        y = g(t, other)
        assert type(y) is Tensor
        assert y.requires_grad
        assert y.dtype == dtype  # the Tensor decides
        np.testing.assert_allclose(y.numpy(), g(x, np.array(other, dtype)), rtol=1e-6)
        y.backward(np.ones(y.shape))
        assert t.grad.dtype == dtype
        gradcheck(lambda t: g(t, other), x.astype(np.float64))  # noqa: B023


def test_pitfall_15_matmul_with_an_array_on_the_left():
    x = np.random.default_rng(0).standard_normal((2, 3))
    left = np.random.default_rng(1).standard_normal((5, 2))
    y = left @ Tensor(x, requires_grad=True)
    assert type(y) is Tensor
    assert y.requires_grad
    np.testing.assert_allclose(y.numpy(), left @ x, rtol=1e-14)
    gradcheck(lambda x: left @ x, x)
    gradcheck(lambda x: x @ left.T[..., :2], np.ones((2, 2)))


@pytest.mark.parametrize("f", [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne])
def test_comparisons_give_plain_arrays(f):
    x, y = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    for a, b in [(Tensor(x), y), (x, Tensor(y)), (Tensor(x), Tensor(y)), (Tensor(x), 2.0), (2.0, Tensor(y))]:
        result = f(a, b)
        assert type(result) is np.ndarray
        plain = [v.numpy() if isinstance(v, Tensor) else v for v in (a, b)]
        np.testing.assert_array_equal(result, f(*plain))


def test_unary_operators():
    x = Tensor([-2.0, 3.0], requires_grad=True)
    (-x + abs(x)).backward([1.0, 1.0])
    assert x.grad.tolist() == [-2, 0]


def test_augmented_assignment_binds_a_new_tensor():
    x = Tensor(np.arange(3.0), requires_grad=True)
    y = x
    y += 1
    y *= 2
    y -= x
    y /= 2
    y.backward(np.ones(3))
    assert y is not x
    assert x.numpy().tolist() == [0, 1, 2]
    assert x.grad.tolist() == [0.5, 0.5, 0.5]


def test_builtin_sum_starts_from_a_number():
    xs = [Tensor([1.0, 2.0]), Tensor([3.0, 4.0])]
    assert sum(xs).numpy().tolist() == [4, 6]


@pytest.mark.parametrize(
    "name", ["exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "sum", "mean", "var", "max", "min", "logsumexp"]
)
def test_methods(name):
    x = np.random.default_rng(0).uniform(0.5, 2.0, (2, 3))
    np.testing.assert_array_equal(getattr(Tensor(x), name)().numpy(), getattr(ops, name)(x).numpy())
    gradcheck(lambda x: getattr(x, name)(), x)


def test_methods_of_shape():
    x = np.random.default_rng(0).standard_normal((2, 3, 1))
    for f in (
        lambda x: x.clip(-0.5, 0.5),
        lambda x: x.broadcast_to((2, 3, 5)),
        lambda x: x.squeeze(-1),
        lambda x: x.expand_dims(0),
        lambda x: x.reshape(3, 2).transpose().swapaxes(0, 1).T,
    ):
        gradcheck(f, x)
    assert Tensor(x).T.shape == (1, 3, 2)


def test_two_dtypes_do_not_mix():
    with pytest.raises(TypeError, match="add: Tensors of float32 and float64 do not mix"):
        Tensor([1.0]) + Tensor(np.ones(1))


def test_what_is_no_number_is_refused():
    x = Tensor([1.0])
    for other in ("a", None, object()):
        with pytest.raises((TypeError, ValueError)):
            x + other
