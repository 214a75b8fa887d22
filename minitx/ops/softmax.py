"""Softmax and its logarithm: scores in, a distribution out."""
from __future__ import annotations

import numpy as np

from minitx.op import Array, Forward, op


@op
def softmax(x: Array, axis: int = -1) -> Forward:
    """
    for: turning any real scores into positive numbers that sum to 1, the largest score getting the most.

    equation:
        y_i = exp(x_i) / Σ_j exp(x_j)

    where:
        x  (..., n)  scores; a score of -inf gets weight 0, and a slice of nothing but -inf becomes 0 (no NaN)
        y  (..., n)  a distribution along `axis`

    by hand:
        >>> softmax(np.log([1.0, 3.0])).numpy()
        array([0.25, 0.75])

    backward:
        dx = y * dy          (term 1)
           - y * Σ_j dy_j y_j (term 2)

    why:
        ∂y_i/∂x_j = y_i (δ_ij - y_j): raising x_j raises y_j itself and, through the common denominator, takes from
        everybody. So dx_j = Σ_i dy_i y_i (δ_ij - y_j) = y_j dy_j - y_j Σ_i dy_i y_i. The sum is one number per slice:
        the Jacobian, n x n, is never built. Since Σ_j y_j = 1 always, a dy that is constant along the axis gives
        dx = 0; that is why a check with `y.sum()` accepts every backward that is 0 for such a dy: any multiple of the
        right one, or y * (dy - mean dy).

    saved: y (not x).

    cost: 3 passes forward and 2 back over n elements; one exp each.

    differs from: PyTorch, where a slice of nothing but -inf gives NaN; here it gives 0, and gradient 0.

    goes wrong: without subtracting the maximum exp overflows at x = 89 in float32; with the second term dropped the
        gradients along the axis no longer sum to 0, and training drifts instead of failing.

    exercise: softmax

    source: Bridle 1990, "Probabilistic interpretation of feedforward classification network outputs".
    """
    top = x.max(axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)  # a slice of nothing but -inf: exp(-inf - 0) = 0
    e = np.exp(x - top)
    total = e.sum(axis, keepdims=True)
    y = e / np.where(total == 0, 1, total)

    def backward(dy: Array) -> Array:
        # y_i = e_i / Σ_j e_j
        return y * (dy - (dy * y).sum(axis, keepdims=True))  # type: ignore[no-any-return]  # term 1 - term 2

    return y, backward


@op
def log_softmax(x: Array, axis: int = -1) -> Forward:
    """
    for: log-probabilities without ever forming a probability that could round to 0.

    equation:
        y_i = x_i - log Σ_j exp(x_j)

    where:
        x  (..., n)  scores; -inf stays -inf
        y  (..., n)  log-probabilities along `axis`, all <= 0

    by hand:
        >>> np.exp(log_softmax(np.log([1.0, 3.0])).numpy())
        array([0.25, 0.75])

    backward:
        dx = dy                  (term 1)
           - exp(y) * Σ_j dy_j   (term 2)

    why:
        ∂y_i/∂x_j = δ_ij - exp(y_j): x_j counts once for itself and, through the logarithm of the common sum, a little
        for everybody; the derivative of log Σ exp is softmax. So dx_j = dy_j - exp(y_j) Σ_i dy_i.

    saved: y (not x).

    cost: 3 passes forward and 2 back over n elements; one exp each.

    differs from: PyTorch, where a slice of nothing but -inf gives NaN; here it stays -inf, and its gradient is 0.

    goes wrong: log(softmax(x)) gives -inf where the probability rounds to 0, and 0/0 on the way back. Term 2 with
        softmax's own weighting, Σ_j dy_j y_j, looks right and is not: here the sum is bare.

    exercise: log-softmax

    source: Bridle 1990, as softmax; the shift by the maximum is the log-sum-exp trick.
    """
    top = x.max(axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)  # a slice of nothing but -inf
    total = np.exp(x - top).sum(axis, keepdims=True)
    alive = total != 0
    y = x - top - np.log(np.where(alive, total, 1))

    def backward(dy: Array) -> Array:
        # y_i = x_i - log Σ_j exp(x_j)
        dx = dy - np.exp(y) * dy.sum(axis, keepdims=True)  # term 1 - term 2
        return dx if alive.all() else np.where(alive, dx, 0)

    return y, backward
