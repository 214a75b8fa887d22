"""exp, log and the roots."""
from __future__ import annotations

import numpy as np

from minitx.op import Array, Forward, op


@op
def exp(x: Array) -> Forward:
    """
    for: making a number positive, and sums into products.

    equation:
        y = e^x

    backward:
        dx = dy * y

    saved: y (not x): exp is its own derivative.

    goes wrong: beyond x = 88.7 in float32 the result is inf; subtract a maximum first (see softmax).

    exercise: exp
    """
    y = np.exp(x)

    def backward(dy: Array) -> Array:
        return dy * y

    return y, backward


@op
def log(x: Array) -> Forward:
    """
    for: turning products into sums; the loss of a probability is -log p.

    equation:
        y = log x      natural logarithm

    backward:
        dx = dy / x

    saved: x.

    goes wrong: a probability that was rounded to 0 has loss inf; take log_softmax of the scores instead.

    exercise: log
    """
    y = np.log(x)

    def backward(dy: Array) -> Array:
        return dy / x

    return y, backward


@op
def sqrt(x: Array) -> Forward:
    """
    for: standard deviations, lengths, the √d of attention.

    equation:
        y = √x

    by hand:
        >>> y, backward = sqrt.rule(np.array([16.0]))
        >>> y, backward(1.0)
        (array([4.]), (array([0.125]),))

    backward:
        dx = dy / (2y)

    why: y² = x, so 2y dy/dx = 1.

    saved: y.

    goes wrong: at x = 0 the slope is infinite; add the eps inside the root, as the norms do.
    """
    y = np.sqrt(x)

    def backward(dy: Array) -> Array:
        dx: Array = dy / (2 * y)
        return dx

    return y, backward


@op
def rsqrt(x: Array) -> Forward:
    """
    for: dividing by a standard deviation: 1/σ from σ².

    equation:
        y = 1 / √x

    backward:
        dx = -dy * y³ / 2

    why: y = x^(-1/2), so ∂y/∂x = -1/2 x^(-3/2) = -y³ / 2.

    saved: y.
    """
    y = np.reciprocal(np.sqrt(x))

    def backward(dy: Array) -> Array:
        return dy * (-0.5 * y * y * y)

    return y, backward
