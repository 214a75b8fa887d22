"""The check is checked: it passes what is right, refuses what it cannot judge, and says what is wrong with the rest."""
from __future__ import annotations

import numpy as np
import pytest
from wrong_gradients import B, W, X, affine, failure, wrong

import minitx
from minitx import Tensor, nn, op, ops
from minitx.checking.cotangent import cotangent, norm
from minitx.gradcheck import STEP, GradientError, gradcheck
from minitx.ops import dropout, layer_norm, softmax

rng = np.random.default_rng(8)


# ---------------------------------------------------------------------- what is right passes


def test_report_is_a_table():
    report = gradcheck(affine, X, W, B)
    assert report.error < 1e-9
    lines = str(report).splitlines()
    assert lines[0] == "gradcheck of affine: float64, random cotangent, tolerance 1e-06"
    assert lines[1].split() == ["input", "shape", "entries", "relative", "error", "worst", "at"]
    assert [line.split()[0] for line in lines[2:]] == ["x", "w", "b"]
    assert [row.entries for row in report.rows] == [15, 5, 5]
    assert all(row.shape == a.shape for row, a in zip(report.rows, (X, W, B)))


def test_function_of_tensors():
    report = gradcheck(lambda x, w: softmax(x * w, axis=0), X, W)
    assert [row.name for row in report.rows] == ["x", "w"]
    assert report.error < 1e-8


def test_several_outputs():
    @op
    def both(x, y):
        return (x * y, x + y), lambda d: (d[0] * y + d[1], d[0] * x + d[1])

    def plain(x, y):
        return both(x, y)

    y = rng.standard_normal((3, 5))
    assert gradcheck(both, X, y).error < 1e-9
    assert gradcheck(plain, X, y).error < 1e-9


def test_variadic_op_names_its_inputs():
    @op
    def total(*xs):
        return sum(xs), lambda dy: (dy,) * len(xs)

    inputs = [rng.standard_normal(3) for _ in range(3)]
    assert [row.name for row in gradcheck(total, *inputs).rows] == ["xs[0]", "xs[1]", "xs[2]"]
    assert [row.name for row in gradcheck(total, inputs).rows] == ["xs[0]", "xs[1]", "xs[2]"]


def test_differentiable_options_are_checked_and_others_passed_on():
    assert [row.name for row in gradcheck(layer_norm, X, weight=W, bias=B, eps=0.1).rows] == ["x", "weight", "bias"]


def test_other_arguments_are_passed_on():
    ids = np.array([1, 0, 2, 1])
    assert [row.name for row in gradcheck(lambda ids, table: table[ids], ids, X).rows] == ["table"]


def test_wrt_and_names():
    assert [row.name for row in gradcheck(affine, X, W, B, wrt=["w", 2]).rows] == ["w", "b"]
    assert [row.name for row in gradcheck(affine, X, W, B, wrt="x").rows] == ["x"]
    assert [row.name for row in gradcheck(affine, X, W, B, names=["a", "b", "c"]).rows] == ["a", "b", "c"]
    with wrong(None, lambda dy, x, w, b: 0 * w, None):
        gradcheck(affine, X, W, B, wrt=["x", "b"])


def test_inputs_without_axes_and_without_elements():
    assert gradcheck(affine, X, W, B).error < gradcheck(lambda x: x * x, np.array(3.0)).tolerance
    assert gradcheck(softmax, np.zeros((0, 5))).rows[0].entries == 0


def test_same_seed_same_numbers():
    assert gradcheck(affine, X, W, B, seed=3) == gradcheck(affine, X, W, B, seed=3)
    one, other = np.random.default_rng(3), np.random.default_rng(3)
    assert gradcheck(affine, X, W, B, seed=one) == gradcheck(affine, X, W, B, seed=other)
    assert gradcheck(affine, X, W, B, seed=3) != gradcheck(affine, X, W, B, seed=4)


def test_inputs_stay_bit_for_bit():
    x = X.copy()
    x[0, 0] = -0.0
    before = x.tobytes()
    with wrong(None, lambda dy, x, w, b: 0 * w, None), pytest.raises(GradientError):
        gradcheck(affine, x, W, B)
    t = Tensor(x, requires_grad=True)
    gradcheck(affine, t, W, B)
    assert x.tobytes() == before == t.data.tobytes()
    assert t.grad is None


