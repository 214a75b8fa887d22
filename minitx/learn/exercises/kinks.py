"""Kinks: where the slope jumps, a difference says nothing about the gradient. Find these places."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.learn.exercise import Exercise, Rng, Said
from minitx.op import Array

Scalar = Callable[[Array], Any]  # an array → a number


def kinks(f: Scalar, x: Array, h: float = 1e-4) -> Array:
    found = np.zeros(x.shape, dtype=bool)
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = h
        right = (f(x + step) - f(x)) / h
        left = (f(x) - f(x - step)) / h
        found[i] = abs(right - left) > 0.05 * max(abs(right), abs(left))  # a smooth f: they differ by h f''
    return found


def judge(function: Any, rng: Rng) -> Said | None:
    h = 1e-4
    c = rng.uniform(1, 2, (3, 5)) * rng.choice([-1.0, 1.0], (3, 5))
    x = rng.uniform(0.1, 1, (3, 5)) * rng.choice([-1.0, 1.0], (3, 5))

    def smooth(x: Array) -> Any:
        return (c * np.sin(3 * x)).sum()

    def relu(x: Array) -> Any:
        return (c * np.maximum(x, 0)).sum()

    def row_max(x: Array) -> Any:
        return x.max(-1).sum()

    near = x.copy()
    near[0, 1], near[2, 3], near[1, 0] = 0, 0.5 * h, -0.5 * h
    ties = (1 + rng.permutation(15).reshape(3, 5)) / 10
    ties[1, 2] = ties[1, 4] = ties[1].max() + 1
    ties[1, 2] += 0.5 * h
    for key, f, at in (("smooth", smooth, x), ("smooth", relu, x), ("relu", relu, near), ("max", row_max, ties)):
        before = at.copy()
        found = np.asarray(function(f, at, h))
        if not np.array_equal(at, before):
            return "changed", {}
        if found.shape != x.shape or found.dtype != bool:
            return "shape", {"given": found.shape, "dtype": str(found.dtype), "right": x.shape}
        right = kinks(f, at, h)
        if not np.array_equal(found, right):
            wrong = [int(i) for i in np.argwhere(found != right)[0]]
            kind = "missed" if right[tuple(wrong)] else "invented"
            return f"{key}-{kind}", {"place": str(wrong), "at": float(at[tuple(wrong)])}
    return None


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def compared(kink: Any) -> Any:
    """kink(right slope, left slope, x_i, h) for every entry."""

    def function(f: Scalar, x: Array, h: float = 1e-4) -> Array:
        found = np.zeros(x.shape, dtype=bool)
        for i in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[i] = h
            found[i] = kink((f(x + step) - f(x)) / h, (f(x) - f(x - step)) / h, x[i], h)
        return found

    return function


EXERCISE = Exercise(
    slug="kinks",
    part=0,
    minutes=10,
    needs=("central-difference",),
    idioms=("np.zeros(x.shape, dtype=bool)", "np.ndindex(x.shape)"),
    equation="right_i = (f(x + h e_i) - f(x)) / h;  left_i = (f(x) - f(x - h e_i)) / h",
    shapes={"f": "(...) → ()", "x": "(...)", "found": "(...) bool"},
    function="kinks",
    signature="f, x, h=1e-4",
    results=("found",),
    solution=kinks,
    arguments=lambda rng: {},
    judge=judge,
    mutants={
        "smooth-invented": compared(lambda right, left, x, h: abs(right - left) > 1e-9),
        "relu-missed": compared(lambda right, left, x, h: x == 0),
        "max-missed": compared(lambda right, left, x, h: abs(x) < h),
        "shape": lambda f, x, h=1e-4: np.zeros(x.shape),
    },
    unusual={"absolute": compared(lambda right, left, x, h: abs(right - left) > 0.05)},
)
