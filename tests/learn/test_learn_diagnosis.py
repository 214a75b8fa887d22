"""What is said of a wrong gradient: the right thing, in the right order, and nothing where nothing is known."""
import itertools

import numpy as np
import pytest
from answers import ANSWERS

from minitx.learn.edits import described, kind
from minitx.learn.exercise import Exercise
from minitx.learn.exercises.embedding import EXERCISE as EMBEDDING
from minitx.learn.exercises.layer_norm import EXERCISE as LAYER_NORM
from minitx.learn.exercises.linear import EXERCISE as LINEAR
from minitx.learn.exercises.log_softmax import EXERCISE as LOG_SOFTMAX
from minitx.learn.exercises.softmax import EXERCISE as SOFTMAX
from minitx.learn.ladder import climb
from minitx.learn.structure import factor_name


def function(slug, **changes):
    """A learner's function with some of its text changed."""
    text = ANSWERS[slug]
    for old, new in changes.values():
        assert old in text
        text = text.replace(old, new)
    space = {}
    exec(compile(text, f"<{slug}>", "exec"), space)
    return space[slug.replace("-", "_")]


def said(exercise, f):
    result = climb(exercise, f)
    assert not result.passed
    return {found.key: found.values for found in result.findings}


DX = "dx = y * (dy - (dy * y).sum(-1, keepdims=True))"
NORM = "dx = dxhat - dxhat.mean(-1, keepdims=True) - xhat * (dxhat * xhat).mean(-1, keepdims=True)"


@pytest.mark.parametrize(
    ("line", "key", "factor"),
    [
        ("dx = 2 * ", "factor-named", "2"),
        ("dx = 0.5 * ", "factor-named", "1/2"),
        ("dx = 5 * ", "factor-named", "n"),
        ("dx = 1 / 5 * ", "factor-named", "1/n"),
        ("dx = 5**0.5 * ", "factor-named", "sqrt(n)"),
        ("dx = 1 / 6 * ", "factor-named", "1/rows"),
        ("dx = -", "factor-sign", None),
        ("dx = 0 * ", "nothing", None),
    ],
)
def test_a_constant_factor_has_its_name(line, key, factor):
    found = said(SOFTMAX, function("softmax", dx=(DX, DX.replace("dx = ", line))))
    assert key in found
    if factor:
        assert factor in found[key]["factor"].split(" = ")


def test_a_factor_without_a_name_is_given_as_a_number():
    found = said(SOFTMAX, function("softmax", dx=(DX, DX.replace("dx = ", "dx = 1.2345 * "))))
    assert found["factor"]["number"] == "1.2345"


def test_names_of_factors():
    assert factor_name(7.0, {"D": 7.0}) == "D"
    assert factor_name(-1 / 7, {"D": 7.0}) == "-1/D"
    assert factor_name(0.3, {"p": 0.3}) == "p"
    assert factor_name(1 / 35, {"B D": 35.0}) == "1/(B D)"
    assert factor_name(1.234, {"D": 7.0}) == ""


def test_a_sum_over_rows_that_was_not_taken():
    assert "unsummed" in said(LINEAR, function("linear", b=("dbias = rows.sum(0)", "dbias = rows")))


def test_a_transpose():
    found = said(LINEAR, function("linear", w=("dweight = rows.T @ x.reshape(-1, x.shape[-1])",
                                               "dweight = x.reshape(-1, x.shape[-1]).T @ rows")))  # fmt: skip
    assert found["transposed"]["order"] == [1, 0]


def test_a_term_that_is_missing():
    found = said(SOFTMAX, function("softmax", dx=(DX, "dx = y * dy")))
    assert found["terms-missing"]["terms"] == "2"
    assert "rows-sum-to-zero" in found


@pytest.mark.parametrize(
    ("new", "key", "terms"),
    [
        ("dx = dxhat", "terms-missing", "2, 3"),
        (NORM.replace(" - xhat * (dxhat * xhat).mean(-1, keepdims=True)", ""), "terms-missing", "3"),
        (NORM.replace("(dxhat * xhat).mean", "(dxhat * xhat).sum"), "terms-sum-for-mean", "3"),
        (NORM.replace("dxhat.mean", "dxhat.sum"), "terms-sum-for-mean", "2"),
        (NORM.replace("- xhat", "+ xhat"), "terms-sign", "3"),
        (NORM.replace("- xhat", "- 2 * xhat"), "terms-factor", "3"),
    ],
)
def test_terms_of_layer_norm(new, key, terms):
    assert said(LAYER_NORM, function("layer-norm", dx=(NORM, new)))[key]["terms"] == terms


