from __future__ import annotations

import numpy as np
import pytest
from drawn import generators, quick
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck


@given(hnp.mutually_broadcastable_shapes(signature=np.matmul.signature, max_dims=2, min_side=0, max_side=3), generators)
@quick
def test_matmul_of_any_shapes(drawn, rng):
    x, y = (np.asarray(rng.standard_normal(shape)) for shape in drawn.input_shapes)
    np.testing.assert_allclose(ops.matmul(x, y).numpy(), x @ y, rtol=1e-13, atol=1e-13)
    gradcheck(ops.matmul, x, y)


def test_pitfall_35_no_rows():
    x = Tensor(np.zeros((0, 3)), requires_grad=True)
    w = Tensor(np.ones((3, 2)), requires_grad=True)
    y = x @ w
    y.backward(np.zeros((0, 2)))
    assert y.shape == (0, 2)
    assert w.grad.tolist() == np.zeros((3, 2)).tolist()
    gradcheck(ops.matmul, np.ones((2, 3, 0)), np.ones((0, 5)))


def test_one_matrix_for_a_stack_sums_over_it():
    rng = np.random.default_rng(0)
    x, w, dy = rng.standard_normal((2, 3, 5)), rng.standard_normal((5, 7)), rng.standard_normal((2, 3, 7))
    t = Tensor(w, requires_grad=True)
    (x @ t).backward(dy)
    np.testing.assert_allclose(t.grad, np.einsum("bti,bto->io", x, dy), rtol=1e-13)


def test_matmul_messages():
    with pytest.raises(ValueError, match=r"last axis of x .* \(2, 3\) and \(2, 3\) were given. Is a transpose missing"):
        Tensor(np.ones((2, 3))) @ Tensor(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"matmul: .*\(\) and \(3,\)"):
        2 @ Tensor(np.ones(3))


@st.composite
def contractions(draw):
    """Subscripts and shapes: repeated letters, letters of one operand alone, any output."""
    size = {c: draw(st.integers(0, 3)) for c in "abcd"}
    terms = draw(st.lists(st.text("abcd", max_size=3), min_size=1, max_size=3))
    letters = sorted(set("".join(terms)))
    output = draw(st.permutations(letters).flatmap(lambda p: st.integers(0, len(p)).map(lambda n: p[:n])))
    subscripts = ",".join(terms) + ("->" + "".join(output) if draw(st.booleans()) else "")
    return subscripts, [tuple(size[c] for c in term) for term in terms]


@given(contractions(), generators)
@quick
def test_einsum_of_any_letters(drawn, rng):
    subscripts, shapes = drawn
    xs = [np.asarray(rng.standard_normal(shape)) for shape in shapes]
    np.testing.assert_allclose(ops.einsum(subscripts, *xs).numpy(), np.einsum(subscripts, *xs), rtol=1e-12, atol=1e-12)
    gradcheck(ops.einsum, subscripts, *xs)


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("...", [(2, 3)]),
        ("...ij->...ji", [(2, 3, 5)]),
        ("i...,i->...", [(2, 3, 5), (2,)]),
        ("...a,...a->...", [(2, 1, 3), (5, 3)]),
        ("...,...->...", [(2, 1), (3,)]),
        ("...a,a...", [(2, 3), (3, 5, 1)]),
        ("a...b, b -> ...a", [(2, 3, 5, 7), (7,)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("i...->i...", [(2,)]),
        ("ij,jk->ik", [(2, 1), (3, 5)]),  # an axis of length 1 broadcasts, as in NumPy
        ("j,ij->i", [(3,), (2, 1)]),
    ],
)
def test_einsum_with_ellipsis_and_broadcast_axes(subscripts, shapes):
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal(shape) for shape in shapes]
    np.testing.assert_allclose(ops.einsum(subscripts, *xs).numpy(), np.einsum(subscripts, *xs), rtol=1e-12)
    gradcheck(ops.einsum, subscripts, *xs)


def test_einsum_takes_a_list_and_skips_what_nobody_wants():
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 7, 5))
    t = Tensor(q, requires_grad=True)
    y = ops.einsum("btd,bsd->bts", [t, k])
    y.backward(np.ones(y.shape))
    np.testing.assert_allclose(t.grad, np.broadcast_to(k.sum(1, keepdims=True), q.shape), rtol=1e-13)
    assert y.node is None or y.node.need[1] is False


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ij,jk->ik", [(2, 3)], "2 terms for 1 operands"),
        ("ij->i", [(2, 3, 5)], "'ij' does not name every axis"),
        ("ijk->i", [(2, 3)], "'ijk' does not name every axis"),
        ("ij->ik", [(2, 3)], "each letter of the result occurs there once, and in some operand"),
        ("ij->ii", [(2, 3)], "each letter of the result"),
        ("i.j->i", [(2, 3)], "letters, commas"),
        ("i1->i", [(2, 3)], "letters, commas"),
        ("...i->i", [(2, 3)], "no place for the axes"),
        ("ij,jk->ik", [(2, 3), (5, 7)], r"'j' stands for 3 and 5, in 'ij,jk->ik' with shapes \(2, 3\), \(5, 7\)"),
    ],
)
def test_einsum_messages(subscripts, shapes, message):
    with pytest.raises(ValueError, match=message):
        ops.einsum(subscripts, *(Tensor(np.ones(shape)) for shape in shapes))


def test_einsum_wants_its_subscripts_first():
    with pytest.raises(TypeError, match="einsum: first the subscripts"):
        ops.einsum(np.ones(2), np.ones(2))


def test_einsum_a_diagonal_of_length_one_that_broadcasts():
    x, y = np.array([[2.0]]), np.arange(3.0)
    a = Tensor(x, requires_grad=True)
    ops.einsum("ii,i->i", a, y).backward(np.array([1.0, 10.0, 100.0]))
    np.testing.assert_array_equal(a.grad, [[210.0]])
