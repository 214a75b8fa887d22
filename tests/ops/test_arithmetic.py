from __future__ import annotations

import numpy as np
import pytest
from drawn import generators, quick, shapes
from hypothesis import given
from hypothesis.extra import numpy as hnp

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck

NUMPY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "power": np.power}


@pytest.mark.parametrize("name", NUMPY)
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3), generators)
@quick
def test_two_operands_of_any_shapes_that_broadcast(name, drawn, rng):
    op = getattr(ops, name)
    x, y = (np.asarray(rng.uniform(0.5, 2.0, shape)) for shape in drawn.input_shapes)
    np.testing.assert_allclose(op(x, y).numpy(), NUMPY[name](x, y), rtol=1e-15)
    report = gradcheck(op, x, y)
    assert report.error < 1e-6


@given(shapes, generators)
@quick
def test_neg(shape, rng):
    x = np.asarray(rng.standard_normal(shape))
    np.testing.assert_array_equal(ops.neg(x).numpy(), -x)
    gradcheck(ops.neg, x)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 7, 0.0, 2.0])
@given(shapes, generators)
@quick
def test_power_with_a_whole_exponent_takes_negative_numbers(exponent, shape, rng):
    x = np.asarray(rng.uniform(0.5, 2.0, shape) * rng.choice([-1.0, 1.0], shape))
    np.testing.assert_allclose(ops.power(x, exponent).numpy(), x ** float(exponent), rtol=1e-14)
    gradcheck(lambda x: ops.power(x, exponent), x)


def slope(f, x):
    t = Tensor(np.asarray(x, np.float64), requires_grad=True)
    f(t).backward(np.ones(t.shape))
    return t.grad


@pytest.mark.parametrize(("exponent", "right"), [(0, 0.0), (1, 1.0), (2, 0.0), (1.5, 0.0), (3, 0.0)])
def test_power_at_zero_is_finite_where_the_derivative_is(exponent, right):
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(slope(lambda x: x**exponent, [0.0, -0.0]), [right, right])
        np.testing.assert_array_equal(slope(lambda x: x ** np.full(2, float(exponent)), [0.0, -0.0]), [right, right])


def test_power_at_zero_is_infinite_where_the_derivative_is():
    with np.errstate(divide="ignore"):
        assert slope(lambda x: x**0.5, 0.0) == np.inf


def test_power_gradient_of_the_exponent_at_zero():
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(slope(lambda y: ops.power(np.zeros(3), y), [0.0, 1.0, 2.0]), [0, 0, 0])
    with np.errstate(divide="ignore"):
        assert slope(lambda y: ops.power(0.0, y), -0.5) == -np.inf
    assert slope(lambda y: 2.0**y, 3.0) == pytest.approx(8 * np.log(2), rel=1e-15)


def test_power_takes_no_logarithm_for_a_constant_exponent():
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(slope(lambda x: x**2, [-3.0, 0.0, 2.0]), [-6, 0, 4])
        np.testing.assert_array_equal(slope(lambda x: x**3, [-3.0, 0.0, 2.0]), [27, 0, 12])
    np.testing.assert_array_equal(slope(lambda x: x**0, [np.inf, np.nan]), [0, 0])  # x^0 is the constant 1


def test_div_does_not_square_the_denominator():
    x, y = Tensor(np.float32(1e30), requires_grad=True), Tensor(np.float32(1e25), requires_grad=True)
    with np.errstate(over="raise"):
        ops.div(x, y).backward()
    assert y.grad == pytest.approx(-1e-20, rel=1e-6)


def test_pitfall_02_an_operand_that_occurs_twice():
    x = Tensor(np.arange(3.0), requires_grad=True)
    dy = np.array([1.0, 2.0, 3.0])
    for f, right in [(lambda x: x + x, 2 * dy), (lambda x: x - x, 0 * dy), (lambda x: x * x, 2 * x.numpy() * dy)]:
        x.grad = None
        f(x).backward(dy)
        np.testing.assert_array_equal(x.grad, right)


def test_pitfall_06_one_row_added_to_ten_thousand():
    row = Tensor(np.zeros(3), requires_grad=True)
    (np.ones((10_000, 3)) + row).backward(np.ones((10_000, 3)))
    np.testing.assert_array_equal(row.grad, [10_000] * 3)


def test_pitfall_14_every_consumer_comes_first():
    x = Tensor(1.0, requires_grad=True)
    (x * (x * 1) + x * (x * 1) + (x * x) * 1).backward()
    assert x.grad == 6


def test_shapes_that_do_not_broadcast_name_the_op():
    with pytest.raises(ValueError, match="broadcast") as caught:
        Tensor(np.ones((2, 3))) + np.ones((2, 4))
    assert any("add(x (2, 3), y (2, 4))" in note for note in caught.value.__notes__)
