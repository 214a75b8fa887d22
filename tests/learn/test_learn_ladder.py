"""The ladder: each rung is failed by what it is there for, and the check stops at the first one."""
import json

import numpy as np
import pytest
from answers import ANSWERS

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.layer_norm import EXERCISE as LAYER_NORM
from minitx.learn.exercises.softmax import EXERCISE as SOFTMAX
from minitx.learn.exercises.step_width import EXERCISE as STEP_WIDTH
from minitx.learn.finding import Finding
from minitx.learn.ladder import climb
from minitx.learn.render import sentence

KEPT = []


def parts(x):
    top = x.max(-1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0))
    y = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)
    return y, lambda dy: y * (dy - (dy * y).sum(-1, keepdims=True))


def first(function, exercise=SOFTMAX):
    """The rung that fails, and the key of the first finding."""
    result = climb(exercise, function)
    assert result.climbed == result.rungs[: len(result.climbed)]
    return result.failed, result.findings[0].key if result.findings else ""


def softmax_with(value=lambda y: y, gradient=lambda dx, dy, y: dx):
    def softmax(x):
        y, backward = parts(x)
        return value(y), lambda dy: gradient(backward(dy), dy, y)

    return softmax


def test_right_answers_climb_all_rungs():
    result = climb(SOFTMAX, parts)
    assert result.passed
    assert result.climbed == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("seed", range(5))
def test_right_answers_pass_on_every_seed(seed):
    assert climb(SOFTMAX, parts, seed=seed).passed


def test_1_shape():
    assert first(softmax_with(lambda y: y.sum(-1))) == (1, "shape")


def test_2_values():
    assert first(softmax_with(lambda y: 2 * y)) == (2, "value")


def test_2_values_of_large_scores():
    def softmax(x):
        y = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
        return y, lambda dy: y * (dy - (dy * y).sum(-1, keepdims=True))

    assert first(softmax) == (2, "value-case")


def test_3_gradient_shapes():
    assert first(softmax_with(gradient=lambda dx, dy, y: dx.sum(0))) == (3, "gradient-shape")


@pytest.mark.parametrize(
    ("gradient", "key"),
    [
        (lambda dx, dy, y: dx * dy, "nonlinear-square"),
        (lambda dx, dy, y: dx + y, "nonlinear-rest"),
        (lambda dx, dy, y: np.sign(dx), "nonlinear-sign"),
        (lambda dx, dy, y: np.abs(dx), "nonlinear"),
    ],
)
def test_4_linearity(gradient, key):
    assert first(softmax_with(gradient=gradient)) == (4, key)


def test_5_direction():
    assert first(softmax_with(gradient=lambda dx, dy, y: dy)) == (5, "direction")


def test_6_an_error_that_the_direction_misses():
    """Small in one entry: the projection on a random direction passes, the entry does not."""

    def gradient(dx, dy, y):
        dx = dx.copy()
        dx[0, 0, 0] += 3e-6 * np.abs(dx).max() * np.sign(dy[0, 0, 0])
        return dx

    failed, _ = first(softmax_with(gradient=lambda dx, dy, y: gradient(dx, dy, y) if dx.ndim == 3 else dx))
    assert failed in (4, 5, 6)


def test_7_adversarial_rows():
    def softmax(x):
        e = np.exp(x - x.max(-1, keepdims=True))
        y = e / e.sum(-1, keepdims=True)
        return y, lambda dy: y * (dy - (dy * y).sum(-1, keepdims=True))

    assert first(softmax) == (7, "value-case")


def test_an_exception_in_a_special_case_names_the_case():
    def softmax(x):
        if np.isneginf(x).all(-1).any():
            raise ValueError("empty row")
        return parts(x)

    result = climb(SOFTMAX, softmax)
    assert result.failed == 7
    assert [found.key for found in result.findings] == ["no.raised", "case"]
    assert result.findings[1].values == {"case": "@cases.blind"}


def in_place(x):
    x -= np.where(np.isfinite(x.max(-1, keepdims=True)), x.max(-1, keepdims=True), 0)
    return parts(x)


def spoils_dy(x):
    y, backward = parts(x)

    def spoiling(dy):
        dx = backward(dy)
        dy *= 0
        return dx

    return y, spoiling


