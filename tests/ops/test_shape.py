from __future__ import annotations

import numpy as np
import pytest
from drawn import axes_of, generators, quick, shapes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck


def check(f, g, *arrays):
    """f of Tensors has the value of g of arrays, and the right gradient."""
    np.testing.assert_array_equal(f(*(Tensor(a) for a in arrays)).numpy(), g(*arrays))
    gradcheck(f, *arrays)


@given(st.data(), shapes, generators)
@quick
def test_reshape_and_transpose(data, shape, rng):
    x = np.asarray(rng.standard_normal(shape))
    other = tuple(data.draw(st.permutations(shape)))
    check(lambda x: ops.reshape(x, other), lambda x: x.reshape(other), x)
    check(lambda x: x.reshape(*other), lambda x: x.reshape(other), x)
    axes = tuple(a - x.ndim if data.draw(st.booleans()) else a for a in data.draw(st.permutations(range(x.ndim))))
    check(lambda x: ops.transpose(x, axes), lambda x: x.transpose(axes), x)
    check(lambda x: x.transpose(*axes), lambda x: x.transpose(axes), x) if axes else None
    check(lambda x: x.T, lambda x: x.T, x)
    if x.ndim:
        a, b = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.integers(-x.ndim, x.ndim - 1))
        check(lambda x: x.swapaxes(a, b), lambda x: x.swapaxes(a, b), x)


def test_one_length_may_be_left_open():
    x = Tensor(np.arange(6.0))
    assert x.reshape(-1, 2).shape == x.reshape((3, -1)).shape == ops.reshape(x, (-1, 2)).shape == (3, 2)
    assert x.reshape(2, 3).reshape(-1).shape == (6,)
    assert x.reshape(2, 3).transpose((1, 0)).shape == x.reshape(2, 3).transpose().shape == (3, 2)
    assert x.transpose(0).shape == (6,)


@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3), generators)
@quick
def test_broadcast_to(drawn, rng):
    x = np.asarray(rng.standard_normal(drawn.input_shapes[0]))
    check(lambda x: ops.broadcast_to(x, drawn.result_shape), lambda x: np.broadcast_to(x, drawn.result_shape), x)


@given(st.data(), shapes, generators)
@quick
def test_squeeze_and_expand_dims(data, shape, rng):
    x = np.asarray(rng.standard_normal(shape))
    axis = data.draw(axes_of(x.ndim + 2))
    if axis is not None:
        try:
            wide = np.expand_dims(x, axis)
        except ValueError:  # drawn for more axes than it makes
            with pytest.raises(ValueError, match="axis"):
                ops.expand_dims(Tensor(x), axis)
            return
        check(lambda x: ops.expand_dims(x, axis), lambda x: np.expand_dims(x, axis), x)
        check(lambda x: ops.squeeze(x, axis), lambda x: np.squeeze(x, axis), wide)
        check(lambda x: x.squeeze(), lambda x: x.squeeze(), wide)


@given(st.data(), hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3), generators)
@quick
def test_concatenate_stack_split(data, shape, rng):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    xs = []
    for n in lengths:
        own = list(shape)
        own[axis] = n
        xs.append(rng.standard_normal(own))
    check(lambda *xs: ops.concatenate(*xs, axis=axis), lambda *xs: np.concatenate(xs, axis), *xs)
    check(lambda *xs: ops.concatenate(list(xs), axis=axis), lambda *xs: np.concatenate(xs, axis), *xs)
    same = [rng.standard_normal(shape) for _ in lengths]
    check(lambda *xs: ops.stack(*xs, axis=axis), lambda *xs: np.stack(xs, axis), *same)
    whole, cuts = np.concatenate(xs, axis), np.cumsum(lengths)[:-1].tolist()
    for piece, x in zip(ops.split(Tensor(whole), cuts, axis), xs, strict=True):
        np.testing.assert_array_equal(piece.numpy(), x)
    gradcheck(ops.split, whole, cuts, axis)
    halves = np.concatenate([whole, whole], axis)
    gradcheck(ops.split, halves, 2, axis)


def test_a_piece_that_nobody_uses_gets_zero():
    x = Tensor(np.arange(5.0), requires_grad=True)
    ops.split(x, [2, 3])[2].backward([1.0, 2.0])
    assert x.grad.tolist() == [0, 0, 0, 1, 2]


