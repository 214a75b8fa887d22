"""The contract of an op: what the engine does around a rule, and what it says when a rule or a caller breaks it."""
from __future__ import annotations

import functools

import numpy as np
import pytest

import minitx
from minitx import Tensor, composite, no_grad, op, ops
from minitx.op import registry
from minitx.ops import gelu, layer_norm, linear, mul, tanh


def leaf(*values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


@op
def product(x, y):
    def backward(dy, need):
        asked.append(tuple(need))
        return dy * y if need.x else None, dy * x if need.y else None

    return x * y, backward


asked: list = []


@op("x", "weight", "bias")
def affine(x, weight=None, bias=None, *, power=1):
    y = x if weight is None else x * weight
    y = y if bias is None else y + bias

    def backward(dy, need):
        asked.append(need)
        dx = dy if weight is None else dy * weight
        return dx, dy * x if need.weight else None, dy if need.bias else None

    return y, backward


# ---------------------------------------------------------------------- declaring


def test_parameters_without_default_are_differentiable():
    assert product.wrt == ("x", "y")
    assert affine.wrt == ("x", "weight", "bias")
    assert repr(affine) == "<op affine(x, weight=None, bias=None, *, power=1)>"
    assert (product.__name__, product.__module__) == ("product", __name__)


def test_unknown_name():
    with pytest.raises(TypeError, match="@op: f has no parameter 'z'; it has x, y"):

        @op("x", "z")
        def f(x, y):
            return x, None


def test_registry_holds_the_ops_of_minitx_only():
    assert "product" not in registry
    assert registry["gelu"] is gelu


# ---------------------------------------------------------------------- what is wanted


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
def test_backward_is_told_what_is_wanted(wanted):
    asked.clear()
    x, y = (Tensor(np.array([2.0, 3.0]), requires_grad=w) for w in wanted)
    product(x, y).backward(np.array([1.0, 10.0]))
    assert asked == [wanted]
    assert [t.grad is not None for t in (x, y)] == list(wanted)


def test_a_rule_may_ignore_what_is_wanted():
    @op
    def eager(x, y):
        return x * y, lambda dy: (dy * y, dy * x)

    x, y = leaf(2.0), Tensor(np.array([3.0]))
    eager(x, y).backward()
    assert x.grad == [3.0]
    assert y.grad is None


def test_no_node_where_nothing_is_wanted():
    assert product(Tensor([1.0]), Tensor([2.0])).node is None
    with no_grad():
        assert product(leaf(1.0), leaf(2.0)).node is None


@pytest.mark.parametrize("call", [
    lambda x, w, b: affine(x, w, b),
    lambda x, w, b: affine(x, w, bias=b),
    lambda x, w, b: affine(x, bias=b, weight=w),
    lambda x, w, b: affine(bias=b, weight=w, x=x),
])  # fmt: skip
def test_by_position_or_by_name(call):
    x, w, b = leaf(2.0, 3.0), leaf(5.0, 7.0), leaf(1.0, 1.0)
    y = call(x, w, b)
    np.testing.assert_array_equal(y.data, [11.0, 22.0])
    y.backward(np.array([1.0, 10.0]))
    np.testing.assert_array_equal(x.grad, [5.0, 70.0])
    np.testing.assert_array_equal(w.grad, [2.0, 30.0])
    np.testing.assert_array_equal(b.grad, [1.0, 10.0])


def test_none_for_an_optional_argument():
    asked.clear()
    x, b = leaf(2.0), leaf(1.0)
    for y in (affine(x, None, b), affine(x, weight=None, bias=b)):
        y.backward()
    assert [tuple(need) for need in asked] == [(True, False, True)] * 2
    assert (x.grad, b.grad) == ([2.0], [2.0])


def test_several_outputs():
    @op
    def halves(x):
        return (x[:1], x[1:]), lambda dys: np.concatenate(dys)

    x = leaf(2.0, 3.0, 4.0)
    a, b = halves(x)
    assert (a.shape, b.shape) == ((1,), (2,))
    b.backward(np.array([1.0, 10.0]))
    np.testing.assert_array_equal(x.grad, [0.0, 1.0, 10.0])


def test_any_number_of_arguments():
    @op
    def weighted(scale, *xs, plus=0.0):
        def backward(dy, need):
            asked.append(need)
            return sum(xs) * dy, *(dy * scale if n else None for n in need[1:])

        return scale * sum(xs) + plus, backward

    asked.clear()
    s, a, c = leaf(2.0), leaf(3.0), leaf(7.0)
    b = Tensor(np.array([5.0]))
    for y in (weighted(s, a, b, c), weighted(s, [a, b, c]), weighted(s, (a, 5.0, c), plus=1.0)):
        y.backward()
    assert asked == [(True, True, False, True)] * 3
    assert (s.grad, a.grad, c.grad) == ([45.0], [6.0], [6.0])


def test_backward_that_is_no_plain_function():
    """A partial, a bound method, a callable object: with or without `need`."""

    def two(y, dy, need):
        return dy * y

    class Callable:
        def __init__(self, y):
            self.y = y

        def __call__(self, dy):
            return dy * self.y

    for make in (lambda y: functools.partial(two, y), lambda y: Callable(y)):

        @op("x")
        def times(x, y=3.0, make=make):
            return x * y, make(y)

        x = leaf(2.0)
        times(x).backward()
        assert x.grad == [3.0]


# ---------------------------------------------------------------------- dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("other", [3, 3.0, True, np.float64(3), np.float32(3), np.int64(3), np.full(2, 3.0), [3, 3]])
def test_the_tensor_decides(dtype, other):
    x = leaf(1.0, 2.0, dtype=dtype)
    for y in (mul(x, other), mul(other, x), layer_norm(x, weight=np.full(2, 3.0)), linear(x, np.ones((3, 2)))):
        assert y.dtype == dtype
        y.backward(np.ones(y.shape))
    assert x.grad.dtype == dtype


def test_without_a_tensor():
    """Numbers and lists are float32, as in Tensor(...); float arrays stay what they are."""
    assert mul([1, 2], 3).dtype == np.float32
    assert mul(np.array([1, 2]), 3).dtype == np.float32
    assert tanh(np.ones(2)).dtype == np.float64
    assert tanh(np.ones(2, np.float32)).dtype == np.float32


def test_two_dtypes():
    with pytest.raises(TypeError, match="mul: Tensors of float32 and float64 do not mix: nothing is cast silently"):
        mul(leaf(1.0), leaf(1.0, dtype=np.float32))
    with pytest.raises(TypeError, match="do not mix"):
        layer_norm(leaf(1.0), weight=leaf(1.0, dtype=np.float32))


def test_integers_do_not_cut_floats():
    with pytest.raises(TypeError, match="a float would be cut to int64"):
        mul(Tensor(np.arange(3)), 0.5)
    np.testing.assert_array_equal(mul(Tensor(np.arange(3)), 2).data, [0, 2, 4])


def test_rule_that_changes_the_dtype_of_the_value():
    @op
    def careless(x):
        return x / np.sqrt(7), lambda dy: dy

    careless(leaf(1.0))
    with pytest.raises(TypeError, match="careless: float32 in, float64 out; an op keeps the dtype of its Tensors"):
        careless(leaf(1.0, dtype=np.float32))


def test_rule_that_changes_the_dtype_of_a_gradient():
    @op("x", "y")
    def careless(x, y):
        return x * y, lambda dy: (dy * y, dy * x / np.sqrt(7))

    with pytest.raises(TypeError, match="backward of careless: float32 in, float64 for y"):
        careless(leaf(1.0, dtype=np.float32), leaf(1.0, dtype=np.float32)).backward()


def test_several_outputs_keep_the_dtype():
    @op
    def careless(x):
        return (x, x.astype(np.float64)), lambda dys: dys[0]

    with pytest.raises(TypeError, match="float32 in, float64 out"):
        careless(leaf(1.0, dtype=np.float32))


# ---------------------------------------------------------------------- broken rules, wrong calls


def test_gradient_of_another_shape():
    @op
    def plus(x, y):
        return x + y, lambda dy: (dy, dy)

    with pytest.raises(RuntimeError, match=r"shape \(2,\) for y of shape \(1,\): is a sum over a broadcast"):
        plus(leaf(1.0, 2.0), leaf(1.0)).backward(np.ones(2))


@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (1, 5), (2, 1, 5), (1, 1, 1), (2, 3, 5)])
def test_broadcasting_is_undone(shape):
    @op(broadcasts=True)
    def plus(x, y):
        return x + y, lambda dy: (dy, dy)

    rng = np.random.default_rng(0)
    x, y = Tensor(rng.standard_normal((2, 3, 5)), True), Tensor(rng.standard_normal(shape), True)
    dy = rng.standard_normal((2, 3, 5))
    plus(x, y).backward(dy)
    axes = tuple(range(3 - len(shape))) + tuple(i for i, n in zip(range(3 - len(shape), 3), shape) if n == 1)
    np.testing.assert_allclose(y.grad, dy.sum(axes, keepdims=True).reshape(shape), rtol=1e-14)
    np.testing.assert_array_equal(x.grad, dy)


