"""Every fast op against its definition: values and gradients, float32 and float64, threads, layouts, extremes."""
from collections import namedtuple

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from equal import kernel_equals_definition, on_threads
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import ops
from minitx.kernels import activation, dropout, linear, loss, normalization

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
Need = namedtuple("Need", "x weight bias")
ALL = Need(True, True, True)
LEADING = st.sampled_from([(), (1,), (7,), (2, 3), (3, 1, 5), (67,), (131,)])


# ---------------------------------------------------------------------- linear


@DTYPES
@settings(max_examples=40, deadline=None)
@given(LEADING, st.integers(1, 80), st.integers(1, 80), st.booleans(), st.integers(0, 9))
def test_linear(dtype, leading, n_in, n_out, with_bias, seed):
    rng = np.random.default_rng(seed)
    x, weight = rng.standard_normal((*leading, n_in)), rng.standard_normal((n_out, n_in))
    bias = rng.standard_normal(n_out) if with_bias else None
    need = ALL._replace(bias=with_bias)
    n = max(64, n_in, n_out, int(np.prod(leading)))
    kernel_equals_definition(ops.linear, linear.linear, (x, weight, bias), n, dtype, need=need, least=1.0)


@DTYPES
@pytest.mark.parametrize("need", [Need(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)])
def test_linear_answers_what_is_needed(dtype, need):
    rng = np.random.default_rng(0)
    x, weight, bias, dy = (rng.standard_normal(s).astype(dtype) for s in ((31, 7), (5, 7), (5,), (31, 5)))
    _, backward = linear.linear(x, weight, bias)
    full = backward(dy, ALL)
    for got, whole, wanted in zip(backward(dy, need), full, need):
        assert (got is not None) == wanted
        if wanted:
            np.testing.assert_allclose(got, whole, rtol=1e-4)


def test_linear_bits_do_not_depend_on_batch_or_threads():
    rng = np.random.default_rng(0)
    shapes = (700, 300), (130, 300), (130,), (700, 130)
    x, weight, bias, dy = (rng.standard_normal(s).astype(np.float32) for s in shapes)

    def run(x=x, dy=dy):
        y, backward = linear.linear(x, weight, bias)
        return y, *backward(dy, ALL)

    y, dx, *_ = on_threads(run)
    for rows in (slice(0, 1), slice(3, 4), slice(690, 700)):
        part_y, part_dx, *_ = run(x[rows], dy[rows])
        np.testing.assert_array_equal(part_y, y[rows])
        np.testing.assert_array_equal(part_dx, dx[rows])


def test_linear_declines_what_it_cannot_do():
    x, weight = np.ones((3, 5)), np.ones((7, 5))
    for arguments in [(x[:, :4], weight), (x[:0], weight), (x, weight, np.ones(5)), (np.ones((3, 0)), np.ones((7, 0)))]:
        assert linear.linear(*arguments) is NotImplemented


@DTYPES
def test_pitfall_39_linear_reads_any_layout(dtype):
    rng = np.random.default_rng(0)
    x, weight, dy = (rng.standard_normal(s).astype(dtype) for s in ((12, 10), (14, 10), (12, 14)))
    y, backward = linear.linear(x, weight)
    expected = (y, *backward(dy, ALL)[:2])
    changes = np.asfortranarray, lambda a: a[::-1, ::-1].copy()[::-1, ::-1], lambda a: np.broadcast_to(a, a.shape)
    for change in changes:
        y, backward = linear.linear(change(x), change(weight))
        for a, b in zip((y, *backward(change(dy), ALL)[:2]), expected):
            np.testing.assert_array_equal(a, b)


# ---------------------------------------------------------------------- normalisation


@DTYPES
@settings(max_examples=30, deadline=None)
@given(LEADING, st.integers(5, 200), st.booleans(), st.booleans(), st.integers(0, 9))
def test_layer_norm(dtype, leading, n, with_gain, with_bias, seed):
    rng = np.random.default_rng(seed)
    x = 3 * rng.standard_normal((*leading, n)) + 1
    gain, bias = (rng.standard_normal(n) if given else None for given in (with_gain, with_bias))
    need = Need(True, with_gain, with_bias)
    kernel_equals_definition(
        ops.layer_norm, normalization.layer_norm, (x, gain, bias), max(64, n), dtype, need=need
    )


