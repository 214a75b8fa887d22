"""The tape: backward reaches everything once and in order, adds up what has to be added, and frees as it goes."""
from __future__ import annotations

import sys
import threading
import weakref

import numpy as np
import pytest

from minitx import Tensor, no_grad, op, ops
from minitx.audit.cases import CASES
from minitx.gradcheck import gradcheck


def leaf(*values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


@op
def scale(x, factor=1.0):
    return x * x.dtype.type(factor), lambda dy: dy * x.dtype.type(factor)


@op
def both(x, y):
    """Two outputs: the sum and the product."""
    return (x + y, x * y), lambda d: (d[0] + d[1] * y, d[0] + d[1] * x)


@op
def total(*xs):
    return sum(xs[1:], xs[0]), lambda dy: (dy,) * len(xs)


# ---------------------------------------------------------------------- order


def test_chain_of_50000_ops():
    x = leaf(1.0, 2.0)
    y = x
    for _ in range(50_000):
        y = scale(y)
    y.backward(np.array([3.0, 5.0]))
    np.testing.assert_array_equal(x.grad, [3.0, 5.0])


def test_chain_of_50000_ops_dropped_without_backward():
    y = leaf(1.0)
    for _ in range(50_000):
        y = scale(y)
    gone = weakref.ref(y.node)
    del y
    assert gone() is None


def test_chain_of_50000_ops_kept_and_then_dropped():
    x = leaf(1.0)
    y = x
    for _ in range(50_000):
        y = scale(y)
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    assert x.grad == [2.0]
    del y


def test_a_gradient_lives_no_longer_than_it_is_needed():
    """Rules that run later find the gradients before them freed, also those that an op with two outputs has got."""
    made, alive = [], []

    @op
    def kept(x):
        def backward(dy):
            g = dy * 1.0
            made.append(weakref.ref(g))
            return g

        return x * 1.0, backward

    @op
    def look(x):
        def backward(dy):
            alive.append([g() is not None for g in made])
            return dy * 1.0

        return x * 1.0, backward

    x = leaf(2.0, 3.0)
    s, p = both(look(scale(look(x))), scale(x))
    (kept(s) + kept(p)).backward(np.ones(2))
    assert alive == [[False, False], [False, False]]


def test_as_many_paths_as_there_are_doublings():
    """y + y, 200 times over: 2^200 paths lead to x, and every node is visited once."""
    x = leaf(1.0)
    y = x
    for _ in range(200):
        y = y + y
    y.backward()
    assert x.grad == [2.0**200]


def test_pitfall_14_every_consumer_before_the_node():
    a = leaf(1.0)
    b = a + a
    c = b + b
    seen = []
    b.register_hook(lambda g: seen.append(g.copy()))
    c.backward()
    assert seen == [[2.0]]
    assert a.grad == [4.0]
    x = leaf(1.0)
    (x * (x * 1) + x * (x * 1) + (x * x) * 1).backward()
    assert x.grad == [6.0]


def test_consumers_made_in_any_order():
    """A long and a short way to the same node: the short one must wait."""
    x = leaf(3.0)
    h = x * x
    long = h
    for _ in range(20):
        long = scale(long)
    short = h * 1
    (short + long).backward()
    assert x.grad == [12.0]


@pytest.mark.parametrize("seed", range(8))
def test_pitfall_14_random_graphs_of_30_nodes(seed):
    rng = np.random.default_rng(seed)
    choice = rng.integers(0, 6, 30)
    picks = rng.integers(0, 1 << 30, (30, 2))

    def graph(x, y):
        nodes = [x, y]
        for kind, (i, j) in zip(choice, picks):
            a, b = nodes[-1 - i % min(len(nodes), 5)], nodes[j % len(nodes)]
            nodes += {
                0: lambda a, b: [ops.tanh(a + b)],
                1: lambda a, b: [ops.tanh(a * b)],
                2: lambda a, b: [a - b * 0.5],
                3: lambda a, b: [ops.sigmoid(a)],
                4: lambda a, b: [ops.tanh(t) for t in both(a, b)],
                5: lambda a, b: [total(a, b, a) * 0.3],
            }[int(kind)](a, b)
        return total(*(ops.tanh(n) for n in nodes[-4:]))

    gradcheck(graph, rng.standard_normal(3), rng.standard_normal(3), tolerance=1e-7)


# ---------------------------------------------------------------------- adding up


def test_pitfall_05_leaves_add_up_and_interior_nodes_do_not():
    a, b, d = leaf(3.0), leaf(2.0), leaf(1.0)
    c = a + b
    e = c * d
    e.backward(retain_graph=True)
    e.backward()
    assert (a.grad, b.grad, d.grad) == ([2.0], [2.0], [10.0])
    assert c.grad is None
    assert e.grad is None
    x = leaf(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad == [8.0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pitfall_05_two_losses_of_one_shared_part(order):
    x = leaf(3.0)
    shared = x * x  # 2x
    losses = [shared * 2, shared * shared]  # 4x, 4x³
    losses[order[0]].backward(retain_graph=True)
    losses[order[1]].backward()
    assert x.grad == [12.0 + 108.0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pitfall_05_shared_part_that_is_freed(order):
    x = leaf(3.0)
    shared = x * x
    losses = [shared * 2, shared * shared]
    losses[order[0]].backward()
    before = x.grad.copy()
    with pytest.raises(RuntimeError, match="backward a second time through mul, whose graph is freed; pass retain_gr"):
        losses[order[1]].backward()
    np.testing.assert_array_equal(x.grad, before)


FIRST = list({case.op: case for case in CASES}.values())


@pytest.mark.parametrize("case", [pytest.param(c, id=str(c)) for c in FIRST])
def test_pitfall_05_second_backward_is_an_error_for_every_op(case):
    leaves = []

    def make(a):
        leaves.append(Tensor(a, requires_grad=True))
        return leaves[-1] * 1.0  # so that part of the second pass could succeed

    args, options = case.lift(case.draw(), make)
    y = case.implementation(*args, **options)
    y = y[0] if isinstance(y, tuple) else y
    y.backward(np.ones(y.shape))
    before = [t.grad.copy() for t in leaves]
    with pytest.raises(RuntimeError, match=f"second time through {case.op}"):
        y.backward(np.ones(y.shape))
    for t, g in zip(leaves, before):
        np.testing.assert_array_equal(t.grad, g)


def test_nothing_is_written_unless_all_went_well():
    @op
    def broken(x):
        def backward(dy):
            raise ArithmeticError("no")

        return x * 1, backward

    x, y = leaf(1.0), leaf(1.0)
    z = broken(x) + y  # y's gradient is known before the error
    with pytest.raises(ArithmeticError) as caught:
        z.backward()
    assert x.grad is y.grad is None
    assert "in the backward of broken" in caught.value.__notes__


def test_the_same_tensor_in_two_places():
    x = leaf(1.0, 2.0)
    (x + x).backward(np.array([1.0, 10.0]))
    np.testing.assert_array_equal(x.grad, [2.0, 20.0])
    x = leaf(1.0, 2.0)
    total(x, x, x).backward(np.array([1.0, 10.0]))
    np.testing.assert_array_equal(x.grad, [3.0, 30.0])


def test_a_leaf_is_its_own_gradient():
    x = leaf(1.0, 2.0)
    g = np.array([3.0, 4.0])
    x.backward(g)
    x.backward(g)
    np.testing.assert_array_equal(x.grad, [6.0, 8.0])
    np.testing.assert_array_equal(g, [3.0, 4.0])


def test_gradients_without_axes_stay_arrays():
    x = Tensor(3.0, requires_grad=True)
    y = x * x
    (y * y + y).backward()
    assert type(x.grad) is np.ndarray
    assert (x.grad.shape, x.grad.dtype) == ((), np.float32)
    assert x.grad == 4 * 27 + 6
    (x * x).backward()
    assert type(x.grad) is np.ndarray


# ---------------------------------------------------------------------- what backward refuses


def test_more_than_one_element_wants_a_gradient():
    with pytest.raises(RuntimeError, match=r"backward of shape \(2,\) wants a gradient of that shape"):
        (leaf(1.0, 2.0) * 2).backward()


def test_gradient_of_another_shape():
    with pytest.raises(ValueError, match=r"the gradient has the shape of the Tensor: \(2,\), not \(3,\)"):
        (leaf(1.0, 2.0) * 2).backward(np.ones(3))


def test_nothing_to_differentiate():
    with pytest.raises(RuntimeError, match="does not depend on anything with requires_grad=True"):
        (Tensor([1.0]) * 2).backward()


def test_gradient_may_be_a_tensor_or_a_list():
    x = leaf(1.0, 2.0)
    (x * 2).backward(Tensor([1.0, 2.0]))
    (x * 2).backward([1, 2])
    np.testing.assert_array_equal(x.grad, [4.0, 8.0])
    assert x.grad.dtype == np.float64


# ---------------------------------------------------------------------- several outputs


def test_outputs_that_nobody_uses_send_zeros():
    x, y = leaf(2.0), leaf(3.0)
    both(x, y)[1].backward()
    assert (x.grad, y.grad) == ([3.0], [2.0])
    x.grad = y.grad = None
    both(x, y)[0].backward()
    assert (x.grad, y.grad) == ([1.0], [1.0])


def test_outputs_one_after_the_other():
    x, y = leaf(2.0), leaf(3.0)
    s, p = both(x, y)
    s.backward(retain_graph=True)
    p.backward()
    assert (x.grad, y.grad) == ([4.0], [3.0])


# ---------------------------------------------------------------------- recording, threads


def test_without_recording_nothing_is_kept():
    x = leaf(1.0, 2.0)
    with no_grad():
        y = x * 2
    assert y.node is None
    assert not y.requires_grad
    assert y.is_leaf


def test_threads_have_their_own_graphs():
    def work(n, out):
        x = leaf(float(n))
        y = x
        for _ in range(200):
            y = scale(y, 1.0) + 0.0
        y.backward()
        out[n] = float(x.grad[0])

    out: dict = {}
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(n, out)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(switch)
    assert out == dict.fromkeys(range(4), 1.0)