def test_broadcasting_against_an_empty_axis():
    x, y = Tensor(np.ones((0, 3)), True), Tensor(np.ones((1, 3)), True)
    (x + y).backward(np.ones((0, 3)))
    assert x.grad.shape == (0, 3)
    np.testing.assert_array_equal(y.grad, np.zeros((1, 3)))


def test_broadcasting_that_cannot_be_undone():
    @op(broadcasts=True)
    def plus(x, y):
        return x + y, lambda dy: (dy[:1], dy)

    with pytest.raises(RuntimeError, match=r"backward of plus returned shape .* for an input of shape \(3,\)"):
        plus(leaf(1.0, 2.0, 3.0), leaf(1.0)).backward(np.ones(3))


@pytest.mark.parametrize("answer", [lambda dy: (dy,), lambda dy: (dy, None), lambda dy: None])
def test_gradient_that_is_missing(answer):
    @op
    def plus(x, y):
        return x + y, answer

    with pytest.raises(RuntimeError, match="backward of plus returned no gradient for"):
        plus(leaf(1.0), leaf(2.0)).backward()


def test_error_of_a_rule_says_where():
    with pytest.raises(ValueError, match="broadcast") as caught:
        product(leaf(1.0, 2.0), leaf(1.0, 2.0, 3.0))
    assert "in product(x (2,), y (3,))" in caught.value.__notes__


