"""rms_norm, softmax, log_softmax, rotary and the gates, fast: as their definitions, in any layout, at the ends too."""
from collections import namedtuple

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from equal import close, kernel_equals_definition, on_threads, tolerance
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import ops
from minitx.kernels import activation, gated, normalization, rotary, softmax

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
LEADING = st.sampled_from([(), (1,), (7,), (2, 3), (3, 1, 5), (67,), (131,)])
LAYOUTS = (
    np.ascontiguousarray,
    np.asfortranarray,
    lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    lambda a: a.repeat(2, -1)[..., ::2],
)
Norm, Gate = namedtuple("Norm", "x weight"), namedtuple("Gate", "gate up")
GATES = [
    (ops.glu, gated.glu, {}), (ops.reglu, gated.reglu, {}), (ops.geglu, gated.geglu, {}),
    (ops.geglu, gated.geglu, {"approximate": "tanh"}), (ops.swiglu, gated.swiglu, {}),
]  # fmt: skip
SOFT = [(ops.softmax, softmax.softmax), (ops.log_softmax, softmax.log_softmax)]


# ---------------------------------------------------------------------- rms_norm


@DTYPES
@settings(max_examples=30, deadline=None)
@given(LEADING, st.integers(1, 200), st.booleans(), st.sampled_from([0.0, 1.0]), st.integers(0, 9))
def test_rms_norm(dtype, leading, n, with_gain, offset, seed):
    rng = np.random.default_rng(seed)
    x, gain = 3 * rng.standard_normal((*leading, n)) + 1, rng.standard_normal(n) if with_gain else None
    options = {"offset": offset, "eps": 1e-5}
    # Where almost all of dx̂ is along x̂ (n = 1: all of it), dx is what cancelling leaves: its size is that of a term.
    result = kernel_terms(ops.rms_norm, normalization.rms_norm, (x, gain), dtype, options, Norm(True, with_gain))
    for got, wanted, scale in result:
        close(got, wanted, tolerance(dtype, max(64, n, int(np.prod(leading)))), scale)


def kernel_terms(op, kernel, arrays, dtype, options, need):
    """Values and gradients of both, with a scale for each gradient that what cancels does not make small."""
    rounded = [None if a is None else np.asarray(a, dtype) for a in arrays]
    wide = [None if a is None else a.astype(np.float64) for a in rounded]
    (y, backward), (expected, expected_backward) = kernel(*rounded, **options), op.definition(*wide, **options)
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
    assert y.dtype == dtype
    yield y, expected, None
    gains = 1 if rounded[1] is None else np.abs(rounded[1] + options["offset"]).max()
    with np.errstate(divide="ignore"):
        r = 1 / np.sqrt((rounded[0].astype(np.float64) ** 2).mean(-1) + options["eps"]).min()
    scales = np.abs(dy).max() * gains * max(r, 1 / np.sqrt(options["eps"])) if y.shape[-1:] == (1,) else None, None
    for g, w, scale in zip(backward(dy, need), expected_backward(dy.astype(np.float64), need), scales):
        if w is None:
            assert g is None
        else:
            assert g.dtype == dtype
            yield g, w, scale


def test_rms_norm_bits_do_not_depend_on_threads():
    rng = np.random.default_rng(0)
    x, gain, dy = (rng.standard_normal(s).astype(np.float32) for s in ((3000, 65), (65,), (3000, 65)))

    def run():
        y, backward = normalization.rms_norm(x, gain)
        return y, *backward(dy, Norm(True, True))

    on_threads(run)


# ---------------------------------------------------------------------- softmax


@DTYPES
@pytest.mark.parametrize(("op", "kernel"), SOFT)
@settings(max_examples=20, deadline=None)
@given(leading=LEADING, n=st.integers(1, 200), seed=st.integers(0, 9))
def test_softmax(dtype, op, kernel, leading, n, seed):
    x = 3 * np.random.default_rng(seed).standard_normal((*leading, n))
    rounded = x.astype(dtype)
    y, backward = kernel(rounded)
    expected, expected_backward = op.definition(rounded.astype(np.float64))
    dy = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
    close(y, expected, tolerance(dtype, max(64, n)), max(1, np.abs(expected).max()))
    close(backward(dy), expected_backward(dy.astype(np.float64)), tolerance(dtype, max(64, n)), np.abs(dy).max())
    assert y.dtype == backward(dy).dtype == dtype