@given(st.data(), shapes, generators)
@quick
def test_pad(data, shape, rng):
    x = np.asarray(rng.standard_normal(shape))
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, 2)] * 2), min_size=x.ndim, max_size=x.ndim))
    if x.ndim:
        check(lambda x: ops.pad(x, pairs, 0.7), lambda x: np.pad(x, pairs, constant_values=0.7), x)
        check(lambda x: ops.pad(x, (1, 2)), lambda x: np.pad(x, (1, 2)), x)
    check(lambda x: ops.pad(x, 1), lambda x: np.pad(x, 1) if x.ndim else x, x)


def test_pitfall_30_reshape_is_not_transpose():
    x = Tensor([[0.0, 1, 2, 3], [4, 5, 6, 7]])
    heads = x.reshape(2, 2, 2).transpose(1, 0, 2)
    assert heads.numpy().tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    np.testing.assert_array_equal(heads.transpose(1, 0, 2).reshape(2, 4).numpy(), x.numpy())


def test_integers_and_booleans_can_be_moved():
    ids = Tensor(np.arange(6))
    assert ops.concatenate(ids.reshape(2, 3).T, ids.reshape(3, 2)).dtype == np.int64
    assert ops.pad(ids, 1, -100).numpy().tolist() == [-100, 0, 1, 2, 3, 4, 5, -100]


def test_messages():
    x = Tensor(np.ones((2, 3)))
    with pytest.raises(ValueError, match="reshape keeps the number of elements, 6 of shape"):
        x.reshape(4, 2)
    with pytest.raises(ValueError, match=r"concatenate: .* differ along axis 0 only; not \(2, 3\), \(2, 4\)"):
        ops.concatenate(x, Tensor(np.ones((2, 4))))
    with pytest.raises(ValueError, match="2 equal sections of 3"):
        ops.split(x, 2, 1)
    with pytest.raises(ValueError, match=r"split: the cuts go up from 0 to 3 at most; \[2, 1\] were given"):
        ops.split(x, [2, 1], 1)
    with pytest.raises(ValueError, match="pad: widths are not negative"):
        ops.pad(x, (0, -1))
    with pytest.raises(TypeError, match="float32 and float64 do not mix"):
        ops.stack(x, Tensor([[1.0]]))
    with pytest.raises(ValueError, match="not none at all"):
        ops.concatenate([])
    with pytest.raises(TypeError, match="concatenate: axis is one integer"):
        ops.concatenate(x, x, axis=None)
    with pytest.raises(np.exceptions.AxisError):
        ops.concatenate(x, x, axis=5)
    with pytest.raises(ValueError, match=r"stack: .* all of one shape, not \(2, 3\), \(3, 2\)"):
        ops.stack(x, x.T)
    with pytest.raises(ValueError, match="number of sections is at least 1, not 0"):
        ops.split(x, 0)
    with pytest.raises(TypeError, match="pad: widths are integers, not float64"):
        ops.pad(x, 1.7)
    with pytest.raises(TypeError, match="pad: value is a number, not 'a'"):
        ops.pad(x, 1, "a")
    with pytest.raises(ValueError, match=r"each of the 2 axes of x once, in the new order, not \(0,\)"):
        x.transpose(0)
    with pytest.raises(ValueError, match=r"axis 0 of \(2, 3\) is longer"):
        x.squeeze(0)


@pytest.mark.parametrize(
    ("f", "given"),
    [
        (ops.transpose, [1, 2, 0]),
        (ops.expand_dims, [0, 2]),
        (ops.squeeze, [1]),
        (ops.reshape, [3, 2]),
        (ops.pad, [1, 2]),
        (ops.sum, [0, 2]),
        (ops.mean, [0, 2]),
        (ops.var, [0, 2]),
        (ops.max, [0, 2]),
        (ops.min, [0, 2]),
        (ops.logsumexp, [0, 2]),
        (ops.getitem, [1, 1]),
        (lambda x, cuts: ops.split(x, cuts, axis=2)[1], [1, 2]),
    ],
)
def test_a_list_may_be_changed_before_backward(f, given):
    def gradient(changed):
        x = Tensor(np.random.default_rng(0).standard_normal((2, 1, 3)), requires_grad=True)
        options = list(given)
        y = f(x, options)
        if changed:
            options[:] = [0] * len(options)
        y.backward(np.random.default_rng(1).standard_normal(y.shape))
        return x.grad

    np.testing.assert_array_equal(gradient(True), gradient(False))
