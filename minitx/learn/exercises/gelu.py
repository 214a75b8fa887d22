"""GELU in its tanh form: a product of x and of a switch that depends on x."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.kernels.erfc import erfc
from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import sigmoid, with_backward
from minitx.op import Array

A, C = math.sqrt(2 / math.pi), 0.044715


def arguments(rng: Rng) -> Arguments:
    return {"x": 1.5 * rng.standard_normal((5, 7)), "approximate": "tanh"}


def forward_cases(rng: Rng) -> Cases:
    return {"large": {"x": 300 * rng.standard_normal((3, 5)), "approximate": "tanh"}}


def adversarial(rng: Rng) -> Cases:
    return {
        "far": {"x": np.array([-50.0, -30.0, -8.0, 8.0, 30.0, 50.0]), "approximate": "tanh"},
        "zero": {"x": np.zeros((3, 1)), "approximate": "tanh"},
    }


def terms(dy: Array, x: Array, approximate: str) -> dict[str, list[Array]]:
    return {"x": [dy * half(x), dy * x * slope(x)]}


def intermediates(dy: Array, x: Array, approximate: str) -> dict[str, Array]:
    return {"u": inner(x), "t": np.tanh(inner(x))}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def inner(x: Array) -> Array:
    return A * (x + C * x**3)


def dinner(x: Array) -> Array:
    return A * (1 + 3 * C * x**2)


def half(x: Array) -> Any:
    """(1 + tanh u) / 2, the share of x that passes; written so that it does not cancel for negative x."""
    return sigmoid(2 * inner(x))


def slope(x: Array) -> Array:
    """Its derivative."""
    t = np.tanh(inner(x))
    return (1 - t * t) / 2 * dinner(x)


def forward(x: Array, approximate: str) -> Any:
    return x * half(x)


def changed(dhalf: Any) -> Any:
    """Both terms, the second with this derivative of the switch."""
    return with_backward(forward, lambda dy, x, approximate: dy * (half(x) + x * dhalf(x)))


def no_inner(x: Array) -> Array:
    return slope(x) / dinner(x)


def no_three(x: Array) -> Array:
    return no_inner(x) * A * (1 + C * x**2)


def no_root(x: Array) -> Array:
    return slope(x) / A


def not_squared(x: Array) -> Array:
    return (1 - np.tanh(inner(x))) / 2 * dinner(x)


def no_half(x: Array) -> Array:
    return 2 * slope(x)


def no_tanh_slope(x: Array) -> Any:
    return dinner(x) / 2


def squared_only(x: Array) -> Any:
    return np.tanh(inner(x)) ** 2 / 2 * dinner(x)


def plus(x: Array) -> Any:
    return (1 + np.tanh(inner(x)) ** 2) / 2 * dinner(x)


def exact(x: Array, approximate: str) -> Any:
    """The other GELU, by erf."""
    share = 0.5 * erfc(x * -math.sqrt(0.5))
    return x * share, lambda dy: dy * (share + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))


def as_printed(x: Array, approximate: str) -> Any:
    """The paper's formula as it stands."""
    t = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    y = 0.5 * x * (1 + t)

    def backward(dy: Array) -> Any:
        dt = dy * 0.5 * x
        du = dt * (1 - t**2)
        return dy * 0.5 * (1 + t) + du * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)

    return y, backward


def by_cosh(x: Array, approximate: str) -> Any:
    """1 - tanh² as 1 / cosh², and the derivative made in forward."""
    u = np.clip(inner(x), -300, 300)
    y = x / (1 + np.exp(-2 * u))
    dydx = 1 / (1 + np.exp(-2 * u)) + x * dinner(x) / (2 * np.cosh(u) ** 2)
    return y, lambda dy: dydx * dy


EXERCISE = Exercise(
    slug="gelu",
    part=1,
    minutes=30,
    needs=("multiply", "exp"),
    idioms=("np.tanh(u)", "math.sqrt(2 / math.pi)"),
    equation="u = √(2/π) (x + 0.044715 x³);  t = tanh(u);  y = x (1 + t) / 2",
    shapes={"x": "(...)", "u": "(...)", "t": "(...)", "y": "(...)", "dy": "(...)"},
    function="gelu",
    signature='x, approximate="tanh"',
    gradients=("x",),
    op="gelu",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "no-inner": changed(no_inner),
        "no-three": changed(no_three),
        "no-root": changed(no_root),
        "not-squared": changed(not_squared),
        "no-half": changed(no_half),
        "no-tanh-slope": changed(no_tanh_slope),
        "squared-only": changed(squared_only),
        "plus": changed(plus),
        "no-x": with_backward(forward, lambda dy, x, approximate: dy * (half(x) + slope(x))),
        "no-one": with_backward(forward, lambda dy, x, approximate: dy * (half(x) - 0.5 + x * slope(x))),
        "exact": exact,
        "exact-slope": with_backward(forward, lambda dy, x, approximate: exact(x, approximate)[1](dy)),
    },
    unusual={"printed": as_printed, "cosh": by_cosh},
)
