"""Ops that choose: |x|, the larger, the smaller, one or the other, at most and at least. Gradients go to the chosen."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.op import Array, Forward, op


@op
def abs(x: Array) -> Forward:
    """
    for: sizes without sign.

    equation:
        y = |x|

    backward:
        dx = dy * sign(x)      0 at 0

    saved: x.
    """
    y = np.abs(x)

    def backward(dy: Array) -> Array:
        return dy * np.sign(x)

    return y, backward


@op(broadcasts=True)
def maximum(x: Array, y: Array) -> Forward:
    """
    for: the larger of two, element by element.

    equation:
        z = max(x, y)

    by hand:
        >>> z, backward = maximum.rule(np.array([1.0, 5.0, 3.0]), np.array([2.0, 4.0, 3.0]))
        >>> backward(np.ones(3))
        (array([0. , 1. , 0.5]), array([1. , 0. , 0.5]))

    backward:
        dx = dz where x > y, dz/2 where x = y, else 0
        dy = the same with x and y exchanged

    why: only the larger one moves the result. At a tie each gets half, the middle of the slopes on both sides; this is
        also what |x| = max(x, -x) needs to have slope 0 at 0.

    saved: where x is larger, and where they tie.
    """
    return np.maximum(x, y), _to_the(x > y, x == y)


@op(broadcasts=True)
def minimum(x: Array, y: Array) -> Forward:
    """
    for: the smaller of two, element by element.

    equation:
        z = min(x, y)

    backward:
        dx = dz where x < y, dz/2 where x = y, else 0
        dy = the same with x and y exchanged
    """
    return np.minimum(x, y), _to_the(x < y, x == y)


def _to_the(first: Array, tie: Array) -> Any:
    """The backward that gives dz to x where `first`, halves it at a `tie`, and gives it to y elsewhere."""

    def backward(dz: Array, need: Any) -> tuple[Array | None, Array | None]:
        half = np.where(tie, dz / 2, 0)
        dx = np.where(first, dz, half) if need.x else None
        dy = np.where(first | tie, half, dz) if need.y else None
        return dx, dy

    return backward


@op("x", "y", broadcasts=True)
def where(condition: Any, x: Array, y: Array) -> Forward:
    """
    for: taking x in some places and y in the others.

    equation:
        z = x where condition, else y

    where:
        condition  boolean, any shape that broadcasts; copied

    backward:
        dx = dz where condition, else 0
        dy = 0 where condition, else dz

    saved: the condition, not x and y.

    goes wrong: a NaN or inf made *before* `where`, in the branch that is not taken, comes back in the gradient
        (0 * ∞): at x = -1, where(x > 0, sqrt(x), x) has slope NaN (in PyTorch too). Make the input safe first:
        where(x > 0, sqrt(where(x > 0, x, 1)), x).
    """
    condition = np.array(condition)
    if condition.dtype != np.bool_:
        raise TypeError(f"where: the condition is boolean, not {condition.dtype}; compare first, as in `c != 0`")
    z = np.where(condition, x, y)

    def backward(dz: Array, need: Any) -> tuple[Array | None, Array | None]:
        return np.where(condition, dz, 0) if need.x else None, np.where(condition, 0, dz) if need.y else None

    return z, backward


@op("x", broadcasts=True)
def clip(x: Array, low: Any = None, high: Any = None) -> Forward:
    """
    for: keeping values within bounds.

    equation:
        y = min(max(x, low), high)

    where:
        low, high  numbers or arrays that broadcast, None for no bound; they get no gradient

    backward:
        dx = dy where low <= x <= high, else 0

    why: outside, y is the bound and x does not move it. At a bound the slope is 1 on one side; 1 is taken, as in
        PyTorch, so that a value that starts on its bound can leave it.

    saved: where x is within bounds.
    """
    low = -np.inf if low is None else np.asarray(low, x.dtype)
    high = np.inf if high is None else np.asarray(high, x.dtype)
    if not np.all(low <= high):
        raise ValueError(f"clip: low is at most high, and neither is NaN; low {low} and high {high} were given")
    y = np.minimum(np.maximum(x, low), high)
    inside = (low <= x) & (x <= high)

    def backward(dy: Array) -> Array:
        return np.where(inside, dy, 0)

    return y, backward
