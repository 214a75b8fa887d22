"""What a failing gradient check says: where, by how much, and the simple relation of wrong and right."""
from __future__ import annotations

import numpy as np
import pytest
from wrong_gradients import B, W, X, affine, failure, wrong

from minitx import op
from minitx.checking.diagnosis import relation
from minitx.ops import layer_norm

rng = np.random.default_rng(8)
ROWS = np.array([[1.5], [2.5], [-3.0]])
SAID = {  # which input gets which gradient, and what is then said of it
    "double": ("x", lambda dy, x, w, b: 2 * dy * w, "2 times the right one, everywhere (the factor is 2)"),
    "half": ("x", lambda dy, x, w, b: dy * w / 2, "0.5 times the right one, everywhere (the factor is 1/2)"),
    "sign": ("x", lambda dy, x, w, b: -dy * w, "-1 times the right one, everywhere (the sign is wrong)"),
    "1/n": ("w", lambda dy, x, w, b: (dy * x).mean(0), "the factor is 1/3, where 3 is the size of axis 0 of x"),
    "n": ("b", lambda dy, x, w, b: dy.sum(0) * 3, "the factor is 3, where 3 is the size of axis 0 of x"),
    "root": ("x", lambda dy, x, w, b: dy * w / np.sqrt(5), "the factor is 1/sqrt(5), where 5 is the size of axis"),
    "n - 1": ("b", lambda dy, x, w, b: dy.sum(0) * 5 / 4, "the factor is 5/4, where 5 is the size of axis"),
    "sign and n": ("b", lambda dy, x, w, b: -dy.mean(0), "(the sign is wrong; the factor is -1/3, where 3 is"),
    "any": ("x", lambda dy, x, w, b: dy * w * 1.2345, "backward is 1.2345 times the right one, everywhere"),
    "zero": ("x", lambda dy, x, w, b: 0 * dy, "backward says 0 everywhere"),
    "none": ("x", lambda dy, x, w, b: None, "backward says 0 everywhere"),
    "gain": ("x", lambda dy, x, w, b: dy, "the factor w is missing"),
    "gain twice": ("x", lambda dy, x, w, b: dy * w * w, "the factor w is one too many"),
    "other input": ("w", lambda dy, x, w, b: dy.sum(0), "backward is db itself"),
    "sum": ("b", lambda dy, x, w, b: dy, "has shape (3, 5) instead of (5,): summed over axes (0,) it is right"),
    "kept": ("b", lambda dy, x, w, b: dy.sum(0, keepdims=True), "shape (1, 5) instead of (5,): summed over axes"),
    "too many": ("x", lambda dy, x, w, b: (dy * w).sum(0), "the right one summed over axes (0,), a sum too many"),
    "transpose": ("x", lambda dy, x, w, b: (dy * w).T, "instead of (3, 5): it is the transpose of the right one"),
    "flat": ("x", lambda dy, x, w, b: (dy * w).ravel(), "shape (15,) instead of (3, 5): reshaped it is right"),
    "strange": ("x", lambda dy, x, w, b: np.ones(4), "backward has shape (4,) instead of (3, 5)"),
    "order": ("x", lambda dy, x, w, b: (dy * w).T.reshape(3, 5), "in the order (1, 0) and then only reshaped"),
    "places": ("x", lambda dy, x, w, b: (dy * w)[::-1], "the right numbers, but in other places"),
    "diagonal": ("x", lambda dy, x, w, b: dy * w * (1 - np.eye(3, 5)), "entries on the diagonal, where it says 0"),
    "corner": ("x", lambda dy, x, w, b: np.tril(dy * w), "at the entries above the diagonal, where it says 0"),
    "row": ("x", lambda dy, x, w, b: dy * w * [[1], [1], [-1]], "right except at index 2 of axis 0, where"),
    "entry": ("w", lambda dy, x, w, b: (dy * x).sum(0) + np.eye(5)[3], "right except at index 3 of axis 0"),
    "entries": ("x", lambda dy, x, w, b: dy * w + np.eye(3, 5, 2), "at [0, 2], [1, 3], [2, 4] (3 of 15 entries)"),
    "negative": ("x", lambda dy, x, w, b: np.where(x < 0, 0, dy * w), "right except where x < 0, where it says 0"),
    "constant": ("x", lambda dy, x, w, b: dy * w - (dy * w).mean(1, keepdims=True), "one number all along axis 1"),
    "per row": ("x", lambda dy, x, w, b: dy * w * ROWS, "one number all along axes (1,), backward is right"),
    "not a number": ("x", lambda dy, x, w, b: dy + np.where(np.eye(3, 5), np.nan, 0), "not finite at the entries on"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_holds_between_wrong_and_right(name):
    guilty, gradient, said = SAID[name]
    with wrong(*(gradient if n == guilty else None for n in "xwb")):
        error = failure(affine, X, W, B)
    assert [row.name for row in error.report.rows if not row.error <= 1e-6] == [guilty]
    assert said in error.relations[guilty]
    assert said in str(error)


def test_message_has_the_numbers():
    with wrong(None, lambda dy, x, w, b: np.array([1.0, 1, 1, 9, 1]) * (dy * x).sum(0), None):
        error = failure(affine, X, W, B)
    row = error.report.rows[1]
    assert row.where == (3,)
    assert row.backward == pytest.approx(9 * row.differences)
    assert f"worst at w[3]: backward says {row.backward:.8g}, differences say {row.differences:.8g}" in str(error)
    assert f"relative error {row.error:.1e}" in str(error)
    assert str(error.report) in str(error)
    assert isinstance(error, AssertionError)


def test_broadcasting_op_with_a_gradient_of_a_strange_shape():
    @op(broadcasts=True)
    def plus(x, y):
        return x + y, lambda dy: (dy.T, dy)

    error = failure(plus, X, W)
    assert "it is the transpose of the right one" in error.relations["x"]
    assert error.report.rows[1].error < 1e-9


def test_minus_infinity_beside_a_wrong_gradient():
    bias = np.where(np.eye(3, 5) > 0, -np.inf, 0.5)

    def sign(x, bias):
        e = np.exp(x + bias)
        y = e / e.sum(-1, keepdims=True)
        return y, lambda dy: (-y * (dy - (dy * y).sum(-1, keepdims=True)), y * (dy - (dy * y).sum(-1, keepdims=True)))

    with product.using(sign):
        assert "the sign is wrong" in failure(product, X, bias).relations["x"]


@op
def product(x, y):
    return x * y, lambda dy: (dy * y, dy * x)


def test_square_transpose():
    x = rng.standard_normal((3, 3))

    @op
    def product(x, y):
        return x @ y, lambda dy: ((dy @ y.T).T, x.T @ dy)

    error = failure(product, x, rng.standard_normal((3, 3)))
    assert error.relations["x"] == "backward is the transpose of the right one (axes (1, 0))"


def test_missing_term_that_is_known():
    @op
    def residual(x):
        return x + np.tanh(x), lambda dy: dy * (1 - np.tanh(x) ** 2)

    assert failure(residual, X).relations["x"] == "the term dy is missing"


def test_nothing_is_said_where_nothing_holds():
    assert relation(rng.standard_normal((3, 5)), X) is None
    assert relation(X, X + 1e-9) is None


def test_a_small_mistake_is_seen():
    """An eps left out of the backward: 1 part in 100,000."""

    def no_eps(x, weight=None, bias=None, eps=1e-5):
        c = x - x.mean(-1, keepdims=True)
        v = (c * c).mean(-1, keepdims=True)
        y = c / np.sqrt(v + eps)

        def backward(dy):
            h = c / np.sqrt(v)
            return (dy - dy.mean(-1, keepdims=True) - h * (dy * h).mean(-1, keepdims=True)) / np.sqrt(v), None, None

        return y, backward

    with layer_norm.using(no_eps):
        assert 1e-6 < failure(layer_norm, X).report.error < 1e-3
