from __future__ import annotations

import numpy as np
import pytest
from drawn import generators, quick
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck

arrays_shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4)


def check(x, index):
    """Against the definition: y = P x, so dx = Pᵀ dy, with P read off from where the numbers 0 .. n-1 go."""
    t = Tensor(x, requires_grad=True)
    y = t[index]
    plain = tuple(i.numpy() if isinstance(i, Tensor) else i for i in index) if isinstance(index, tuple) else index
    np.testing.assert_array_equal(y.numpy(), x[plain])
    dy = np.asarray(np.random.default_rng(0).standard_normal(y.shape))
    y.backward(dy)
    source = np.arange(x.size).reshape(x.shape)[plain]
    P = source.reshape(-1, 1) == np.arange(x.size)
    np.testing.assert_allclose(t.grad, (P.T @ dy.ravel()).reshape(x.shape), rtol=1e-14, atol=1e-14)


@given(st.data(), arrays_shapes, generators)
@quick
def test_slices_integers_ellipsis_newaxis(data, shape, rng):
    check(rng.standard_normal(shape), data.draw(hnp.basic_indices(shape, allow_newaxis=True)))


@given(st.data(), arrays_shapes, generators)
@quick
def test_integer_arrays_with_repeats(data, shape, rng):
    result_shapes = hnp.array_shapes(max_dims=2, min_side=0, max_side=5)
    index = data.draw(hnp.integer_array_indices(shape, result_shape=result_shapes))
    check(rng.standard_normal(shape), index)


@given(arrays_shapes, generators)
@quick
def test_masks(shape, rng):
    x = rng.standard_normal(shape)
    check(x, rng.random(shape) < 0.5)
    check(x, rng.random(shape[:1]) < 0.5)
    check(x, np.zeros(shape, bool))


@pytest.mark.parametrize(
    "index",
    [
        [2, 0, 2],
        [],
        [True, False, True],
        (slice(None), [0, 0, 4]),
        (np.array([0, 2]), slice(1, 4)),
        (np.array([[0], [2]]), np.array([1, 1, 3])),
        (np.array([True, False, True]), np.array([1, 1])),
        (Ellipsis, np.array([1, 1]), None),
        (None, np.array(1)),
        np.array([-1, 2, -1]),
        np.int64(1),
        (np.int32(1), -1),
        slice(None, None, -1),
        Ellipsis,
        (),
        True,
        False,
    ],
)
def test_mixed(index):
    check(np.arange(15.0).reshape(3, 5), index)


def test_indices_that_are_tensors():
    check(np.arange(15.0).reshape(3, 5), (Tensor(np.array([1, 1])), slice(2)))
    x = Tensor(np.arange(15.0).reshape(3, 5), requires_grad=True)
    assert x[Tensor(np.array([2, 0]))].numpy().tolist() == x.numpy()[[2, 0]].tolist()


def test_arrays_without_axes():
    x = Tensor(np.array(3.0), requires_grad=True)
    (x[()] + x[...] + x[None][0]).backward()
    assert x.grad == 3


def test_the_index_is_copied():
    for index in (np.array([0, 1]), np.array([True, True, False])):
        x = Tensor(np.zeros(3), requires_grad=True)
        y = x[index]
        index[...] = 0
        y.backward([1.0, 2.0])
        assert x.grad.tolist() == [1, 2, 0]


def test_pitfall_06_many_repeats_lose_nothing():
    table = Tensor(np.zeros((3, 2), np.float32), requires_grad=True)
    table[np.zeros(10000, int)].backward(np.ones((10000, 2)))
    assert table.grad.tolist() == [[10000, 10000], [0, 0], [0, 0]]


@given(st.data(), arrays_shapes, generators)
@quick
def test_take_along_axis(data, shape, rng):
    x = rng.standard_normal(shape)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    wide = list(data.draw(st.sampled_from([shape, (1,) * x.ndim])))  # the other axes broadcast
    wide[axis] = data.draw(st.integers(0, 5))
    indices = rng.integers(-shape[axis], shape[axis], wide)
    np.testing.assert_array_equal(ops.take_along_axis(x, indices, axis).numpy(), np.take_along_axis(x, indices, axis))
    gradcheck(ops.take_along_axis, x, indices, axis)


def test_take_along_axis_broadcasts_x_too():
    x, indices = np.arange(3.0)[None], np.array([[0, 2], [2, 2]])
    assert ops.take_along_axis(x, indices).numpy().tolist() == [[0, 2], [2, 2]]
    gradcheck(ops.take_along_axis, x, indices)


def test_messages():
    x = Tensor(np.ones((2, 3)))
    with pytest.raises(IndexError, match="index 2 is out of bounds for axis 0 with size 2"):
        x[2]
    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 1 with size 3"):
        x[:, np.array([0, 7])]
    with pytest.raises(IndexError, match="too many indices"):
        x[0, 0, 0]
    with pytest.raises(IndexError, match="integer"):
        x[np.array([0.5])]
    with pytest.raises(IndexError, match="boolean index did not match"):
        x[np.ones(5, bool)]
    with pytest.raises(IndexError, match="take_along_axis: indices are integers with as many axes as x, which has 2"):
        ops.take_along_axis(x, np.array([0, 1]))
    with pytest.raises(IndexError, match="out of bounds"):
        ops.take_along_axis(x, np.array([[3]]))
    with pytest.raises(ValueError, match="axis 2 is out of bounds"):
        ops.take_along_axis(x, np.array([[0]]), 2)
    with pytest.raises(TypeError, match="would change a value that graphs may need"):
        x[0] = 1


def test_iteration_and_length():
    x = Tensor(np.arange(6.0).reshape(2, 3), requires_grad=True)
    a, b = x
    (a * b).backward([1.0, 1.0, 1.0])
    assert x.grad.tolist() == [[3, 4, 5], [0, 1, 2]]
    assert len(x) == 2