@DTYPES
@pytest.mark.parametrize(("op", "kernel"), SOFT)
def test_pitfall_01_softmax_at_the_ends(dtype, op, kernel):
    """Rows of nothing but -inf, with some -inf, with NaN or inf, tiny and huge: what the definition says of them."""
    x = np.random.default_rng(0).standard_normal((9, 37))
    x[0], x[1, ::2], x[2, 3], x[3, 2], x[4, 1:], x[5, :], x[6] = -np.inf, -np.inf, np.nan, np.inf, -np.inf, 1e-40, 1e30
    x[7] *= 100
    x = x.astype(dtype)
    dy = np.random.default_rng(1).standard_normal(x.shape).astype(dtype)
    (y, backward), limit = kernel(x), 1e-5 if dtype == np.float32 else 1e-12
    with np.errstate(all="ignore"):
        expected, expected_backward = op.definition(x.astype(np.float64))
        wanted = expected_backward(dy.astype(np.float64))
    np.testing.assert_allclose(y, expected, rtol=limit, atol=limit)
    np.testing.assert_allclose(backward(dy), wanted, rtol=limit, atol=limit)


def test_softmax_declines_other_axes_and_nothing():
    x = np.ones((3, 5))
    for arguments in ((x, 0), (x, -2), (x[:0],), (np.float64(1.0),), (np.ones((2, 0)),)):
        assert softmax.softmax(np.asarray(arguments[0]), *arguments[1:]) is NotImplemented
    assert softmax.log_softmax(x, 1) is not NotImplemented


# ---------------------------------------------------------------------- gates


@DTYPES
@pytest.mark.parametrize(("op", "kernel", "options"), GATES)
@pytest.mark.parametrize("shape", [(1,), (0, 3), (7, 13), (3, 5000)])
def test_gates(dtype, op, kernel, options, shape):
    gate, up = 3 * np.random.default_rng(0).standard_normal((2, *shape))
    kernel_equals_definition(op, kernel, (gate, up), 1, dtype, options, need=Gate(True, True))


@DTYPES
@pytest.mark.parametrize(("op", "kernel", "options"), GATES)
def test_gates_at_the_ends(dtype, op, kernel, options):
    ends = [np.inf, -np.inf, np.nan, 1e20, -1e20, 0.0, -0.0, 100.0, -100.0, 1e-30]
    gate, up = (a.ravel().astype(dtype) for a in np.meshgrid(ends, ends))
    dy, limit = np.ones_like(gate), 1e-6 if dtype == np.float32 else 1e-12
    with np.errstate(all="ignore"):
        y, backward = op.definition(gate, up, **options)
        expected = y, *backward(dy, Gate(True, True))
    y, backward = kernel(gate, up, **options)
    for got, wanted in zip((y, *backward(dy, Gate(True, True))), expected):
        np.testing.assert_allclose(got, wanted, rtol=limit, atol=1e-30)


def test_gates_decline_what_does_not_fit():
    x = np.ones((3, 5))
    for gate, up in ((x, x[:2]), (x, x.astype(np.float32)), (np.ones(()), np.ones(()))):
        assert gated.swiglu(gate, up) is NotImplemented
    assert gated.geglu(x, x, "else") is NotImplemented


@DTYPES
def test_erf(dtype):
    x = np.concatenate([3 * np.random.default_rng(0).standard_normal(1009), [np.inf, -np.inf, 0.0, 1e-30]])
    kernel_equals_definition(ops.erf, activation.erf, (x,), 1, dtype)


# ---------------------------------------------------------------------- rotary

