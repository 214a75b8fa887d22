"""From many numbers to one: sum, mean, var, max, min, logsumexp; over all axes, one, or several.

Everywhere `axis` is None (all), an integer or several (a tuple or list), negative ones counted from the end, and
`keepdims` leaves the reduced axes in place with length 1. Backward spreads dy over what was reduced.
"""
from __future__ import annotations

import math

import numpy as np

from minitx.op import Array, Forward, op
from minitx.ops.checks import axes

Axis = int | tuple[int, ...] | None


@op
def sum(x: Array, axis: Axis = None, keepdims: bool = False) -> Forward:
    """
    for: totals.

    equation:
        y = Σ_j x_j

    by hand:
        >>> sum([[1, 2], [3, 4]], 0).numpy()
        array([4., 6.], dtype=float32)

    backward:
        dx_j = dy      the same for every j

    why: each x_j moves the sum one for one. A sum forward is a broadcast backward (and the other way round).

    saved: the shape of x.

    goes wrong: as the end of a gradient check it hides faults: it sends back nothing but ones.

    exercise: sum
    """
    axis = axes(axis)
    y, shape = x.sum(axis=axis, keepdims=keepdims), x.shape

    def backward(dy: Array) -> Array:
        return np.full(shape, _aligned(dy, axis, keepdims))

    return y, backward


@op
def mean(x: Array, axis: Axis = None, keepdims: bool = False) -> Forward:
    """
    for: averages.

    equation:
        y = 1/n Σ_j x_j

    where:
        n  how many elements each average is over; with n = 0 the mean is NaN

    backward:
        dx_j = dy / n

    saved: the shape of x.

    exercise: mean
    """
    axis = axes(axis)
    y, shape = x.sum(axis=axis, keepdims=keepdims), x.shape
    n = _count(x, y) or math.nan

    def backward(dy: Array) -> Array:
        # y = Σ_j x_j / n
        return np.full(shape, _aligned(dy / n, axis, keepdims))

    return y / n, backward


@op
def var(x: Array, axis: Axis = None, keepdims: bool = False, correction: int = 0) -> Forward:
    """
    for: the spread of numbers around their mean.

    equation:
        y = 1/(n - correction) Σ_j (x_j - μ)²

    where:
        μ = 1/n Σ_j x_j
        correction  0: the biased variance, which the norms use; 1: the unbiased estimate from a sample.
                    With n <= correction the variance is NaN

    by hand:
        >>> var([1.0, 3.0]).item(), var([1.0, 3.0], correction=1).item()
        (1.0, 2.0)

    backward:
        dx_j = dy * 2 (x_j - μ) / (n - correction)

    why: μ depends on x_j as well, but the term that this adds is -2/(n - correction) Σ_i (x_i - μ) ∂μ/∂x_j, and
        deviations from the mean sum to 0.

    saved: x - μ.

    differs from: PyTorch, whose default is correction=1.

    goes wrong: Σx²/n - μ² is shorter and needs one pass, and cancels: for 40000, 40001, 40002, 40003 it gives -128 in
        float32 instead of 1.25. For the same reason the mean is taken twice: the second removes the first's rounding.
    """
    axis = axes(axis)
    total = x.sum(axis=axis, keepdims=True)
    n = _count(x, total)
    centred = x - total / (n or 1)
    centred = centred - centred.sum(axis=axis, keepdims=True) / (n or 1)
    divisor = n - correction if n > correction else math.nan
    y = (centred * centred).sum(axis=axis, keepdims=keepdims) / divisor

    def backward(dy: Array) -> Array:
        # y = Σ_j centred_j² / divisor
        dx: Array = _aligned(dy * (2 / divisor), axis, keepdims) * centred
        return dx

    return y, backward


@op
def max(x: Array, axis: Axis = None, keepdims: bool = False) -> Forward:
    """
    for: the largest element.

    equation:
        y = max_j x_j

    backward:
        dx_j = dy / m where x_j = y, else 0      m: how many elements are equal to the maximum

    why: only a largest element moves the maximum; where several are largest they share equally, so that the result does
        not depend on their order.

    saved: where x is largest.

    differs from: PyTorch, where max(axis) gives all to one of the largest, and amax shares as here.

    exercise: max
    """
    axis = axes(axis)
    y = x.max(axis=axis, keepdims=True)
    return _extreme(x, y, axis, keepdims)


@op
def min(x: Array, axis: Axis = None, keepdims: bool = False) -> Forward:
    """
    for: the smallest element.

    equation:
        y = min_j x_j

    backward:
        dx_j = dy / m where x_j = y, else 0      m: how many elements are equal to the minimum
    """
    axis = axes(axis)
    y = x.min(axis=axis, keepdims=True)
    return _extreme(x, y, axis, keepdims)


def _extreme(x: Array, y: Array, axis: Axis, keepdims: bool) -> Forward:
    hit = x == y
    m = hit.sum(axis=axis, keepdims=True).astype(x.dtype)

    def backward(dy: Array) -> Array:
        share = _aligned(dy, axis, keepdims) / np.maximum(m, 1)  # (m is 0 where y is NaN)
        return np.where(hit, share, 0)

    return y if keepdims else y.squeeze(axis), backward


@op
def logsumexp(x: Array, axis: Axis = None, keepdims: bool = False) -> Forward:
    """
    for: adding numbers that are given by their logarithms; the normaliser of softmax; a smooth maximum.

    equation:
        y = log Σ_j exp(x_j)

    where:
        y  is -inf, the logarithm of 0, for a slice of nothing but -inf or without elements; its gradient is then 0
        p_j = exp(x_j) / Σ_i exp(x_i)  the softmax of x, in backward

    by hand:
        >>> logsumexp(np.log([1.0, 3.0])).numpy()  # log 4
        array(1.38629436)

    backward:
        dx_j = dy * p_j

    why: ∂y/∂x_j = 1/Σ_i exp(x_i) * exp(x_j).

    saved: exp(x - max) and its sum.

    goes wrong: exp(1000) overflows; with the maximum m taken out, y = m + log Σ_j exp(x_j - m), nothing can.
    """
    axis = axes(axis)
    m = x.max(axis=axis, keepdims=True, initial=-np.inf)
    m = np.where(np.isfinite(m), m, 0)  # a slice of nothing but -inf: exp(-inf - 0) = 0
    e = np.exp(x - m)
    total = e.sum(axis=axis, keepdims=True)
    nothing = total == 0
    y = np.where(nothing, -np.inf, m + np.log(np.where(nothing, 1, total)))

    def backward(dy: Array) -> Array:
        p = e / np.where(nothing, 1, total)
        dx: Array = _aligned(dy, axis, keepdims) * p
        return dx

    return y if keepdims else y.squeeze(axis), backward


def _aligned(d: Array, axis: Axis, keepdims: bool) -> Array:
    """What has the shape of the result, with the reduced axes put back (length 1), so that it broadcasts against x."""
    return d if keepdims or d.ndim == 0 else np.expand_dims(d, axis)  # type: ignore[arg-type]


def _count(x: Array, y: Array) -> int:
    """How many elements of x go into one of y."""
    return x.size // y.size if y.size else 1
