"""A Tensor as a Python object: what goes in, what it says of itself, what it refuses; and its copies."""
from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from minitx import Tensor, no_grad

# ---------------------------------------------------------------------- what goes in


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1.5, np.float32), ([1, 2], np.float32), ([[1.0], [2.0]], np.float32), (True, np.float32),
        (np.float64(1.5), np.float64), (np.ones(2), np.float64), (np.ones(2, np.float32), np.float32),
        (np.arange(3), np.int64), (np.array([True]), np.bool_), (np.zeros((0, 3)), np.float64),
    ],
)  # fmt: skip
def test_dtype_of_a_tensor(data, dtype):
    """Lists and Python numbers are float32; an array keeps its dtype."""
    t = Tensor(data)
    assert t.dtype == dtype
    assert t.shape == np.shape(data)
    assert (t.ndim, t.size) == (np.ndim(data), np.size(data))


@pytest.mark.parametrize("dtype", [np.float16, np.complex128, np.longdouble, object, "U3"])
def test_dtypes_that_are_refused(dtype):
    with pytest.raises(TypeError, match="a Tensor holds float32 or float64"):
        Tensor(np.ones(2).astype(dtype))


def test_copies_its_array():
    a = np.array([1.0, 2.0])
    t = Tensor(a)
    a += 1
    np.testing.assert_array_equal(t.data, [1.0, 2.0])
    assert a.flags.writeable
    b = t.numpy()
    b += 1
    np.testing.assert_array_equal(t.data, [1.0, 2.0])


def test_tensor_of_a_tensor():
    with pytest.raises(TypeError, match=r"use t\.detach\(\)"):
        Tensor(Tensor([1.0]))


@pytest.mark.parametrize("data", [np.arange(3), np.array([True])])
def test_only_floats_have_gradients(data):
    with pytest.raises(TypeError, match="only floats have gradients, and this Tensor is"):
        Tensor(data, requires_grad=True)
    t = Tensor(data)
    with pytest.raises(TypeError, match="only floats"):
        t.requires_grad = True


def test_requires_grad_of_a_result():
    x = Tensor([1.0], requires_grad=True)
    y = x * 2
    assert y.requires_grad
    assert not y.is_leaf
    with pytest.raises(RuntimeError, match="use detach"):
        y.requires_grad = False
    x.requires_grad = False
    assert not (x * 2).requires_grad


def test_misspelt_attribute():
    with pytest.raises(AttributeError):
        Tensor([1.0]).requires_gard = True


# ---------------------------------------------------------------------- what it refuses


@pytest.mark.parametrize("f", [np.asarray, np.array, np.ascontiguousarray, lambda t: np.stack([t, t])])
def test_is_not_turned_into_an_array_silently(f):
    with pytest.raises(TypeError, match=r"use t.numpy\(\)"):
        f(Tensor([1.0, 2.0], requires_grad=True))


@pytest.mark.parametrize("f", [np.add, np.multiply])
def test_numpy_functions_do_not_take_it(f):
    with pytest.raises(TypeError, match="does not support ufuncs"):
        f(np.ones(2), Tensor([1.0, 2.0]))


def test_truth():
    assert Tensor(1.0)
    assert not Tensor([[0.0]])
    for t in (Tensor([1.0, 2.0]), Tensor([])):
        with pytest.raises(ValueError, match="neither true nor false"):
            bool(t)


def test_numbers():
    t = Tensor([[2.5]])
    assert (t.item(), float(t), int(t)) == (2.5, 2.5, 2)
    assert type(t.item()) is float
    with pytest.raises(ValueError, match=r"exactly one element; this Tensor has shape \(2,\)"):
        Tensor([1.0, 2.0]).item()


def test_length_and_iteration():
    t = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], requires_grad=True)
    assert len(t) == 3
    a, _, c = t
    (a + c).backward(np.array([1.0, 10.0]))
    np.testing.assert_array_equal(t.grad, [[1, 10], [0, 0], [1, 10]])
    for f in (len, list):
        with pytest.raises(TypeError, match="without axes"):
            f(Tensor(1.0))


# ---------------------------------------------------------------------- comparing and finding