def test_minus_infinity_in_an_input_is_left_alone():
    x = X.copy()
    x[1, 2] = -np.inf
    assert gradcheck(softmax, x).error < 1e-8


def test_gradient_that_is_zero():
    """Σ softmax = 1: what differences see is rounding, and 0 is the right answer."""
    assert gradcheck(lambda x: softmax(x).sum(), X).error <= 1e-6


def test_large_and_small_inputs():
    for size in (1e-4, 1e4):
        assert gradcheck(affine, X * size, W, B).error < 1e-6


# ---------------------------------------------------------------------- why the cotangent is random


def test_a_cotangent_of_ones_would_accept_a_wrong_softmax():
    def no_second_term(x, axis=-1):
        y = np.exp(x) / np.exp(x).sum(axis, keepdims=True)
        return y, lambda dy: y * (dy - dy.mean(axis, keepdims=True))

    with softmax.using(no_second_term):
        gradcheck(lambda x: softmax(x).sum(), X)  # accepted
        assert "one number all along axis 1" in failure(softmax, X).relations["x"]


@op
def square(x):
    return x * x, lambda dy: 2 * x * x  # x where dy belongs


@pytest.mark.parametrize("seed", [0, 1, np.random.default_rng(0)])
@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 5)])
def test_the_cotangent_is_not_the_input(seed, shape):
    """Whoever draws x as everybody does must not be given the same numbers as dy."""
    failure(square, np.array(np.random.default_rng(0 if seed != 1 else 1).standard_normal(shape)), seed=seed)


def test_a_cotangent_that_is_proportional_to_an_input_is_drawn_anew():
    class Same:
        """Draws x first, and then something else."""

        def __init__(self):
            self.draws = [X * -3, X * 1e200, np.random.default_rng(1).standard_normal(X.shape)]

        def standard_normal(self, shape):
            return self.draws.pop(0)

    same = Same()
    dy = cotangent(same, X.shape, [W, X])
    assert not same.draws
    assert abs((dy * X).sum()) < 0.999 * norm(dy) * norm(X)


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize("size", [1e-150, 1e155, 1e300])
def test_a_wrong_gradient_of_large_values_is_seen(size):
    @op
    def large(x):
        return x * size, lambda dy: 0 * dy

    failure(large, X)
    with large.using(lambda x: (x * size, lambda dy: dy * size)):
        assert gradcheck(large, X).error < 1e-9


def test_values_next_to_overflow_are_refused():
    with pytest.raises(ValueError, match="so near to overflow cannot be compared"):
        gradcheck(lambda x: x * 1.5e308, np.ones((3, 5)))


def test_large_inputs_have_larger_steps_and_less_rounding():
    x, y = X * 1e12, 1e12 * rng.standard_normal((3, 5))
    assert gradcheck(ops.mse, x, y).error < 1e-7
    with ops.mse.using(lambda x, y: (((x - y) ** 2).mean(), lambda dy: (0 * x, 0 * y))):
        failure(ops.mse, x, y)


HARD = {
    "log": (ops.log, np.abs(X) * 1e-6),
    "sqrt": (ops.sqrt, np.abs(X) * 1e-6),
    "rsqrt": (ops.rsqrt, np.abs(X) * 1e-4 + 1e-6),
    "1/x": (lambda x: 1 / x, np.abs(X) * 1e-4 + 1e-6),
    "x**1.5": (lambda x: x**1.5, np.abs(X) * 1e-5),
    "x**-2": (lambda x: x**-2.0, np.abs(X) * 1e-5 + 1e-6),
    "softmax": (softmax, X + 1e4),
    "layer_norm": (layer_norm, X + 1e4),
}


@pytest.mark.parametrize("name", HARD)
def test_right_gradients_that_need_another_step(name):
    f, x = HARD[name]
    report = gradcheck(f, x)
    assert report.error < 1e-7
    assert not report.kinks


