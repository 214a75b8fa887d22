from __future__ import annotations

import math

import numpy as np
import pytest

from minitx.kernels.erfc import erf, erfc

# Relative error in units of the dtype's epsilon, wherever the right value is a normal number.
RANGES = [(np.float32, -6.0, 9.1), (np.float64, -6.0, 26.5)]


@pytest.mark.parametrize(("dtype", "low", "high"), RANGES)
def test_erfc_is_accurate_in_the_tail_too(dtype, low, high):
    x = np.concatenate([np.linspace(low, high, 20011), np.geomspace(1e-30, 1, 503), [0]]).astype(dtype)
    right = np.array([math.erfc(float(v)) for v in x])
    y = erfc(x)
    assert y.dtype == dtype
    assert (np.abs(y - right) / right).max() < 4 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erf_is_accurate_near_zero_too(dtype):
    x = np.concatenate([np.linspace(-6, 6, 20011), np.geomspace(1e-30, 1, 503)]).astype(dtype)
    x = x[x != 0]
    right = np.array([math.erf(float(v)) for v in x])
    y = erf(x)
    assert y.dtype == dtype
    assert (np.abs(y - right) / np.abs(right)).max() < 3 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values(dtype):
    x = np.array([-np.inf, -1e20, 0, 1e20, np.inf, np.nan], dtype)
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        np.testing.assert_array_equal(erfc(x), [2, 2, 1, 0, 0, np.nan])
        np.testing.assert_array_equal(erf(x), [-1, -1, 0, 1, 1, np.nan])
    assert erfc(np.empty((0, 3), dtype)).shape == (0, 3)
    assert erf(np.array(0.25, dtype)).shape == ()


def test_erf_is_odd_and_the_pieces_meet():
    x = np.linspace(0.49, 0.51, 1001)
    np.testing.assert_array_equal(erf(-x), -erf(x))
    assert (np.diff(erf(x)) > 0).all()
