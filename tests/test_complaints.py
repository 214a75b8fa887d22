"""What may become part of a Tensor and what may not, and what a rule that breaks the contract is told."""
from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import minitx
from minitx import Tensor, nn, op, ops


def leaf(*values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


# ---------------------------------------------------------------------- what is not a number

NONSENSE = [
    ("3", "text"), (["1", "2"], "text"), (b"3", "text"), (None, "objects"), ([1.0, None], "objects"),
    (np.ones(2, object), "objects"), (1j, "complex numbers"), (np.ones(2, complex), "complex numbers"),
    (np.ma.masked_array([1.0, 2.0], [0, 1]), "the mask of a masked array would be lost"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "words"), NONSENSE)
def test_what_is_not_a_number(data, words):
    with pytest.raises(TypeError, match=words):
        Tensor(data)
    t = leaf(1.0, 2.0)
    if data is not None:
        for use in (lambda: t + data, lambda: t * data, lambda: t.backward(data), lambda: setattr(t, "grad", data)):
            with pytest.raises(TypeError, match=words):
                use()
        with pytest.raises(TypeError, match=words):
            ops.exp(data)
    with pytest.raises(TypeError, match=words):
        t.data = data
    np.testing.assert_array_equal(t.data, [1.0, 2.0])


@pytest.mark.parametrize("data", [[1.0, 2.0], [1, 2], (1.0, 2.0), 3.5])
def test_lists_without_a_tensor_are_float32(data):
    """As in Tensor(...), whole numbers or not."""
    assert ops.exp(data).dtype == Tensor(data).dtype == np.float32


def test_arrays_without_a_tensor_decide_for_lists():
    assert ops.add([0.1, 0.2], np.zeros(2)).data.tolist() == [0.1, 0.2]
    assert ops.add(np.zeros(2, np.float32), 0.1).dtype == np.float32


def test_backward_of_true_is_a_slip():
    y = leaf(3.0) * 2
    with pytest.raises(TypeError, match="write backward\\(retain_graph=True\\)"):
        y.backward(True)


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble])
def test_other_floats_are_cast_beside_a_tensor_only(dtype):
    a = np.ones(2, dtype)
    for f in (Tensor, ops.exp, lambda a: ops.add(a, 1.0)):
        with pytest.raises(TypeError, match=f"not {a.dtype}; cast it first"):
            f(a)
    assert (leaf(1.0, 2.0) * a).dtype == np.float64


# ---------------------------------------------------------------------- the gradient


def test_grad_has_the_shape_and_dtype_of_its_tensor():
    x = leaf(1.0, 2.0, dtype=np.float32)
    with pytest.raises(ValueError, match=r"t.grad = ... has the shape of the Tensor: \(2,\), not \(3,\)"):
        x.grad = np.ones(3)
    assert x.grad is None
    x.grad = np.array([1.0, 2.0])
    assert x.grad.dtype == np.float32
    x.grad = [3, 4]
    (x * 2).backward(np.ones(2))
    assert (x.grad.dtype, x.grad.tolist()) == (np.float32, [5.0, 6.0])
    own = np.ones(2, np.float32)
    x.grad = own
    assert x.grad is own  # no copy where it fits


def test_requires_grad_turned_off_after_the_forward_pass():
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    x.requires_grad = False
    z.backward()
    assert x.grad is None
    assert y.grad == [2.0]


# ---------------------------------------------------------------------- what NumPy and Python offer


@pytest.mark.parametrize("f", [np.sum, np.mean, np.max, np.var, np.transpose, lambda t: np.where(True, t, t)])
def test_numpy_functions_say_what_to_use(f):
    with pytest.raises(TypeError, match=r"np\.\w+ does not take a Tensor.*t\.numpy\(\).*the ops of minitx"):
        f(leaf(1.0, 2.0))


def test_shape_is_asked_freely():
    assert (np.shape(leaf(1.0, 2.0)), np.ndim(leaf(1.0)), np.size(leaf(1.0, 2.0))) == ((2,), 1, 2)


def test_item_assignment_and_floor_division():
    t = leaf(1.0, 2.0)
    with pytest.raises(TypeError, match=r"with t.writing\(\) as value"):
        t[0] = 1
    for f in (lambda: t // 2, lambda: 2 // t, lambda: t % 2, lambda: divmod(t, 2)):
        with pytest.raises(TypeError, match="derivative 0 or none"):
            f()


@pytest.mark.parametrize("f", [lambda t: t.mean(), lambda t: t.exp()])
def test_ops_that_need_floats(f):
    with pytest.raises(TypeError, match="make the Tensor from floats"):
        f(Tensor(np.array([1, 2])))


# ---------------------------------------------------------------------- rules that break the contract


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda x: x * 2, "returned only ndarray of shape"),  # of length 2: not to be taken apart
        (lambda x: (x, None), "whose second part is no function"),
        (lambda x: (x, x), "whose second part is no function"),
        (lambda x: (x, x, lambda dy: dy), "returned a tuple of 3"),
        (lambda x: None, "returned only None"),
        (lambda x: [x, lambda dy: dy], "returned only"),
    ],
)
def test_rule_that_does_not_return_value_and_backward(answer, words):
    broken = op(lambda x: answer(x))
    with pytest.raises(TypeError, match=f"<lambda>: a rule returns \\(value, backward\\), two things.*{words}"):
        broken(leaf(1.0, 2.0))
    with pytest.raises(TypeError, match="a rule returns"):
        minitx.gradcheck(broken, np.ones(2))


