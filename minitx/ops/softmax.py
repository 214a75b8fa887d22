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
        the Jacobian, n x n, is never built. Since Σ_j y_j = 1 always, a dy that is constant along the axis gives dx = 0;
        that is why checking with `y.sum()` accepts any backward proportional to the missing term.

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
