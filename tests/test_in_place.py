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


def test_a_change_that_fails_is_no_change():
    p = leaf(1.0, 2.0)
    old = p * p
    for change in ("p.data -= np.ones(3)", "np.add.at(p.data, [5], 1.0)", "p.data = [[1.0]]"):
        with pytest.raises((ValueError, IndexError)):
            exec(change)
    old.backward(np.ones(2))  # still its own graph
    np.testing.assert_array_equal(p.grad, [2.0, 4.0])


def test_ufunc_at_goes_through_the_door():
    """`np.add.at` does not look at the read-only flag."""
    p = leaf(1.0, 2.0, 3.0)
    before, old = p.data, p * p
    np.add.at(p.data, [0, 0, 2], 10.0)
    np.testing.assert_array_equal(p.data, [21.0, 2.0, 13.0])
    np.testing.assert_array_equal(before, [1.0, 2.0, 3.0])
    with pytest.raises(RuntimeError, match="changed in place"):
        old.backward(np.ones(3))
    y = p * 2
    for values in (p.data[:2], y.data, y.data[1:]):
        with pytest.raises(ValueError, match="read-only"):
            np.add.at(values, [0], 1.0)
    np.testing.assert_array_equal(y.data, [42.0, 4.0, 26.0])


def test_a_view_taken_inside_stays_behind():
    p = leaf(1.0, 2.0)
    with p.writing() as value:
        value += 1.0
        kept = value[:1]
    y = p * p
    kept[...] = 100.0
    y.backward(np.ones(2))
    np.testing.assert_array_equal(p.data, [2.0, 3.0])
    np.testing.assert_array_equal(p.grad, [4.0, 6.0])
    with pytest.raises(ValueError, match="read-only"):
        value[0] = 5.0


def test_writing_stays_in_place():
    """The optimizer's way makes no copy: the memory stays the same."""
    p = leaf(1.0, 2.0)

    def where():
        return p._data.__array_interface__["data"][0]

    def step():
        with p.writing() as value:
            value -= 0.5

    before = where()
    for _ in range(3):
        (p * p).sum().backward()
        step()
    assert where() == before


def test_writing_inside_writing():
    p = leaf(1.0, 2.0)
    with p.writing() as value:
        for change in (lambda: p.writing().__enter__(), lambda: setattr(p, "data", [0.0, 0.0])):
            with pytest.raises(RuntimeError, match="inside its own"):
                change()
        value -= 1.0
    np.testing.assert_array_equal(p.data, [0.0, 1.0])


def test_a_graph_made_while_writing_refuses():
    p = leaf(1.0, 2.0)
    with p.writing() as value:
        y = p * p
        value -= 1.0
    with pytest.raises(RuntimeError, match="changed in place"):
        y.backward(np.ones(2))


def test_an_old_value_can_be_put_back():
    p = leaf(1.0, 2.0)
    best = p.data
    p.data -= 1.0
    p.data = best
    np.testing.assert_array_equal(p.data, [1.0, 2.0])