POSITIONS = {
    "from 0": lambda rng, B, T: np.arange(T),
    "later, narrow": lambda rng, B, T: np.arange(5, 5 + T).astype(np.uint8),
    "per row": lambda rng, B, T: rng.integers(0, 999, (B, T)),
    "negative and far": lambda rng, B, T: rng.integers(-50, 10**6, (B, T)),
}


@DTYPES
@pytest.mark.parametrize("positions", POSITIONS)
@settings(max_examples=20, deadline=None)
@given(
    shape=st.sampled_from([(2, 3, 5), (1, 1, 1), (3, 2, 67)]), half=st.integers(1, 20), passed=st.integers(0, 5),
    interleaved=st.booleans(), where=st.integers(0, 3), base=st.sampled_from([10000.0, 500.0]), seed=st.integers(0, 9),
)  # fmt: skip
def test_rotary(dtype, positions, shape, half, passed, interleaved, where, base, seed):
    rng = np.random.default_rng(seed)
    B, H, T = shape
    d = 2 * half + passed
    p = POSITIONS[positions](rng, B, T)
    projected = rng.standard_normal((B, T, 3 * H * d)).astype(dtype)[..., H * d : 2 * H * d]
    x = projected.reshape(B, T, H, d).swapaxes(1, 2)  # (B, H, T, d), where a projection has left it
    x = [lambda: x, lambda: np.ascontiguousarray(x), lambda: np.asfortranarray(x), lambda: x[..., ::-1]][where]()
    dy = rng.standard_normal(x.shape).astype(dtype)[::-1, ..., ::-1]
    options = {"rotary_dim": 2 * half, "interleaved": interleaved, "base": base}
    y, backward = rotary.rotary(x, p, **options)
    expected, expected_backward = ops.rotary.definition(x, p, **options)
    np.testing.assert_array_equal(y, expected)  # bit for bit
    np.testing.assert_array_equal(backward(dy), expected_backward(dy))
    assert y.dtype == backward(dy).dtype == dtype


def test_rotary_leaves_heads_where_the_projection_had_them():
    x = np.ones((2, 5, 3, 8), np.float32).swapaxes(1, 2)
    y, backward = rotary.rotary(x, np.arange(5))
    for result in (y, backward(np.ones(x.shape, np.float32))):
        assert result.swapaxes(1, 2).flags.c_contiguous


def test_rotary_bits_do_not_depend_on_threads():
    x = np.random.default_rng(0).standard_normal((8, 4, 128, 32)).astype(np.float32)

    def run():
        y, backward = rotary.rotary(x, np.arange(128))
        return y, backward(x)

    on_threads(run)


def test_rotary_declines_what_the_definition_refuses_or_scales():
    x, p = np.ones((2, 3, 5, 8)), np.arange(5)
    scaling = {"type": "linear", "factor": 2.0}
    for arguments in ((x, p * 1.0), (x, p[:3]), (x[0], p), (x[:0], p)):
        assert rotary.rotary(*arguments) is NotImplemented
    for options in ({"rotary_dim": 3}, {"rotary_dim": 10}, {"base": 1.0}, {"scaling": scaling}):
        assert rotary.rotary(x, p, **options) is NotImplemented


# ---------------------------------------------------------------------- layouts


@DTYPES
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pitfall_39_any_layout_and_read_only(dtype, layout):
    rng = np.random.default_rng(0)
    a, b, dy = (rng.standard_normal((13, 10)).astype(dtype) for _ in range(3))
    changed = [layout(x) for x in (a, b, dy)]
    for x in changed:
        x.setflags(write=False)

    def run(a, b, dy):
        for kernel in (softmax.softmax, softmax.log_softmax):
            y, backward = kernel(a)
            yield from (y, backward(dy))
        y, backward = normalization.rms_norm(a)
        yield from (y, backward(dy, Norm(True, False))[0])
        y, backward = gated.swiglu(a, b)
        yield from (y, *backward(dy, Gate(True, True)))

    for got, wanted in zip(run(*changed), run(a, b, dy)):
        np.testing.assert_array_equal(got, wanted)
