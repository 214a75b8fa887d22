"""Who owns an array: shared ones are read-only, what is added to is nobody else's, and memory goes when it can."""
from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref

import numpy as np
import pytest

from minitx import Tensor, op, ops
from minitx.models import Transformer, TransformerConfig
from minitx.optim import AdamW, clip_grad_norm


def leaf(*values):
    return Tensor(np.array(values, np.float64), requires_grad=True)


@op
def scale(x, factor=1.0):
    return x * factor, lambda dy: dy * factor


@op
def total(*xs):
    return sum(xs[1:], xs[0]), lambda dy: (dy,) * len(xs)


def test_pitfall_02_gradients_of_a_sum_are_two_arrays():
    a, b = leaf(1.0, 1.0), leaf(1.0, 1.0)
    (a + b).sum().backward()
    (2 * a).sum().backward()
    np.testing.assert_array_equal(a.grad, [3.0, 3.0])
    np.testing.assert_array_equal(b.grad, [1.0, 1.0])
    assert not np.shares_memory(a.grad, b.grad)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a.reshape(4) + b.reshape(4),
        lambda a, b: a.T + b.T,
        lambda a, b: ops.concatenate([a, b]),
        lambda a, b: ops.stack([a, b]),
        lambda a, b: ops.broadcast_to(a, (3, 2, 2)) + b,
        lambda a, b: ops.where(np.eye(2) > 0, a, b),
        lambda a, b: total(a, b),
        lambda a, b: a[:1] + b[1:],
    ],
)
def test_pitfall_02_views_of_one_cotangent(f):
    a, b = leaf([1.0, 2.0], [3.0, 4.0]), leaf([5.0, 6.0], [7.0, 8.0])
    y = f(a, b)
    g = np.random.default_rng(0).standard_normal(y.shape)
    before = g.copy()
    y.backward(g)
    np.testing.assert_array_equal(g, before)
    first = a.grad.copy(), b.grad.copy()
    assert not np.shares_memory(a.grad, b.grad)
    assert not np.shares_memory(a.grad, g)
    f(a, b).backward(g)  # adding to one must not change the other
    np.testing.assert_array_equal(a.grad, 2 * first[0])
    np.testing.assert_array_equal(b.grad, 2 * first[1])