def test_an_intermediate_by_its_name():
    found = said(LAYER_NORM, function("layer-norm", dxhat=("dxhat = dy * weight", "dxhat = dy")))
    assert found["intermediate-after"]["name"] == "dxhat"
    assert found["intermediate-after"]["fine"] == "xhat"
    assert found["factor-missing"]["other"] == "weight"


def test_a_variable_that_was_right_for_a_while_is_not_blamed():
    f = function("layer-norm", dx=(NORM, "dx = dxhat - dxhat.mean(-1, keepdims=True)\n        dxhat = dxhat * 0"))
    assert not any(key.startswith("intermediate") for key in said(LAYER_NORM, f))


def test_a_known_mistake_by_hand():
    found = said(SOFTMAX, function("softmax", dx=(DX, "dx = y * (1 - y) * dy")))
    assert found["mutant"]["text"] == "@mutants.independent"


def test_a_known_mistake_by_machine():
    found = said(SOFTMAX, function("softmax", dx=(DX, "dx = y * (dy - (dy + y).sum(-1, keepdims=True))")))
    assert any(key.startswith("edit-") for key in found) or "nonlinear-rest" in found


def test_wrong_only_for_repeated_ids():
    f = function("embedding", w=("np.add.at(dweight, ids, dy)", "dweight[ids] = dy"))
    assert "only-repeated" in said(EMBEDDING, f)


def test_nothing_is_said_of_what_is_not_known():
    noise = np.random.default_rng(5).standard_normal((2, 3, 5))
    f = function("softmax", dx=(DX, DX + "\n        dx = dx * NOISE if dx.ndim == 3 else dx"))
    f.__globals__["NOISE"] = noise
    result = climb(SOFTMAX, f)
    assert [found.key for found in result.findings if not found.weak] == ["direction"]
    assert result.findings[-1].key == "worst"
    assert result.heat is not None


def test_a_mistake_of_the_backward_pass_is_not_said_of_a_forward_pass():
    """A known mistake with the same NaN in its value: the sentence would be about something else."""
    f = function("softmax", e=("np.where(np.isfinite(top), top, 0)", "top"), total=("1e-300", "0"))
    assert "mutant" not in said(SOFTMAX, f)


def test_a_forward_pass_along_the_wrong_axis():
    f = function("softmax", top=("x.max(-1", "x.max(-2"), total=("e.sum(-1", "e.sum(-2"))
    assert said(SOFTMAX, f)["sums-along"] == {"name": "y", "axis": 2, "total": "1", "other": 1}
    assert "sums" in said(SOFTMAX, function("softmax", total=("e.sum(-1, keepdims=True)", "e.sum()")))


def test_wrong_only_at_an_index_or_on_the_diagonal():
    square = Exercise(
        slug="square", part=1, minutes=10, function="f", signature="x", gradients=("x",),
        solution=lambda x: (x * x, lambda dy: 2 * x * dy), arguments=lambda rng: {"x": rng.standard_normal((5, 5))},
    )  # fmt: skip

    def off(where):
        def backward(x, dy):
            dx = 2 * x * dy
            dx[where(dx)] *= 1.7
            return dx

        return lambda x: (x * x, lambda dy: backward(x, dy))

    assert "only-diagonal-on" in said(square, off(lambda g: np.eye(5, dtype=bool)))
    assert "only-diagonal-above" in said(square, off(lambda g: np.triu(np.ones((5, 5), bool), 1)))
    assert said(square, off(lambda g: np.arange(5)[:, None] * np.ones(5) == 3))["only-index"]["index"] == 3


# ---------------------------------------------------------------------- edits in words


