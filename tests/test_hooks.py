"""Hooks see a gradient once it is whole, and may replace it."""
from __future__ import annotations

import numpy as np
import pytest

from minitx import Tensor, detect_anomaly, op, trace


def leaf(*values, dtype=np.float64):
    return Tensor(np.array(values, dtype), requires_grad=True)


@op
def both(x, y):
    """Two outputs: the sum and the product."""
    return (x + y, x * y), lambda d: (d[0] + d[1] * y, d[0] + d[1] * x)


def test_hook_on_a_leaf_sees_the_whole_gradient_once():
    x, seen = leaf(1.0), []
    x.register_hook(lambda g: seen.append(float(g[0])))
    (x * 2 + x * 3).backward()
    assert seen == [5.0]
    assert x.grad == [5.0]


def test_hook_on_an_interior_node_replaces_the_gradient():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.register_hook(lambda g: g + 1)  # in the order of registration
    (y + y).backward(np.ones(2))
    np.testing.assert_array_equal(x.grad, [42.0, 42.0])


def test_hook_that_is_taken_off():
    x, seen = leaf(1.0), []
    off = x.register_hook(lambda g: seen.append(g))
    (x * 2).backward()
    off()
    off()
    (x * 2).backward()
    assert len(seen) == 1
    y = x * 2
    y.register_hook(lambda g: g * 0)()
    y.backward()
    assert x.grad == [6.0]


def test_hook_runs_at_every_pass_over_a_kept_graph():
    x, seen = leaf(1.0), []
    y = x * 2
    y.register_hook(lambda g: seen.append(1))
    z = y * 3
    z.backward(retain_graph=True)
    z.backward()
    assert seen == [1, 1]


def test_hook_on_one_of_several_outputs():
    x, y = leaf(2.0), leaf(3.0)
    s, p = both(x, y)
    p.register_hook(lambda g: g * 10)
    (s + p).backward()
    assert (x.grad, y.grad) == ([31.0], [21.0])


def test_hook_cannot_change_the_gradient_in_place_or_its_shape():
    x = leaf(1.0, 2.0)

    def doubles(g):
        g *= 2

    off = x.register_hook(doubles)
    with pytest.raises(ValueError, match="read-only"):
        (x * 2).backward(np.ones(2))
    off()
    x.register_hook(lambda g: g.sum())
    with pytest.raises(ValueError, match=r"a hook returned shape \(\) for a gradient of shape \(2,\)"):
        (x * 2).backward(np.ones(2))
    assert x.grad is None


def test_hook_that_fails_leaves_no_gradient_behind():
    x, y = leaf(1.0), leaf(1.0)

    def fails(g):
        raise ArithmeticError

    y.register_hook(fails)
    with pytest.raises(ArithmeticError):
        (x + y).backward()
    assert x.grad is y.grad is None


def test_hook_keeps_the_dtype():
    x = leaf(1.0, dtype=np.float32)
    x.register_hook(lambda g: g.astype(np.float64) * 2)
    (x * 2).backward()
    assert x.grad.dtype == np.float32


def test_hook_wants_a_gradient():
    with pytest.raises(RuntimeError, match="would never run"):
        Tensor([1.0]).register_hook(print)


def test_one_function_registered_twice_is_taken_off_once():
    x, seen = leaf(1.0), []

    def look(g):
        seen.append(float(g[0]))

    off = x.register_hook(look)
    x.register_hook(look)
    off()
    off()
    (x * 2).backward()
    assert seen == [2.0]


def test_hook_returns_numbers():
    x = leaf(1.0)
    x.register_hook(lambda g: g * 1j)
    with pytest.raises(TypeError, match=r"what a hook returned: .* complex numbers"):
        (x * 2).backward()
    assert x.grad is None


@pytest.mark.parametrize("where", ["leaf", "inside", "outputs"])
def test_anomaly_made_by_a_hook(where):
    def breaks(g):
        return g * np.nan

    with detect_anomaly():
        x = leaf(1.0, 2.0)
        y, _ = both(x, x) if where == "outputs" else (x * 2, None)
        (x if where == "leaf" else y).register_hook(breaks)
        with pytest.raises(FloatingPointError, match=r"the hook .*breaks made NaN: 2 of 2 values") as caught:
            y.backward(np.ones(2))
    assert "defined at test_hooks.py:" in str(caught.value)
    assert x.grad is None


def test_two_observers_hear_of_a_hook():
    x = leaf(1.0)
    x.register_hook(lambda g: g / 0)
    with detect_anomaly(), trace(), pytest.raises(FloatingPointError, match="made infinity"):
        (x * 2).backward()
