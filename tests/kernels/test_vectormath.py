"""exp, sigmoid, tanh, erf and Φ inside kernels against NumPy in float64: errors in units in the last place."""
# ruff: noqa: E402
import math
import os

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="numba is not installed")

from numba import void

from minitx.kernels import erfc as reference
from minitx.kernels import vectormath
from minitx.kernels.compile import array, for_dtypes, kernel

MAPS = for_dtypes(lambda T: void(array(T, 1), array(T, 1, writes=True)))
exp, sigmoid, tanh, erf, normal = (getattr(vectormath, n) for n in ("exp", "sigmoid", "tanh", "erf", "normal"))


@kernel(*MAPS)
def map_exp(x, y):
    for i in range(len(x)):
        y[i] = exp(x[i])


@kernel(*MAPS)
def map_exp_or_0(x, y):
    for i in range(len(x)):
        y[i] = vectormath.exp_or_0(x[i])


@kernel(*MAPS)
def map_sigmoid(x, y):
    for i in range(len(x)):
        y[i] = sigmoid(x[i])


@kernel(*MAPS)
def map_tanh(x, y):
    for i in range(len(x)):
        y[i] = tanh(x[i])


@kernel(*MAPS)
def map_erf(x, y):
    for i in range(len(x)):
        y[i] = erf(x[i])


@kernel(*MAPS)
def map_normal(x, y):
    for i in range(len(x)):
        y[i] = normal(x[i])[0]


def wide_sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def wide_normal(x):
    a = np.minimum(np.abs(x), 40)
    b = a * math.sqrt(0.5)
    # b is rounded, and its square is in an exponent: put right what that does, where a longer type can tell.
    wide = np.longdouble(a)
    tail = 0.5 * reference.erfc(b) * np.exp(np.longdouble(b) ** 2 - wide * wide / 2)
    return np.where(x > 0, 1 - tail, tail).astype(np.float64)


# name: kernel, NumPy in float64, largest error in ULP for float32 and for float64
FUNCTIONS = {
    "exp": (map_exp, np.exp, 1.1, 1.5),
    "sigmoid": (map_sigmoid, wide_sigmoid, 2.5, 4.0),
    "tanh": (map_tanh, np.tanh, 2.6, 4.0),
    "erf": (map_erf, reference.erf, 3.0, 6.0),
    "normal": (map_normal, wide_normal, 7.0, 12.0 if np.finfo(np.longdouble).nmant > 52 else 2000.0),
}


def apply(function, x):
    y = np.empty_like(x)
    function[x.dtype](x, y)
    return y


def worst(name, x):
    """The largest error in units in the last place of the right result (of the smallest normal number below it)."""
    function, wide, *_ = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        expected = wide(x.astype(np.float64))
        unit = np.maximum(np.spacing(np.abs(expected.astype(x.dtype))), np.finfo(x.dtype).smallest_subnormal)
        got = apply(function, x).astype(np.float64)
        error = np.abs(got - expected) / unit
        infinite = ~np.isfinite(expected.astype(x.dtype))
        np.testing.assert_array_equal(got[infinite].astype(x.dtype), expected[infinite].astype(x.dtype))
    return error[~infinite].max(initial=0)


