"""The ladder: each rung is failed by what it is there for, and the check stops at the first one."""
import numpy as np
import pytest
from answers import ANSWERS

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.layer_norm import EXERCISE as LAYER_NORM
from minitx.learn.exercises.softmax import EXERCISE as SOFTMAX
from minitx.learn.ladder import climb

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
        (softmax_with(lambda y: np.array([None] * 3)), "no.dtype"),
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