@pytest.mark.parametrize(
    ("grads", "words"),
    [
        (lambda dy: [dy, dy], "returned a list; return a tuple"),
        (lambda dy: (dy, dy, dy), "returned 3 gradients for 2 inputs"),
    ],
)
def test_gradients_in_a_list_or_too_many(grads, words):
    @op
    def plus(x, y):
        return x + y, grads

    with pytest.raises(TypeError, match=f"backward of plus {words}"):
        plus(leaf(1.0, 2.0), leaf(1.0, 2.0)).backward(np.ones(2))
    with pytest.raises(TypeError, match=f"backward of plus {words}"):
        minitx.gradcheck(plus, np.ones(2), np.zeros(2))


def test_several_values_of_which_one_is_a_number():
    @op
    def pair(x):
        return (x * 2, 0.5), lambda d: d[0] * 2

    a, b = pair(leaf(1.0, 2.0))
    assert (a.shape, b.shape, b.item()) == ((2,), (), 0.5)
    a.backward(np.ones(2))


def test_a_default_is_the_rule_s_own_and_not_need():
    """`lambda dy, y=y: ...` is how Python catches a value in a loop."""

    @op
    def times(x, y):
        return x * y, lambda dy, x=x, y=y: (dy * y, dy * x)

    @op
    def one(x, y):
        return x * y, lambda dy, both=(x, y): (dy * both[1], dy * both[0])

    @op
    def asks(x, y):
        return x * y, lambda dy, need=None: (dy * y if need.x else None, dy * x if need.y else None)

    @op
    def keeps(x, y):
        return x * y, lambda dy, need, y=y: (dy * y, dy * x if need.y else None)

    for f in (times, one, asks, keeps):
        x, y = leaf(2.0, 3.0), leaf(5.0, 7.0)
        f(x, y).backward(np.array([1.0, 10.0]))
        assert x.grad.tolist() == [5.0, 70.0]
        assert y.grad.tolist() == [2.0, 30.0]
        minitx.gradcheck(f, np.array([2.0, 3.0]), np.array([5.0, 7.0]))


def test_a_rule_that_returns_the_caller_s_array():
    @op("x")
    def other(x, table):
        return table, lambda dy: 0 * dy

    table = np.ones(2)
    for y in (other(leaf(1.0, 2.0), table), other(leaf(1.0, 2.0), table=table)):
        table += 1  # still the caller's
        assert not np.shares_memory(y.data, table)


def test_a_list_may_change_between_forward_and_backward():
    x = Tensor(np.random.default_rng(0).standard_normal((2, 3, 5)), requires_grad=True)
    dy = np.random.default_rng(1).standard_normal((5, 2, 3))
    axes, rows = [2, 0, 1], [0, 0]
    y, z = ops.transpose(x, axes), ops.transpose(x, axes=axes)
    w = x[rows]
    axes.reverse()
    rows[:] = [1, 1]
    for t in (y, z):
        x.grad = None
        t.backward(dy)
        np.testing.assert_array_equal(x.grad, dy.transpose(1, 2, 0))
    x.grad = None
    w.backward(np.ones((2, 3, 5)))
    assert x.grad.sum((1, 2)).tolist() == [30.0, 0.0]


def test_an_argument_that_does_not_exist():
    with pytest.raises(TypeError, match=r"softmax\(\) has no argument axes; it has x, axis"):
        ops.softmax(leaf(1.0), axes=leaf(1.0))


# ---------------------------------------------------------------------- copies


@pytest.mark.parametrize("f", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_an_op_is_copied_as_itself(f):
    assert f(ops.relu) is ops.relu


@pytest.mark.parametrize("f", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_a_layer_that_holds_an_op(f):
    layer = nn.FeedForward(3, 5, rng=np.random.default_rng(0))
    again = f(layer)
    assert again.phi is layer.phi
    x = Tensor(np.random.default_rng(1).standard_normal((2, 3)).astype(np.float32))
    np.testing.assert_array_equal(again(x).data, layer(x).data)
    with layer.phi.using(lambda x: (0 * x, lambda dy: 0 * dy)):
        np.testing.assert_array_equal(again(x).data, layer(x).data)


class Named(nn.Parameter):
    """With an attribute of its own."""

    def __init__(self, data, name):
        super().__init__(data, decay=False)
        self.name = name


@pytest.mark.parametrize("f", [copy.copy, copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_a_copy_of_a_subclass_is_one_of_it(f):
    p = Named(np.array([1.0, 2.0]), "w")
    p.grad = np.array([3.0, 4.0])
    q = f(p)
    assert (type(q), q.name, q.decay, q.requires_grad) == (Named, "w", False, True)
    q.grad *= 2
    q.data -= 1.0
    assert (p.data.tolist(), p.grad.tolist()) == ([1.0, 2.0], [3.0, 4.0])
