"""Hooks see a gradient once it is whole, and may replace it."""
from __future__ import annotations

import numpy as np
import pytest

from minitx import Tensor, op


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