def dense(dtype, n=400_000):
    """Both signs, all magnitudes, and evenly over the range where things happen."""
    rng = np.random.default_rng(1)
    lowest, highest = np.log10(np.finfo(dtype).smallest_subnormal), 3
    magnitudes = 10 ** rng.uniform(lowest, highest, n)
    return np.concatenate([magnitudes, -magnitudes, rng.uniform(-110, 110, n), rng.uniform(-1, 1, n)]).astype(dtype)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_largest_error_in_ulp(name, dtype):
    limit = FUNCTIONS[name][2 if dtype == np.float32 else 3]
    x = dense(dtype)
    if name == "normal":  # where Φ is a normal number
        x = x[x > (-12.5 if dtype == np.float32 else -37)]
    assert worst(name, x) <= limit


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ends_infinities_and_nan(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([0.0, -0.0, tiny, -tiny, np.inf, -np.inf, np.nan, 1e30, -1e30], dtype)
    zero, one, inf, nan = 0.0, 1.0, np.inf, np.nan
    expected = {
        "exp": [one, one, one, one, inf, zero, nan, inf, zero],
        "sigmoid": [0.5, 0.5, 0.5, 0.5, one, zero, nan, one, zero],
        "tanh": [zero, -0.0, tiny, -tiny, one, -one, nan, one, -one],
        "erf": [zero, -0.0, tiny, -tiny, one, -one, nan, one, -one],
        "normal": [0.5, 0.5, 0.5, 0.5, one, zero, nan, one, zero],
    }
    for name, values in expected.items():
        y = apply(FUNCTIONS[name][0], x)
        np.testing.assert_array_equal(y, np.array(values, dtype), err_msg=name)
        np.testing.assert_array_equal(np.signbit(y[:2]), np.signbit(values[:2]), err_msg=name)


SUBNORMAL = {np.float32: np.linspace(-104.5, -86, 20_001), np.float64: np.linspace(-746, -707, 20_001)}


@pytest.mark.parametrize("dtype", SUBNORMAL)
def test_subnormal_results_of_exp(dtype):
    x = SUBNORMAL[dtype].astype(dtype)
    with np.errstate(under="ignore"):
        expected = np.exp(x.astype(np.longdouble)).astype(dtype)
    smallest = np.finfo(dtype).smallest_subnormal
    difference = np.abs(apply(map_exp, x).astype(np.longdouble) - expected)
    assert (difference <= 1.01 * np.spacing(np.maximum(expected, smallest))).all()


@pytest.mark.parametrize("dtype", SUBNORMAL)
def test_exp_or_0_is_exp_or_0(dtype):
    """Beyond the end, and at -inf, it is 0; before, bit for bit exp. No result is subnormal."""
    x = np.concatenate([SUBNORMAL[dtype], dense(np.float32), [np.inf, -np.inf, np.nan]]).astype(dtype)
    y, full = apply(map_exp_or_0, x), apply(map_exp, x)
    end = -87.33 if dtype == np.float32 else -708.39
    np.testing.assert_array_equal(y[~(x < end)], full[~(x < end)])
    assert (y[x < end] == 0).all()
    assert (full[x < end - 0.01] < np.finfo(dtype).smallest_normal).all()
    assert not ((y > 0) & (y < np.finfo(dtype).smallest_normal)).any()


def test_pitfall_25_the_tail_does_not_cancel():
    x = np.array([-6.0, -5.0, -10.0], np.float32)
    np.testing.assert_allclose(apply(map_normal, x), [9.865876450e-10, 2.866515719e-07, 7.619853024e-24], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_float32(name):
    """Every 31st of all float32 numbers; with MINITX_FULL_SWEEP=1 every one, which takes a quarter of an hour."""
    limit, block = FUNCTIONS[name][2], 1 << 24
    stride = 1 if os.environ.get("MINITX_FULL_SWEEP") else 31
    for start in range(0, 1 << 32, block):
        bits = np.arange(start + (-start) % stride, start + block, stride, dtype=np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        x = x[np.isfinite(x)]
        if name == "normal":
            x = x[x > -12.5]
        if x.size:
            assert worst(name, x) <= limit, hex(start)


@kernel(*MAPS)
def map_log(x, y):
    for i in range(len(x)):
        y[i] = vectormath.log(x[i])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_log(dtype):
    """Of positive numbers of the normal range, as a sum of exponentials is."""
    rng, info = np.random.default_rng(0), np.finfo(dtype)
    ends = np.array([info.smallest_normal, info.max, 1.0, 2.0, math.sqrt(0.5)])
    near_1 = np.concatenate([1 + rng.uniform(-1e-3, 1e-3, 100_000), rng.uniform(0.4, 3, 100_000)])
    x = np.concatenate([ends, near_1, 10.0 ** rng.uniform(-37, 38, 200_000)]).astype(dtype)
    expected = np.log(x.astype(np.longdouble))
    unit = np.spacing(np.abs(expected.astype(dtype)))
    assert (np.abs(apply(map_log, x) - expected) <= 2.5 * unit).all()
    np.testing.assert_array_equal(apply(map_log, np.array([1.0, np.inf, np.nan], dtype)), [0, np.inf, np.nan])
