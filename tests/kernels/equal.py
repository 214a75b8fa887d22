"""What tests of kernels share: a kernel against the op's NumPy definition in float64, values and gradients."""
from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from minitx.kernels import parallel, pool
from minitx.kernels.parallel import get_threads, set_threads

THREADS = sorted({1, min(2, pool.MOST)})  # also in a worker of pytest-xdist, whose other tests run on one


def close(got, expected, tolerance, scale=None, least=0.0):
    """max|got - expected| <= tolerance * max|expected| (`least` at least), and the dtype and shape are right."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    if expected.size:
        largest = max(np.abs(expected).max(), least) if scale is None else scale
        assert np.abs(got.astype(np.float64) - expected).max() <= tolerance * largest


def tolerance(dtype, n):
    """The kernel's float32 against the definition's float64: rounding of a sum of n terms."""
    return 4 * np.finfo(np.float32).eps * np.sqrt(max(n, 1)) if dtype == np.float32 else 1e-12


def kernel_equals_definition(op, kernel, arrays, n, dtype, options=None, seed=0, need=None, least=0.0):
    """Run both on the same numbers (rounded to dtype) with a random cotangent; compare values and all gradients.

    `least`: the size of the terms of a sum, where a result may be a single one whose terms cancel.
    """
    options = options or {}
    rounded = [None if a is None else np.asarray(a, dtype) if np.asarray(a).dtype.kind == "f" else a for a in arrays]
    wide = [a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in rounded]
    result = kernel(*rounded, **options)
    assert result is not NotImplemented
    (y, backward), (expected, expected_backward) = result, op.definition(*wide, **options)
    close(y, expected, tolerance(dtype, n), least=least)
    assert np.asarray(y).dtype == dtype
    dy = np.asarray(np.random.default_rng(1000 + seed).standard_normal(np.shape(y)), dtype)
    dy.setflags(write=False)
    arguments = () if need is None else (need,)
    got, wanted = backward(dy, *arguments), expected_backward(dy.astype(np.float64), *arguments)
    got, wanted = (g if isinstance(g, tuple) else (g,) for g in (got, wanted))
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        if w is None:
            assert g is None
        else:
            assert g.dtype == dtype
            close(g, w, tolerance(dtype, n), least=least)


@contextmanager
def sharing(n):
    """Kernels share with n threads whatever can be shared, also where it is not worth it."""
    before, worth = get_threads(), (parallel.WORTH, parallel.WAKE)
    parallel.WORTH = parallel.WAKE = 0
    set_threads(n)
    try:
        yield
    finally:
        set_threads(before)
        parallel.WORTH, parallel.WAKE = worth


def on_threads(function):
    """The results of function() on every number of threads; they have the same bits."""
    results = []
    for n in THREADS:
        with sharing(n):
            results.append(function())
    for other in results[1:]:
        for a, b in zip(results[0], other):
            np.testing.assert_array_equal(a, b)
    return results[0]