def remembers(x):
    y, _ = parts(x)
    KEPT[:] = [y]
    return y, lambda dy: KEPT[0] * (dy - (dy * KEPT[0]).sum(-1, keepdims=True))


def keeps_its_buffer(x):
    y, backward = parts(x)
    found = []

    def once(dy):
        found[:] = found or [backward(dy)]
        return found[0]

    return y, lambda dy: once(dy) if np.ndim(dy) and dy.strides[-1] and dy.flags.c_contiguous else backward(dy)


def seeds_the_world(x):
    np.random.seed(0)  # noqa: NPY002
    return parts(x)


def writes_through_a_reshape(x):
    y, backward = parts(x)

    def rows(dy):
        dx = np.zeros_like(dy)
        flat = dx.reshape(-1, dx.shape[-1])
        flat[...] = backward(dy).reshape(flat.shape)
        return dx

    return y, rows


@pytest.mark.parametrize(
    ("function", "key"),
    [
        (in_place, "odd.changed"),
        (spoils_dy, "odd.changed"),
        (remembers, "odd.interleaved"),
        (seeds_the_world, "odd.state"),
        (writes_through_a_reshape, "odd.strided"),
    ],
)
def test_7_manners(function, key):
    assert first(function) == (7, key)


def test_7_a_gradient_that_is_a_piece_of_an_argument():
    def same(x):
        return x.copy(), lambda dy: (x.__setitem__(..., dy), x)[1]

    identity = Exercise(
        slug="identity", part=1, minutes=10, function="same", signature="x", gradients=("x",),
        solution=lambda x: (x.copy(), lambda dy: dy.copy()), arguments=lambda rng: {"x": rng.standard_normal((3, 5))},
    )  # fmt: skip
    assert first(same, identity)[1] in ("odd.changed", "odd.alias")
    assert first(lambda x: (x.copy(), lambda dy: dy), identity) == (None, "")  # handing dy on is allowed


# ---------------------------------------------------------------------- what comes out of a function


@pytest.mark.parametrize(
    ("function", "key"),
    [
        (5, "no.callable"),
        (lambda x, y: None, "no.signature"),
        (lambda x: None, "no.none"),
        (lambda x: x, "no.pair"),
        (lambda x: (x, x), "no.pair"),
        (lambda x: (..., lambda dy: dy), "no.unwritten"),
        (softmax_with(gradient=lambda dx, dy, y: None), "no.none"),
        (softmax_with(gradient=lambda dx, dy, y: ...), "no.unwritten"),
        (softmax_with(gradient=lambda dx, dy, y: (dx, dx)), "no.gradients"),
        (softmax_with(gradient=lambda dx, dy, y: "dx"), "no.array"),
        (softmax_with(gradient=lambda dx, dy, y: dx.astype(np.float32)), "no.dtype"),
        (softmax_with(gradient=lambda dx, dy, y: np.ones(dx.shape, int)), "no.integers"),
        (softmax_with(lambda y: y.tolist()), "no.array"),
        (softmax_with(lambda y: y.astype(np.float32)), "no.dtype"),
        (softmax_with(lambda y: np.array([None] * 3)), "no.kind"),
        (softmax_with(lambda y: 1 / 0), "no.raised"),
        (softmax_with(lambda y: np.broadcast_to(1.0, (10**6, 10**6))), "shape"),
    ],
)
def test_bad_results_have_one_clear_finding(function, key):
    result = climb(SOFTMAX, function)
    assert not result.passed
    assert result.findings[0].key == key
    assert len(str(result.findings[0].values)) < 400


def test_exceptions_carry_line_and_shapes(tmp_path):
    file = tmp_path / "softmax.py"
    file.write_text(ANSWERS["softmax"].replace("(dy * y).sum(-1, keepdims=True)", "(dy * y).sum(-1)"), "utf-8")
    space = {}
    exec(compile(file.read_text("utf-8"), str(file), "exec"), space)
    found = climb(SOFTMAX, space["softmax"], str(file)).findings[0]
    assert found.key == "no.raised-at-shapes"
    assert found.values["line"] == 10
    assert "dx = y" in found.values["code"]
    assert "dy (2, 3, 5)" in found.values["shapes"]