@pytest.mark.parametrize("w", [1e3, 1e4, 1e6])
@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_functions_that_vary_fast(w, factor):
    @op
    def wave(x):
        return np.sin(w * x), lambda dy: factor * dy * w * np.cos(w * x)

    if factor == 1:
        assert not gradcheck(wave, X).kinks
    else:
        assert "1.001 times the right one" in failure(wave, X).relations["x"]


def test_differences_that_do_not_settle_accuse_nobody():
    @op
    def noise(x, y):
        return np.sin(1e15 * x) + y, lambda dy: (dy, dy)

    words = r"gradcheck of noise cannot judge\.\nx\[0, 0\]: differences do not settle here "
    with pytest.raises(ValueError, match=words):
        gradcheck(noise, X, X[::-1].copy())
    with noise.using(lambda x, y: (np.sin(1e15 * x) + y, lambda dy: (dy, 2 * dy))):
        error = failure(noise, X, X[::-1].copy())
    assert error.relations["y"] == "backward is 2 times the right one, everywhere (the factor is 2)"
    assert "x" not in error.relations
    assert "differences do not settle here" in str(error)


# ---------------------------------------------------------------------- nothing else is touched, or decides


def test_parameters_inside_the_function_keep_their_gradients():
    layer = nn.Linear(5, 3, rng=np.random.default_rng(0)).astype(np.float64)
    layer.weight.grad = before = np.ones((3, 5))
    gradcheck(lambda x: layer(x), X)
    assert layer.weight.grad is before
    np.testing.assert_array_equal(before, np.ones((3, 5)))
    assert layer.bias.grad is None


def test_under_no_grad():
    with minitx.no_grad():
        assert gradcheck(lambda x: softmax(x * 2), X).error < 1e-8
        weight = Tensor(W, requires_grad=True)
        assert minitx.gradcheck_model(lambda: (weight * weight).sum(), [weight]).error < 1e-8


def test_wrt_is_read_once_and_its_names_exist():
    assert [row.name for row in gradcheck(affine, X, W, B, wrt=(n for n in ("w", "b"))).rows] == ["w", "b"]
    assert [row.name for row in gradcheck(affine, X, W, B, wrt=-1).rows] == ["b"]
    for wrt in ("ww", ["x", "ww"]):
        with pytest.raises(ValueError, match=r"wrt: 'ww' is none of the arrays that can be checked; did you mean 'w'"):
            gradcheck(affine, X, W, B, wrt=wrt)
    with pytest.raises(ValueError, match=r"wrt: 7 is none of .*; it can be 'x', 'w', 'b'"):
        gradcheck(affine, X, W, B, wrt=7)


# ---------------------------------------------------------------------- what cannot be judged is refused


@pytest.mark.parametrize("result", [None, 1.0, [1.0]])
def test_refuses_a_function_that_returns_no_tensor(result):
    with pytest.raises(TypeError, match=f"returns a Tensor, or several in a tuple, not {type(result).__name__}"):
        gradcheck(lambda x: result, X)


@pytest.mark.parametrize("option", [{"step": 0}, {"tolerance": 0}, {"tolerance": np.nan}, {"step": -1e-5}, {"step": 2}])
def test_refuses_steps_and_tolerances_that_mean_nothing(option):
    with pytest.raises(ValueError, match=f"{next(iter(option))} is a small positive number, not"):
        gradcheck(affine, X, W, B, **option)


def test_refuses_float32():
    with pytest.raises(TypeError, match=r"w is float32, and a gradient check needs float64.*pass w.astype"):
        gradcheck(affine, X, W.astype(np.float32), B)
    with pytest.raises(TypeError, match="float32"):
        gradcheck(lambda x: x * x, Tensor([1.0, 2.0]))
    with pytest.raises(TypeError, match="x is int64"):
        gradcheck(softmax, np.arange(3))


@pytest.mark.parametrize("f", [affine, lambda x, w, b: affine(x, w, b)])
def test_refuses_inputs_that_share_memory(f):
    both = np.concatenate([W, B])
    with pytest.raises(ValueError, match="w and b share memory"):
        gradcheck(f, X, both[:5], both[3:8])
    gradcheck(f, X, both[:5], both[5:])  # neighbours only


