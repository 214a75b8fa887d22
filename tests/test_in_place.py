"""The one door for changes in place: leaves only, older graphs refuse, and what was handed out stays as it was."""
from __future__ import annotations

import numpy as np
import pytest

from minitx import Tensor


def leaf(*values):
    return Tensor(np.array(values, np.float64), requires_grad=True)


def test_change_in_place_makes_older_graphs_refuse():
    p = leaf(1.0, 2.0)
    old = p * p
    with p.writing() as value:
        value -= 0.5
    np.testing.assert_array_equal(p.data, [0.5, 1.5])
    with pytest.raises(RuntimeError, match="an input of mul was changed in place after its forward pass"):
        old.backward(np.ones(2))
    assert p.grad is None
    (p * p).backward(np.ones(2))
    np.testing.assert_array_equal(p.grad, [1.0, 3.0])


@pytest.mark.parametrize("change", ["p.data -= 0.5", "p.data = p.data - 0.5", "p.data = [0.5, 1.5]", "p.data += -0.5"])
def test_spellings_of_a_change(change):
    p = leaf(1.0, 2.0)
    old = p * 2
    exec(change)
    np.testing.assert_array_equal(p.data, [0.5, 1.5])
    assert p.dtype == np.float64
    with pytest.raises(RuntimeError, match="changed in place"):
        old.backward(np.ones(2))
    (p * p).backward(np.ones(2))
    np.testing.assert_array_equal(p.grad, [1.0, 3.0])


@pytest.mark.parametrize(("change", "right"), [("*=", [2.0, 4.0]), ("/=", [0.5, 1.0]), ("**=", [1.0, 4.0])])
def test_other_operators_in_place(change, right):
    p = leaf(1.0, 2.0)
    exec(f"p.data {change} 2")
    np.testing.assert_array_equal(p.data, right)


def test_a_value_that_was_handed_out_does_not_change():
    p = leaf(1.0, 2.0)
    before, plain, view, apart = p.data, np.asarray(p.data), p.reshape(2, 1), p.detach()
    with p.writing() as value:
        value[...] = 7.0
    for old in (before, plain, view.data.ravel(), apart.data):
        np.testing.assert_array_equal(old, [1.0, 2.0])
    values = p.data
    values -= 1.0
    np.testing.assert_array_equal(values, [6.0, 6.0])
    np.testing.assert_array_equal(p.data, [6.0, 6.0])


def test_a_change_between_forward_and_backward_of_another_graph():
    """The usual loop: forward, backward, step, forward ..."""
    p = leaf(1.0)
    for _ in range(3):
        (p * p).backward()
        p.data -= 0.25 * p.grad
        p.grad = None
    assert p.data == [0.125]


def test_only_leaves_change():
    y = leaf(1.0) * 2
    with pytest.raises(RuntimeError, match="the result of mul cannot be changed in place"), y.writing():
        pass
    with pytest.raises(RuntimeError, match="cannot be assigned to"):
        y.data = [3.0]
    with pytest.raises(ValueError, match="read-only"):
        y.data -= 1.0


def test_a_change_that_fails_leaves_the_value_read_only():
    p = leaf(1.0, 2.0)
    with pytest.raises(ZeroDivisionError), p.writing() as value:
        value[0] = 1 / 0
    assert not p.data.flags.writeable
    with pytest.raises(ValueError, match=r"keeps the shape, \(2,\), not \(3,\)"):
        p.data = np.ones(3)
    with pytest.raises(ValueError, match="broadcast"):
        p.data -= np.ones(3)