def test_tensor_in_a_place_without_gradient():
    @op("x")
    def shifted(x, by):
        return x + by, lambda dy: dy

    assert shifted(leaf(1.0), Tensor(np.array([2.0]))).data == [3.0]
    with pytest.raises(TypeError, match=r"shifted: by is not differentiable; pass t.numpy\(\) or t.detach\(\)"):
        shifted(leaf(1.0), leaf(2.0))
    with pytest.raises(TypeError, match="shifted: by is not differentiable"):
        shifted(leaf(1.0), by=leaf(2.0))


def test_wrong_number_of_arguments_in_python_s_own_words():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        product(leaf(1.0))
    with pytest.raises(TypeError, match="takes 2 positional arguments but 3"):
        product(leaf(1.0), leaf(1.0), leaf(1.0))
    with pytest.raises(TypeError, match=r"product\(\) has no argument z; it has x, y"):
        product(leaf(1.0), leaf(1.0), z=1)


# ---------------------------------------------------------------------- which implementation runs


def test_using_another_implementation():
    x = leaf(2.0)
    with tanh.using(lambda x: (x * 10, lambda dy: dy * 10)):
        assert tanh(x).data == [20.0]
        with tanh.using(lambda x: (x * 100, lambda dy: dy * 100)):
            assert tanh(x).data == [200.0]
        y = tanh(x)
    assert tanh(x).data == [np.tanh(2.0)]
    y.backward()  # the graph keeps the backward it was made with
    assert x.grad == [10.0]
    with pytest.raises(ArithmeticError), tanh.using(lambda x: (x, None)):
        raise ArithmeticError
    assert tanh(x).data == [np.tanh(2.0)]


def test_an_implementation_that_declines():
    """Whatever was put in place, and whether the Tensors came by position or by name."""
    x, w = leaf(2.0, 3.0), leaf(5.0, 7.0)
    with affine.using(lambda *args, **options: NotImplemented):
        affine(x, weight=w).backward(np.ones(2))
        affine(x, w).backward(np.ones(2))
    np.testing.assert_array_equal(w.grad, [4.0, 6.0])