def test_equality_compares_elements_and_hash_is_identity():
    a, b = Tensor([1.0, 2.0]), Tensor([1.0, 3.0])
    np.testing.assert_array_equal(a == b, [True, False])
    np.testing.assert_array_equal(a != b, [False, True])
    np.testing.assert_array_equal(a == np.array([1.0, 0.0]), [True, False])
    assert type(a == b) is np.ndarray
    assert len({a, b, a}) == 2
    assert {a: "a", b: "b"}[b] == "b"


def test_argmax_is_a_plain_array():
    t = Tensor([[1.0, 3.0, 3.0], [5.0, 4.0, 0.0]])
    np.testing.assert_array_equal(t.argmax(1), [1, 0])
    np.testing.assert_array_equal(t.argmin(1), [0, 2])
    assert t.argmax() == 3


# ---------------------------------------------------------------------- what it says of itself


def test_repr():
    assert repr(Tensor([1.0, 2.5])) == "Tensor([1. , 2.5])"
    assert repr(Tensor(np.array([1.0]), requires_grad=True)) == "Tensor([1.], float64, requires_grad=True)"
    x = Tensor([1.0, 2.0], requires_grad=True)
    assert repr(x * 2) == "Tensor([2., 4.], from mul)"
    assert repr(Tensor(np.zeros((7, 11), np.float32), True)) == "Tensor(shape (7, 11), float32, requires_grad=True)"
    assert repr(Tensor(np.zeros((7, 11), np.float32), True) + 1) == "Tensor(shape (7, 11), float32, from add)"
    assert repr(Tensor(np.arange(2))) == "Tensor([0, 1], int64)"
    assert repr(x.data) == "array([1., 2.], dtype=float32)"


# ---------------------------------------------------------------------- leaving the graph, copies


def test_detach():
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2).detach()
    assert not y.requires_grad
    assert y.is_leaf
    (y * x).backward(np.ones(2))
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])
    z = x.detach()
    z.data -= 1.0
    np.testing.assert_array_equal(x.data, [1.0, 2.0])


@pytest.mark.parametrize("f", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_copies(f):
    x = Tensor(np.array([1.0, 2.0]), requires_grad=True)
    (x * 3).backward(np.ones(2))
    y = f(x)
    assert y.requires_grad
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y.data, x.data)
    np.testing.assert_array_equal(y.grad, x.grad)
    y.data -= 1.0
    (y * 1).backward(np.ones(2))
    np.testing.assert_array_equal(x.data, [1.0, 2.0])
    np.testing.assert_array_equal(x.grad, [3.0, 3.0])
    assert not y.data.flags.writeable


def test_deep_copy_keeps_what_is_shared():
    x = Tensor([1.0], requires_grad=True)
    first, second = copy.deepcopy([x, x])
    assert first is second
    assert first is not x


def test_only_leaves_are_copied():
    y = Tensor([1.0], requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="only a leaf can be copied; this Tensor comes from mul"):
        copy.deepcopy(y)


def test_copy_of_a_result_that_is_not_on_the_tape():
    with no_grad():
        y = Tensor([1.0], requires_grad=True) * 2
    assert copy.deepcopy(y).item() == 2.0


# ---------------------------------------------------------------------- the value of a leaf


def test_value_of_a_leaf_behaves_as_an_array():
    t = Tensor(np.array([[1.0, 2.0], [3.0, 4.0]]))
    v = t.data
    assert isinstance(v, np.ndarray)
    assert type(v + 1) is np.ndarray
    assert type(np.exp(v)) is np.ndarray
    assert isinstance(v.sum(), np.floating)
    assert v.mean(0).tolist() == [2.0, 3.0]
    assert (v @ v).tolist() == [[7.0, 10.0], [15.0, 22.0]]
    assert np.concatenate([v, v]).shape == (4, 2)
    out = np.empty((2, 2))
    np.add(v, 1, out=out)
    assert out.tolist() == [[2.0, 3.0], [4.0, 5.0]]
    x = v.copy()
    x += 1  # a copy is nobody's value
    assert t.data.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert copy.deepcopy(v).tolist() == v.tolist()
    assert pickle.loads(pickle.dumps(v)).tolist() == v.tolist()
