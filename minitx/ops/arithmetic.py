"""+ - * / and powers. z is the result of x and y, dz its gradient; where x or y was broadcast, the engine sums."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.op import Array, Forward, op
from minitx.tensor import Tensor


@op(broadcasts=True)
def add(x: Array, y: Array) -> Forward:
    """
    for: sums; the residual connection x + f(x) is one.

    equation:
        z = x + y

    by hand:
        >>> add([1, 2], 10).numpy()
        array([11., 12.], dtype=float32)

    backward:
        dx = dz
        dy = dz

    why: each input moves the sum one for one. Through a residual connection the gradient therefore reaches every layer
        undiminished, whatever f does.

    exercise: add
    """
    z = x + y

    def backward(dz: Array) -> tuple[Array, Array]:
        return dz, dz

    return z, backward


def onto(residual: Tensor | None, y: Tensor) -> Tensor:
    """residual + y; y alone where nothing passes it by."""
    return y if residual is None else add(residual, y)


@op(broadcasts=True)
def sub(x: Array, y: Array) -> Forward:
    """
    for: differences.

    equation:
        z = x - y

    backward:
        dx = dz
        dy = -dz
    """
    z = x - y

    def backward(dz: Array, need: Any) -> tuple[Array, Array | None]:
        return dz, -dz if need.y else None

    return z, backward


@op(broadcasts=True)
def mul(x: Array, y: Array) -> Forward:
    """
    for: products of elements: gates, gains, masks.

    equation:
        z = x * y

    by hand:
        >>> z, backward = mul.rule(2.0, 3.0)
        >>> z, backward(1.0)
        (6.0, (3.0, 2.0))

    backward:
        dx = dz * y
        dy = dz * x

    saved: x and y, each only for the gradient of the other.

    exercise: multiply
    """
    z = x * y

    def backward(dz: Array, need: Any) -> tuple[Array | None, Array | None]:
        return dz * y if need.x else None, dz * x if need.y else None

    return z, backward


@op(broadcasts=True)
def div(x: Array, y: Array) -> Forward:
    """
    for: quotients.

    equation:
        z = x / y

    backward:
        dx = dz / y
        dy = -dz * z / y

    why: ∂z/∂y = -x / y², and x / y² = z / y; y² itself could overflow where the quotient does not.

    saved: y and z.
    """
    z = x / y

    def backward(dz: Array, need: Any) -> tuple[Array | None, Array | None]:
        dx = dz / y
        return dx if need.x else None, -dx * z if need.y else None

    return z, backward


@op
def neg(x: Array) -> Forward:
    """
    for: the other sign.

    equation:
        y = -x

    backward:
        dx = -dy
    """
    y = -x

    def backward(dy: Array) -> Array:
        return -dy

    return y, backward


@op(broadcasts=True)
def power(x: Array, y: Array) -> Forward:
    """
    for: squares, roots, x to the y in general.

    equation:
        z = x^y

    by hand:
        >>> power([0, 3], 2).numpy()
        array([0., 9.], dtype=float32)

    backward:
        dx = dz * y x^(y-1)     0 where y = 0
        dy = dz * z log x       0 where x = 0 and y >= 0

    why: x^y = exp(y log x). Holding y: y x^(y-1), the power rule, which needs no logarithm and so holds for negative x
        with a whole exponent as well. Holding x: log x times z. At x = 0 the formulas read 0 * ∞ in the cases that are
        named above; there 0 is the limit, or, at 0^0 = 1, the convention.

    saved: x, y; z only if y wants a gradient.

    goes wrong: log x computed although y is the constant 2: NaN for every negative x. (Where y does want a gradient,
        it is NaN there: a negative x has powers at whole y only, and there is nothing to differentiate.)
    """
    z = _raised(x, y)

    def backward(dz: Array, need: Any) -> tuple[Array | None, Array | None]:
        dx = dy = None
        if need.x:
            less_one = np.where(y == 0, 0, y - 1)  # not -1 where y = 0, or x = 0 gives 0 * ∞
            dx = dz * (y * _raised(x, less_one))
        if need.y:
            flat = (x == 0) & (y >= 0)
            dy = dz * (z * np.log(np.where(flat, 1, x)))
        return dx, dy

    return z, backward


def _raised(x: Array, y: Array) -> Any:
    """x^y; the usual single exponents go to NumPy as Python integers, for which it multiplies instead (4x faster)."""
    if np.ndim(y) == 0 and float(y) in (0, 1, 2):
        return x ** int(y)
    return x**y