def test_pitfall_08_layer_norm_of_a_large_mean():
    x = np.array([40000, 40001, 40002, 40003], np.float32)
    y, _ = normalization.layer_norm(x)
    np.testing.assert_allclose(y, [-1.341635, -0.447212, 0.447212, 1.341635], atol=1e-5)
    x = (1e4 + 1e-3 * np.arange(512)).astype(np.float32)
    need = Need(True, False, False)
    kernel_equals_definition(ops.layer_norm, normalization.layer_norm, (x, None, None), 64, np.float32, need=need)


def test_layer_norm_bits_do_not_depend_on_threads_and_pitfall_06():
    rng = np.random.default_rng(0)
    x, gain, bias, dy = (rng.standard_normal(s).astype(np.float32) for s in ((3000, 65), (65,), (65,), (3000, 65)))

    def run():
        y, backward = normalization.layer_norm(x, gain, bias)
        return y, *backward(dy, ALL)

    on_threads(run)


# ---------------------------------------------------------------------- cross-entropy


@DTYPES
@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(7,), (2, 3), (67,), ()]), st.integers(2, 90), st.sampled_from([0.0, 0.1, 1.0]),
    st.sampled_from(["mean", "sum", "none"]), st.sampled_from([-100, 1]), st.integers(0, 9),
)  # fmt: skip
def test_cross_entropy(dtype, leading, V, smoothing, reduction, ignored, seed):
    rng = np.random.default_rng(seed)
    logits, targets = 3 * rng.standard_normal((*leading, V)), rng.integers(0, V, leading)
    if leading:
        targets[0] = ignored
    options = {"label_smoothing": smoothing, "reduction": reduction, "ignore_index": ignored}
    kernel_equals_definition(ops.cross_entropy, loss.cross_entropy, (logits, targets), 64, dtype, options)