def test_a_composite_whose_kernel_declines(monkeypatch):
    """Its definition is written on Tensors, so it has to get the Tensors, also those that came by name."""

    @composite("x", "weight")
    def scaled(x, weight, factor=1.0):
        return x * weight * factor

    def kernel(x, weight, factor=1.0):
        return NotImplemented if factor == 2.0 else (x * weight, lambda dy: (dy * weight, dy * x))

    def hopeless(x, weight, factor=1.0):
        raise NotImplementedError

    for chosen in (kernel, hopeless):
        monkeypatch.setattr(scaled, "_kernel", chosen)
        for factor in (1.0, 2.0):
            x, w = leaf(2.0, 3.0), leaf(5.0, 7.0)
            y = scaled(x, weight=w, factor=factor)
            y.backward(np.array([1.0, 10.0]))
            assert (y.node.op is scaled) == (chosen is kernel and factor == 1.0)
            np.testing.assert_array_equal(w.grad, [2.0 * factor, 30.0 * factor])
            np.testing.assert_array_equal(x.grad, [5.0 * factor, 70.0 * factor])
    with scaled.using(scaled.definition):
        np.testing.assert_array_equal(scaled(x, w).data, [10.0, 21.0])


def test_rule_is_raw():
    y, pullback = product.rule(np.ones((2, 3)), np.ones(3))
    assert [g.shape for g in pullback(np.ones((2, 3)))] == [(2, 3), (2, 3)]  # the sum that is missing shows
    y, pullback = affine.rule(np.array([2.0]), None, np.array([3.0]))
    assert y == [5.0]
    assert pullback(np.ones(1))[1] is None
    with product.using(lambda x, y: (x, lambda dy: (0, 0))):
        assert product.rule(1.0, 2.0)[1](1.0) == (0, 0)


def test_composite():
    @composite
    def squashed(x, gain):
        return tanh(x) * gain

    x, gain = leaf(0.5, 1.0), leaf(2.0, 3.0)
    dy = np.array([1.0, 10.0])
    squashed(x, gain).backward(dy)
    np.testing.assert_allclose(x.grad, dy * gain.data * (1 - np.tanh(x.data) ** 2))
    np.testing.assert_allclose(gain.grad, dy * np.tanh(x.data))
    minitx.gradcheck(squashed, x, gain)

    def kernel(x, gain):
        t = np.tanh(x)
        return t * gain, lambda dy: (dy * gain * (1 - t * t), dy * t)

    with squashed.using(kernel):
        assert squashed(x, gain).node.op is squashed
        minitx.gradcheck(squashed, x, gain)


# ---------------------------------------------------------------------- ndarrays on the left


def test_pitfall_15_ndarray_on_the_left():
    t = leaf(3.0, 4.0, dtype=np.float32)
    one = np.ones(2)
    for f, value, slope in (
        (lambda: one * t, [3.0, 4.0], 1.0),
        (lambda: np.float64(2) * t, [6.0, 8.0], 2.0),
        (lambda: one - t, [-2.0, -3.0], -1.0),
        (lambda: np.ones((2, 2)) @ t, [7.0, 7.0], 2.0),
    ):
        t.grad = None
        y = f()
        assert type(y) is Tensor
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y.data, value)
        y.backward(np.ones(2))
        np.testing.assert_array_equal(t.grad, [slope, slope])
    below = one < t
    assert type(below) is np.ndarray
    assert below.dtype == bool


def test_a_replaced_part_is_used_inside_a_composite():
    """A learner's own linear runs in the feed-forward network too, fused as that otherwise is."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s) for s in ((2, 3), (5, 3), (5,), (3, 5), (3,))]
    called = []

    def own(x, weight, bias=None):
        called.append(x.shape)
        return ops.linear.definition(x, weight, bias)

    expected = ops.feed_forward(*arrays).numpy()
    with ops.linear.using(own):
        y = ops.feed_forward(*arrays).numpy()
    assert called == [(2, 3), (2, 5)]
    np.testing.assert_allclose(y, expected, rtol=1e-12)