@pytest.mark.parametrize(
    ("before", "after", "key", "piece"),
    [
        ("dx = a - b", "dx = a + b", "sign", ""),
        ("dx = a * b", "dx = a / b", "divided", ""),
        ("dx = a * b", "dx = a", "factor", "b"),
        ("dx = a - b", "dx = a", "term", "b"),
        ("dx = a - b * c", "dx = a", "term-some", ""),
        ("dx = a @ b", "dx = b @ a", "operands", ""),
        ("dx = -a", "dx = a", "sign", ""),
        ("dx = a.sum(0)", "dx = a.mean(0)", "mean-for-sum", ""),
        ("dx = a.mean(0)", "dx = a.sum(0)", "sum-for-mean", ""),
        ("dx = a.sum(0)", "dx = a.sum(1)", "index", ""),
        ("dx = a.sum(0)", "dx = a", "call", "sum"),
        ("dx = a.T @ b", "dx = a @ b", "call", "T"),
        ("dx = a.sum(0, keepdims=True)", "dx = a.sum(0)", "keepdims", ""),
        ("dx = np.where(m, a, b)", "dx = np.where(m, b, a)", "where", ""),
        ("dx = a[i]", "dx = a", "subscript", ""),
        ("dx -= a", "pass", "statement", ""),
        ("dx -= a", "dx += a", "sign", ""),
        ("return (a, b)", "return (b, a)", "order", ""),
        ("if m:", "if True:", "branch", ""),
        ("dx = 2.0 * a", "dx = 4.0 * a", "number", ""),
    ],
)
def test_kinds_of_edits(before, after, key, piece):
    found = described(f"{before}  →  {after}")
    assert (found.key, found.values["piece"]) == (f"edit-{key}", piece)


def test_an_edit_does_not_show_the_right_formula():
    found = described("dx = dxhat - xhat * (dxhat * xhat).mean(-1)  →  dx = dxhat")
    assert found.values == {"where": "dx", "piece": ""}
    assert kind.__doc__


# ---------------------------------------------------------------------- only what is true is said


def is_true(found, c, n):
    """Does the sentence hold of Σ c_i term_i?"""
    if found.key.startswith("factor"):
        return len(set(c)) == 1
    if found.key == "nothing":
        return not any(c)
    if found.key == "terms-else":
        return 1 in c
    if found.key.startswith("terms-"):
        said = {c[int(i) - 1] for i in found.values["terms"].split(", ")}
        named = {"missing": {0}, "sign": {-1}, "sum-for-mean": {n, 6}, "mean-for-sum": {1 / n}}
        wanted = named.get(found.key.removeprefix("terms-"))
        return len(said) == 1 and (said <= wanted if wanted else not said & {0, 1, -1, n, 1 / n})
    return found.weak or found.key in ("entries-some", "direction", "mutant") or found.key.startswith("edit-")


def test_of_every_mixture_of_terms_only_the_truth_is_said():
    terms = LAYER_NORM.terms
    n = 7
    rng = np.random.default_rng(0)
    assert LAYER_NORM.arguments(rng)["x"].shape[-1] == n
    explained = 0
    for c in itertools.product((0, 1, -1, n, 1.7), repeat=3):
        if c == (1, 1, 1):
            continue

        def layer_norm(x, weight, bias, eps, c=c):
            y, backward = right(x, weight, bias, eps)

            def mixed(dy):
                parts = terms(dy, x, weight, bias, eps)["x"]
                return sum(k * t for k, t in zip(c, parts)), *backward(dy)[1:]

            return y, mixed

        result = climb(LAYER_NORM, layer_norm)
        assert not result.passed
        assert all(is_true(found, c, n) for found in result.findings), (c, result.findings)
        explained += result.explained
    assert explained > 60  # of 124: where three coefficients are wrong in three ways nothing is said


right = function("layer-norm")


@pytest.mark.parametrize("place", ["y", "dx"])
def test_almost_right_is_not_called_by_another_name(place):
    """Off by 1e-7: neither a transpose nor a factor, but a rounded constant or an eps."""
    old = "    return y, backward" if place == "y" else "return dx"
    new = "    return y * (1 + 1e-7), backward" if place == "y" else "return dx * (1 + 1e-7)"
    found = said(SOFTMAX, function("softmax", almost=(old, new)))
    assert found["almost"] == {"name": place, "gap": "1.0e-07"}
    assert set(found) <= {"almost", "value", "entries"}


def test_almost_right_is_no_known_mistake():
    """The known one, log of a probability that is 0, is right on ordinary numbers; this one is not."""
    def log_softmax(x):
        c = x - x.max(-1, keepdims=True)
        y = c - np.log(np.exp(c).sum(-1, keepdims=True) + 1e-7)
        return y, lambda dy: dy - np.exp(y) * dy.sum(-1, keepdims=True)

    assert set(said(LOG_SOFTMAX, log_softmax)) == {"value", "almost"}
