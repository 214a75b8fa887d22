from __future__ import annotations

import numpy as np
import pytest
from drawn import apart, generators, quick, shapes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck


@pytest.mark.parametrize("name", ["maximum", "minimum"])
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3), generators)
@quick
def test_maximum_and_minimum(name, drawn, rng):
    x, y = apart(rng, *drawn.input_shapes)
    op = getattr(ops, name)
    np.testing.assert_array_equal(op(x, y).numpy(), getattr(np, name)(x, y))
    gradcheck(op, x, y)


@given(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, min_side=0, max_side=3), generators)
@quick
def test_where(drawn, rng):
    c, x, y = (np.asarray(rng.standard_normal(shape)) for shape in drawn.input_shapes)
    np.testing.assert_array_equal(ops.where(c > 0, x, y).numpy(), np.where(c > 0, x, y))
    gradcheck(ops.where, c > 0, x, y)


@given(shapes, generators, st.sampled_from([(-0.25, 0.35), (None, 0.35), (-0.25, None), (None, None)]))
@quick
def test_clip_and_abs(shape, rng, bounds):
    (x,) = apart(rng, shape)
    low, high = (-np.inf if b is None else b for b in bounds[:1]), (np.inf if b is None else b for b in bounds[1:])
    np.testing.assert_array_equal(ops.clip(x, *bounds).numpy(), np.clip(x, next(low), next(high)))
    gradcheck(ops.clip, x, *bounds)
    np.testing.assert_array_equal(ops.abs(x).numpy(), np.abs(x))
    gradcheck(ops.abs, x)


def slopes(f, *arrays, dy=1.0):
    tensors = [Tensor(np.array(a, np.float64), requires_grad=True) for a in arrays]
    y = f(*tensors)
    y.backward(np.full(y.shape, dy))
    return [t.grad.tolist() for t in tensors]


def test_ties_share_equally():
    for op in (ops.maximum, ops.minimum):
        assert slopes(op, [1.0, -0.0], [1.0, 0.0]) == [[0.5, 0.5], [0.5, 0.5]]
    x = Tensor(np.ones(3), requires_grad=True)
    ops.maximum(x, x).backward(np.ones(3))
    assert x.grad.tolist() == [1, 1, 1]


def test_kinks():
    assert slopes(abs, [0.0, -0.0, -2.0]) == [[0, 0, -1]]
    assert slopes(lambda x: ops.clip(x, -1, 1), [-2.0, -1.0, 0.0, 1.0, 2.0]) == [[0, 1, 1, 1, 0]]


def test_no_infinity_is_multiplied_by_zero():
    assert slopes(ops.maximum, [1.0, 2.0], [2.0, 1.0], dy=np.inf) == [[0, np.inf], [np.inf, 0]]
    assert slopes(lambda x: ops.clip(x, 0, 1), [-1.0, 0.5], dy=np.inf) == [[0, np.inf]]
    assert slopes(lambda x: ops.where([True, False], x, 0), [1.0, 1.0], dy=np.inf) == [[np.inf, 0]]


def test_pitfall_13_where_passes_on_the_nan_that_was_made_before_it():
    x = Tensor(np.array([-1.0, -4.0]), requires_grad=True)
    with np.errstate(invalid="ignore"):
        y = ops.where(x > 0, ops.sqrt(x), x)
        y.backward(np.ones(2))
    np.testing.assert_array_equal(y.numpy(), [-1, -4])
    assert np.isnan(x.grad).all()  # as in PyTorch; the op's page says so, and what to do:
    assert slopes(lambda x: ops.where(x > 0, ops.sqrt(ops.where(x > 0, x, 1)), x), [-1.0, -4.0]) == [[1, 1]]


def test_pitfall_13_clip_keeps_a_nan_out():
    assert slopes(lambda x: ops.clip(x, 0, 1), [np.nan, np.inf, 0.5]) == [[0, 0, 1]]


def test_where_copies_its_condition():
    condition = np.array([True, False])
    x = Tensor(np.ones(2), requires_grad=True)
    y = ops.where(condition, x, 0)
    condition[:] = False
    y.backward([1.0, 1.0])
    assert x.grad.tolist() == [1, 0]


def test_where_takes_a_tensor_as_condition_and_numbers():
    y = ops.where(Tensor(np.array([True, False])), 1, Tensor(np.zeros(2)))
    assert y.dtype == np.float64
    assert y.numpy().tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_take_the_dtype_of_x(dtype):
    x = Tensor(np.array([0.0, 5.0], dtype), requires_grad=True)
    y = x.clip(np.float64(1), np.array([2.0, 3.0]))
    assert y.dtype == dtype
    assert y.numpy().tolist() == [1, 3]


def test_bounds_that_broadcast_x():
    assert slopes(lambda x: ops.clip(x, [[0.0], [2.0]], 3.0), [1.0, 2.5]) == [[1.0, 2.0]]


def test_messages():
    with pytest.raises(TypeError, match="where: the condition is boolean, not int64; compare first"):
        ops.where(np.array([1, 0]), 1.0, 2.0)
    with pytest.raises(ValueError, match=r"clip: low is at most high, and neither is NaN; low 2\.0 and high 1\.0"):
        ops.clip(Tensor([0.0]), 2, 1)
    for bounds in [(np.nan, 1), (0, np.nan), ([np.nan], None)]:
        with pytest.raises(ValueError, match="neither is NaN"):
            ops.clip(Tensor([0.0]), *bounds)
    with pytest.raises(TypeError, match="clip: low is not differentiable"):
        ops.clip(Tensor([0.0]), Tensor([0.0], requires_grad=True), 1)