@DTYPES
@pytest.mark.parametrize("V", [8191, 8193, 50_257])  # a row fits into a task's share, or does not
def test_cross_entropy_of_a_large_vocabulary(dtype, V):
    rng = np.random.default_rng(0)
    logits, targets = 3 * rng.standard_normal((5, V)), np.array([V - 1, -100, 0, V // 2, 17])
    kernel_equals_definition(ops.cross_entropy, loss.cross_entropy, (logits, targets), V, dtype)
    x = logits.astype(dtype)
    on_threads(lambda: [loss.cross_entropy(x, targets)[0], loss.cross_entropy(x, targets)[1](dtype(1))])


def test_cross_entropy_never_reads_an_ignored_row():
    logits = np.array([[1.0, 2.0, 3.0], [np.nan, np.inf, -np.inf]])
    value, backward = loss.cross_entropy(logits, np.array([2, -100]))
    clean, clean_backward = loss.cross_entropy(logits[:1], np.array([2]))
    assert value == clean
    np.testing.assert_array_equal(backward(np.float64(1.0)), [clean_backward(np.float64(1.0))[0], [0, 0, 0]])
    value, backward = loss.cross_entropy(logits, np.array([-100, -100]))
    assert value == 0
    assert (backward(np.float64(1.0)) == 0).all()


def test_cross_entropy_of_logits_of_minus_infinity():
    x = np.array([[0.0, -np.inf, 1.0], [-np.inf, -np.inf, -np.inf]])
    for targets in ([0, -100], [1, -100], [0, 1]):
        value, backward = loss.cross_entropy(x, np.array(targets))
        expected, expected_backward = ops.cross_entropy.definition(x, np.array(targets))
        assert value == pytest.approx(expected)
        np.testing.assert_allclose(backward(np.float64(1.0)), expected_backward(np.float64(1.0)), atol=1e-15)


def test_pitfall_21_cross_entropy_declines_wrong_targets():
    x = np.zeros((2, 3))
    for targets, ignored in ([0, 3], -100), ([0, -4], -1), ([0.0, 1.0], -100), ([0], -100):
        assert loss.cross_entropy(x, np.array(targets), ignore_index=ignored) is NotImplemented


# ---------------------------------------------------------------------- activations and dropout

BENT = [
    (ops.relu, activation.relu, {}), (ops.gelu, activation.gelu, {}),
    (ops.gelu, activation.gelu, {"approximate": "tanh"}),
    (ops.silu, activation.silu, {}), (ops.tanh, activation.tanh, {}), (ops.sigmoid, activation.sigmoid, {}),
]  # fmt: skip


@DTYPES
@pytest.mark.parametrize(("op", "kernel", "options"), BENT, ids=lambda v: getattr(v, "name", None))
@pytest.mark.parametrize("shape", [(1,), (0, 3), (7, 13), (3, 5000)])
def test_activations(dtype, op, kernel, options, shape):
    x = 3 * np.random.default_rng(0).standard_normal(shape)
    kernel_equals_definition(op, kernel, (x,), 1, dtype, options)
    if x.size > 7:
        kernel_equals_definition(op, kernel, (x.T,), 1, dtype, options)


@DTYPES
@pytest.mark.parametrize(("op", "kernel", "options"), BENT, ids=lambda v: getattr(v, "name", None))
def test_activations_at_the_ends(dtype, op, kernel, options):
    x = np.array([np.inf, -np.inf, np.nan, 1e20, -1e20, 0.0, -0.0, 100.0, -100.0, 1e-30], dtype)
    (y, backward), (expected, expected_backward) = kernel(x, **options), op.definition(x, **options)
    limit = 1e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(y, expected, rtol=limit, atol=1e-30)
    np.testing.assert_allclose(backward(np.ones_like(x)), expected_backward(np.ones_like(x)), rtol=limit, atol=1e-30)


@DTYPES
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_dropout_is_the_definition_bit_for_bit(dtype, p):
    x = np.random.default_rng(0).standard_normal((7, 1009)).astype(dtype)

    def run():
        y, backward = dropout.dropout(x, p, np.random.default_rng(5))
        return y, backward(x)

    expected, expected_backward = ops.dropout.definition(x, p, np.random.default_rng(5))
    y, dx = on_threads(run)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(dx, expected_backward(x))


def test_pitfall_33_dropout_draws_only_where_chance_has_a_say():
    rng = np.random.default_rng(0)
    x = np.ones((3, 5))
    for p, training in ((0.0, True), (1.0, True), (0.5, False), (1.5, True)):
        assert dropout.dropout(x, p, rng, training) is NotImplemented
    assert rng.bit_generator.state == np.random.default_rng(0).bit_generator.state


def test_pitfall_19_valid_targets_are_counted_right_on_any_number_of_threads():
    """A parallel sum under a condition loses counts in some compilers; ours are made task by task, in a fixed order."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((4096, 7)).astype(np.float32)
    targets = np.where(rng.random(4096) < 0.25, -100, rng.integers(0, 7, 4096))
    valid = (targets != -100).sum()

    def losses():
        total, mean = (loss.cross_entropy(logits, targets, reduction=r)[0] for r in ("sum", "mean"))
        few = loss.cross_entropy(np.zeros((4, 2), np.float32), np.array([1, -100, 0, 1]), reduction="sum")[0]
        return np.asarray(total), np.asarray(mean), np.asarray(few)

    total, mean, few = on_threads(losses)
    np.testing.assert_allclose(total / mean, valid, rtol=1e-5)
    np.testing.assert_allclose(few, 3 * np.log(2), rtol=1e-6)


@pytest.mark.parametrize("eps", [0.0, 1e-38, 1e-6])
@pytest.mark.parametrize("scale", [1e-22, 1e-20, 1e20])
def test_norms_of_tiny_and_of_huge_rows(scale, eps):
    """The root of a subnormal or infinite variance is taken as NumPy takes it, not by an estimate."""
    x = (scale * np.array([[1.0, 2.0, 3.0, 5.0], [-1.0, 1.0, 1.0, 2.0]])).astype(np.float32)
    for op, arguments in ((ops.rms_norm, (x,)), (ops.layer_norm, (x, np.ones(4, np.float32), np.zeros(4, np.float32)))):
        with np.errstate(all="ignore"):
            expected = op.definition(*arguments, eps=eps)[0]
        got = op.kernel(*arguments, eps=eps)[0]
        np.testing.assert_allclose(got, expected, rtol=2e-3, err_msg=op.name)


def test_options_of_the_loss_that_the_kernel_leaves_to_the_definition():
    logits, targets = np.ones((2, 3), np.float32), np.array([0, 1])
    for options in ({"ignore_index": 2**70}, {"ignore_index": 1.5}, {"label_smoothing": "a"}):
        assert loss.cross_entropy(logits, targets, **options) is NotImplemented