def test_pitfall_02_one_gradient_that_is_a_view_of_the_other():
    @op
    def twisted(x, y):
        def backward(dy):
            d = 2 * dy
            return d, d[::-1]

        return 2 * (x + y[::-1]), backward

    x, y = leaf(1.0, 1.0, 1.0), leaf(1.0, 1.0, 1.0)
    later = scale(scale(x)) + scale(scale(y))  # arrives at x and y after the views, and is added to them
    (twisted(x, y) + later).backward(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(x.grad, [3.0, 6.0, 9.0])
    np.testing.assert_array_equal(y.grad, [7.0, 6.0, 5.0])
    assert not np.shares_memory(x.grad, y.grad)


def test_cotangents_are_read_only():
    @op
    def greedy(x):
        def backward(dy):
            dy *= 2
            return dy

        return x * 2, backward

    with pytest.raises(ValueError, match="read-only"):
        greedy(leaf(1.0)).backward()


def test_values_are_read_only():
    x = leaf(1.0, 2.0)
    y = x * 2
    for array in (x.data, y.data, x.data[:1], y.data.reshape(2, 1)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5.0
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] -= 1.0
    np.testing.assert_array_equal(x.data, [1.0, 2.0])


def test_constants_are_kept_as_they_were():
    """The array beside a Tensor may change before backward."""
    x, factor = leaf(1.0, 2.0), np.array([3.0, 4.0])
    y = x * factor
    factor += 100
    y.backward(np.ones(2))
    np.testing.assert_array_equal(x.grad, [3.0, 4.0])


def test_index_arrays_are_kept_as_they_were():
    x, index = leaf(1.0, 2.0, 3.0), np.array([0, 0, 2])
    y = x[index]
    index[...] = 1
    y.backward(np.ones(3))
    np.testing.assert_array_equal(x.grad, [2.0, 0.0, 1.0])


# ---------------------------------------------------------------------- memory


def test_memory_is_flat_over_steps():
    rng = np.random.default_rng(0)
    w = Tensor(rng.standard_normal((16, 16)), requires_grad=True)
    x = Tensor(rng.standard_normal((8, 16)))

    def step():
        loss = ops.mean(ops.tanh(x @ w) ** 2)
        loss.backward()
        with w.writing() as value:
            value -= 0.1 * w.grad
        w.grad = None

    for _ in range(20):
        step()
    gc.disable()  # nothing here needs the collector: there are no cycles
    tracemalloc.start()
    try:
        step()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            step()
        assert tracemalloc.get_traced_memory()[0] - before < 2000
    finally:
        tracemalloc.stop()
        gc.enable()


def test_backward_frees_as_it_goes():
    """40 saved arrays of 80 kB: at the end of backward they are gone, and no second set was ever alive."""
    x = Tensor(np.full(10_000, 0.1), requires_grad=True)
    tracemalloc.start()
    try:
        y = x
        for _ in range(40):
            y = ops.tanh(y)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        y.backward(np.ones(10_000))
        now, peak = tracemalloc.get_traced_memory()
        assert peak < held + 6 * 80_000
        assert now < 5 * 80_000  # y, x.grad, and little else
    finally:
        tracemalloc.stop()


def test_graph_goes_with_its_last_tensor():
    x = leaf(1.0)
    y = x * 2
    z = y * 3
    node = weakref.ref(y.node)
    del y
    assert node() is not None
    del z
    assert node() is None


@pytest.mark.parametrize("turned", [False, True])
def test_two_gradients_in_one_memory_however_they_are_made(turned):
    """A view that NumPy made by strides names its owner only through an object in between."""

    @op
    def both(x, y):
        def backward(dz):
            g = dz * 3.0
            pair = np.lib.stride_tricks.as_strided(g, g.shape, g.strides), g
            return pair[::-1] if turned else pair

        return x + y, backward

    a, b = leaf(1.0, 2.0), leaf(3.0, 4.0)
    x, y = scale(a), scale(b)
    (both(x, y) + x + y).sum().backward()
    np.testing.assert_array_equal(a.grad, [4.0, 4.0])
    np.testing.assert_array_equal(b.grad, [4.0, 4.0])


@pytest.mark.parametrize("case", ["alone", "kept", "a kept view", "a part", "the other order", "read-only"])
def test_a_leaf_takes_a_gradient_that_lies_as_it_does(case):
    """All of a fresh array, seen in another order of axes, is not copied, unless somebody could still change it."""
    kept, addresses = [], []

    @op
    def turned(x):
        def backward(dy):
            made = np.empty((2, *dy.shape[::-1])[case != "a part" :], dy.dtype)
            g = made[0].T if case == "a part" else made.T
            g[...] = 2 * dy
            addresses.append(g.ctypes.data)
            kept.extend([made] * (case == "kept") + [g] * (case == "a kept view"))
            g.flags.writeable = case != "read-only"
            return g

        return 2 * x, backward

    values = np.arange(15.0).reshape(5, 3)
    x = Tensor(values if case == "the other order" else np.asfortranarray(values), requires_grad=True)
    turned(x).sum().backward()
    np.testing.assert_array_equal(x.grad, np.full((5, 3), 2.0))
    assert (x.grad.ctypes.data == addresses[0]) == (case == "alone" and sys.version_info < (3, 14))
    turned(x).sum().backward()
    np.testing.assert_array_equal(x.grad, np.full((5, 3), 4.0))


def test_the_peak_of_a_training_step_is_flat():
    """A Transformer with AdamW: the 60th step takes at most what the 12th took, megabytes of arrays."""
    model = Transformer(
        TransformerConfig.gpt2(layers=2, d_model=64, heads=4, vocab_size=11, max_length=23, dropout=0.0),
        rng=np.random.default_rng(0),
    )
    optimizer = AdamW(model, lr=1e-3)
    ids = np.random.default_rng(1).integers(0, 11, (16, 24))

    def step():
        loss = ops.cross_entropy(model(ids[:, :-1]).logits, ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(optimizer, 1.0)
        optimizer.step()

    for _ in range(10):
        step()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        step()
        tracemalloc.reset_peak()
        step()
        before = tracemalloc.get_traced_memory()[1]
        for _ in range(48):
            step()
        tracemalloc.reset_peak()
        step()
        assert before > 3e6
        assert tracemalloc.get_traced_memory()[1] - before < 1e5  # (Python keeps up to 2,000 freed tuples of a length)
    finally:
        tracemalloc.stop()
        gc.enable()
