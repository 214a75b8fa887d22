"""The step width: too large and the formula errs, too small and the digits are gone."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.learn.exercise import Exercise, Rng, Said
from minitx.op import Array

Curve = Callable[[float], float]


def u_curve(f: Curve, df: Curve, x: float, steps: Array) -> Array:
    errors = np.zeros(len(steps))
    for i, h in enumerate(steps):
        errors[i] = abs((f(x + h) - f(x - h)) / (2 * h) - df(x))
    return errors


def judge(function: Any, rng: Rng) -> Said | None:
    x, rate = 0.3 + rng.random(), 1.5 + rng.random()

    def f(x: float) -> float:
        return float(np.sin(rate * x))

    def df(x: float) -> float:
        return float(rate * np.cos(rate * x))

    steps = 10.0 ** np.arange(-1, -13, -1)
    errors = np.asarray(function(f, df, x, steps), float)
    if errors.shape != steps.shape:
        return "shape", {"given": errors.shape, "right": steps.shape}
    if (errors < 0).any():
        return "negative", {}
    right = u_curve(f, df, x, steps)
    ratio = float(errors[1] / errors[2]) if errors[2] else 0.0
    if np.allclose(errors[:3], right[:3], rtol=1e-3, atol=0):
        return None if errors[-1] > 30 * errors.min() else ("flat", {})
    if np.allclose(errors[:3], right[:3] / abs(df(x)), rtol=1e-3, atol=0):
        return "relative", {}
    if 5 < ratio < 20:
        return "one-sided", {"ratio": ratio}
    if np.allclose(errors, abs(df(x)), rtol=0.1) or 0.8 < ratio < 1.25:
        return "constant", {}
    return "other", {"given": float(errors[1]), "right": float(right[1])}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def with_error(error: Any) -> Any:
    """error(f, df, x, h) for every step."""
    return lambda f, df, x, steps: np.array([error(f, df, x, h) for h in steps])


def central(f: Curve, x: float, h: float) -> float:
    return (f(x + h) - f(x - h)) / (2 * h)


EXERCISE = Exercise(
    slug="step-width",
    part=0,
    minutes=10,
    needs=("central-difference",),
    idioms=("10.0 ** np.arange(-1, -13, -1)", "abs(a - b)"),
    equation="error(h) = | (f(x + h) - f(x - h)) / (2h) - f'(x) |",
    shapes={"f, df": "() → ()", "x": "()", "steps": "(n,)", "errors": "(n,)"},
    function="u_curve",
    signature="f, df, x, steps",
    results=("errors",),
    solution=u_curve,
    arguments=lambda rng: {},
    judge=judge,
    mutants={
        "one-sided": with_error(lambda f, df, x, h: abs((f(x + h) - f(x)) / h - df(x))),
        "negative": with_error(lambda f, df, x, h: central(f, x, h) - df(x)),
        "relative": with_error(lambda f, df, x, h: abs(central(f, x, h) / df(x) - 1)),
        "constant": with_error(lambda f, df, x, h: abs(2 * central(f, x, h) - df(x))),
        "flat": with_error(lambda f, df, x, h: abs(central(f, x, max(h, 1e-5)) - df(x))),
        "shape": lambda f, df, x, steps: 1e-5,
    },
    unusual={"list": lambda f, df, x, steps: [abs(central(f, x, h) - df(x)) for h in steps]},
)
