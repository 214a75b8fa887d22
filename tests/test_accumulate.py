"""The sum of the gradients that meet: written into one of them where it is ours, large ones by a kernel."""
import numpy as np
import pytest

from minitx import reference
from minitx.accumulate import LARGE, add

SIZES = [(7,), (LARGE,), (3, 11, LARGE // 32)]


def drawn(shape, dtype):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for _ in range(2)]


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernels", ["loaded", "reference"])
def test_a_sum_goes_into_the_one_that_is_ours(shape, dtype, kernels):
    if kernels == "loaded":
        pytest.importorskip("minitx.kernels.parallel", reason="numba is not installed")
    for ours in (0, 1):
        pair = drawn(shape, dtype)
        expected = pair[0] + pair[1]
        pair[1 - ours].setflags(write=False)
        other = pair[1 - ours].copy()
        if kernels == "loaded":
            result = add(*pair)
        else:
            with reference():
                result = add(*pair)
        assert result is pair[ours]
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(pair[1 - ours], other)


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_what_is_shared_stays_what_it_is(shape):
    a, b = drawn(shape, np.float32)
    before = a.copy(), b.copy()
    a.setflags(write=False)
    result = add(a, b[...])  # a view belongs to whoever has the array
    assert result is not a
    assert not np.shares_memory(result, b)
    np.testing.assert_array_equal(result, before[0] + before[1])
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])


def test_in_any_order_in_memory():
    a, b = drawn((256, 256), np.float32)
    turned = np.asfortranarray(b)
    expected = a + b
    np.testing.assert_array_equal(add(a, turned), expected)
    np.testing.assert_array_equal(add(np.asfortranarray(b), drawn((256, 256), np.float32)[0]), expected)