def test_refuses_a_function_that_is_not_deterministic():
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match="two calls at the same inputs gave two answers"):
        gradcheck(lambda x: dropout(x, 0.5, generator), X)
    gradcheck(lambda x: dropout(x, 0.5, np.random.default_rng(0)), X)


def test_refuses_a_backward_that_changes_what_it_saved():
    @op
    def cube(x):
        square = x * x

        def backward(dy):
            np.multiply(square, 3, out=square)
            return dy * square

        return x * square, backward

    with pytest.raises(ValueError, match="second time"):
        gradcheck(cube, X)


def test_a_rule_that_writes_into_its_input():
    @op
    def double(x):
        x *= 2
        return x, lambda dy: 2 * dy

    with pytest.raises(ValueError, match="read-only"):
        gradcheck(double, X)


def test_refuses_values_that_are_not_finite():
    with pytest.raises(ValueError, match="not finite"), np.errstate(invalid="ignore"):
        gradcheck(lambda x: minitx.ops.log(x), np.array([1.0, -1.0]))


def test_refuses_nothing_to_check():
    with pytest.raises(ValueError, match=r"no float64 array .*; a number is not moved, pass x as np.array\(1.0\)"):
        gradcheck(lambda x: x, 1.0)
    with pytest.raises(TypeError, match="returns a Tensor, or several in a tuple, not LeafValues"):
        gradcheck(lambda x: x.data, X)
    with pytest.raises(ValueError, match="one name for each of the 3 inputs, not 2"):
        gradcheck(affine, X, W, B, names=["x", "w"])


@pytest.mark.parametrize(
    ("gradients", "came"), [(lambda dy, w: dy * w, "1 gradient"), (lambda dy, w: (dy * w, w), "2 gradients")]
)
def test_refuses_too_few_gradients(gradients, came):
    """(That one of them is 0 would be the wrong thing to say.)"""
    with affine.using(lambda x, w, b: (x * w + b, lambda dy: gradients(dy, w))):
        with pytest.raises(TypeError, match=rf"of affine returned {came} for 3 inputs \(x, w, b\): return a tuple"):
            gradcheck(affine, X, W, B)
        gradcheck(affine, X, W, B, wrt="x")


def test_refuses_a_gradient_in_float32():
    with wrong(lambda dy, x, w, b: (dy * w).astype(np.float32), None, None), pytest.raises(TypeError, match="float32"):
        gradcheck(affine, X, W, B)


# ---------------------------------------------------------------------- kinks


@op
def relu(x):
    return np.maximum(x, 0), lambda dy: dy * (x > 0)


def test_kink_is_reported_as_a_kink():
    x = X.copy()
    x[1, 2] = 0
    report = gradcheck(relu, x)
    assert report.error < 1e-9  # of the other entries
    (kink,) = report.kinks
    assert kink.startswith("x[1, 2] is at a kink, slope ")
    assert "backward says 0, as good as any number between" in kink
    assert kink in str(report)


def test_wrong_gradient_at_a_kink():
    x = X.copy()
    x[1, 2] = 0
    with relu.using(lambda x: (np.maximum(x, 0), lambda dy: dy * (x > 0) - 3 * np.abs(dy) * (x == 0))):
        error = failure(relu, x)
    assert "x[1, 2] is at a kink" in str(error)
    assert error.report.rows[0].where == (1, 2)


def test_kink_beside_x_is_no_failure():
    x = X.copy()
    x[1, 2], x[0, 0] = STEP / 3, -STEP / 3
    assert gradcheck(relu, x).error < 1e-6


def test_jump():
    x = X.copy()
    x[1, 2] = 0

    @op
    def step(x):
        return np.where(x > 0, 1.0, 0.0), lambda dy: 0 * dy

    assert "x[1, 2] is at a jump" in str(failure(step, x))


def test_strong_curvature_is_no_kink():
    x = np.array([1e-3, 2e-3])
    report = gradcheck(lambda x: x * x * 1e4, x)
    assert report.error < 1e-6
    assert not report.kinks