def test_a_slow_function_has_a_part_of_its_entries_tried(monkeypatch):
    monkeypatch.setattr("minitx.learn.ladder.BUDGET", 1e-6)
    assert climb(SOFTMAX, parts).passed
    assert climb(SOFTMAX, softmax_with(gradient=lambda dx, dy, y: dx * (1 + 1e-3 * (dx > 0)))).failed is not None


def test_several_gradients():
    space = {}
    exec(ANSWERS["layer-norm"], space)
    assert climb(LAYER_NORM, space["layer_norm"]).passed


@pytest.mark.parametrize(
    ("gradient", "place", "number"),
    [
        (lambda dx, dy, y: np.where(np.arange(5) == 3, np.nan, dx), "[0, 0, 3]", "nan"),
        (lambda dx, dy, y: dx * np.where(np.arange(3)[:, None] == 2, np.inf, 1), "[0, 2, 0]", None),
        (lambda dx, dy, y: dx + 0 * np.log(dy), None, "nan"),  # only where dy < 0
    ],
)
def test_numbers_come_before_linearity(gradient, place, number):
    result = climb(SOFTMAX, softmax_with(gradient=gradient))
    found = result.findings[0]
    assert found.key == "not-finite"
    assert found.values["name"] == "dx"
    assert 0 < found.values["n"] < found.values["all"] == 30 or place is None
    assert place is None or found.values["place"] == place
    assert number is None or found.values["number"] == number
    assert not any(f.key.startswith("nonlinear") for f in result.findings)


def test_numbers_come_before_linearity_where_dy_is_0():
    with_division = softmax_with(gradient=lambda dx, dy, y: dx / dy * dy)
    assert first(with_division) == (4, "not-finite-zero")


def test_a_value_that_is_no_number_is_told_once():
    result = climb(SOFTMAX, softmax_with(lambda y: np.where(np.arange(5) == 1, np.nan, y)))
    assert [found.key for found in result.findings] == ["value", "not-finite"]
    assert result.findings[1].values["place"] == "[0, 0, 1]"


def test_in_a_special_case_too():
    wrong = softmax_with(gradient=lambda dx, dy, y: dx if y.shape[-1] > 1 else dx / 0)
    result = climb(SOFTMAX, wrong)
    assert result.failed == 7
    assert [found.key for found in result.findings] == ["gradient-case", "not-finite"]


@pytest.mark.parametrize("setting", [{"all": "ignore"}, {"over": "raise"}])
def test_7_error_settings_are_everybodys(setting):
    before = np.geterr()

    def softmax(x):
        np.seterr(**setting)
        return parts(x)

    assert first(softmax) == (7, "odd.state")
    assert np.geterr() == before


@pytest.mark.parametrize("backward", [lambda: 1, lambda dy, x: dy])
def test_a_backward_with_other_parameters(backward):
    result = climb(SOFTMAX, lambda x: (parts(x)[0], backward))
    assert (result.failed, result.findings[0].key) == (3, "no.signature")
    assert result.findings[0].values["name"] == "backward"


@pytest.mark.parametrize(
    ("gradient", "key"),
    [
        (lambda dx, dy, y: dx.tolist(), "no.array"),  # and not "one gradient is wanted, two came"
        (lambda dx, dy, y: dx > 0, "no.kind"),
        (lambda dx, dy, y: dx + 0j, "no.kind"),
    ],
)
def test_other_kinds_of_gradients(gradient, key):
    assert first(softmax_with(gradient=gradient)) == (3, key)


def test_an_exception_that_says_nothing():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    def softmax(x):
        raise Mute

    assert climb(SOFTMAX, softmax).findings[0].values["said"] == "Mute"


@pytest.mark.parametrize(
    ("answer", "key", "words"),
    [
        (None, "no.none", "returned None"),
        ("a", "no.answer", "cannot use what `u_curve` returned: str 'a'"),
        ([1, [2]], "no.answer", "cannot use"),
        (1.0, "says", "have the shape (); there is one for each step, so (12,)"),
    ],
)
def test_an_answer_that_a_judge_cannot_use(answer, key, words):
    result = climb(STEP_WIDTH, lambda f, df, x, steps: answer)
    assert result.findings[0].key == key
    data = json.loads(json.dumps(result.findings[0].values))  # as it comes back from the checker's process
    assert words in sentence(Finding(key, data), "step-width", "en")
