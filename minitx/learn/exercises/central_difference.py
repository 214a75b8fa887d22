"""The central difference: the one way to know a gradient without deriving anything."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.learn.exercise import Exercise, Rng, Said
from minitx.op import Array

Scalar = Callable[[Array], Any]  # an array → a number


def central_difference(f: Scalar, x: Array, h: float = 1e-5) -> Array:
    gradient = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = h
        gradient[i] = (f(x + step) - f(x - step)) / (2 * h)
    return gradient


def judge(function: Any, rng: Rng) -> Said | None:
    c, x = rng.standard_normal((2, 3, 5)) + 2
    h = 0.125  # so large that the error of the formula, c h², tells one formula from another

    def cube(x: Array) -> Any:
        return (c * x**3).sum()

    before = x.copy()
    g = function(cube, x, h)
    if not np.array_equal(x, before):
        return "changed", {}
    g = np.asarray(g, float)
    if g.shape != x.shape:
        return "shape", {"given": g.shape, "right": x.shape}
    slope = 3 * c * x**2
    right = slope + c * h**2
    if near(g, right):
        return others(function, rng)
    if near(g, right + 3 * c * x * h) or near(g, right - 3 * c * x * h):
        return "one-sided", {}
    if near(g, 2 * right):
        return "factor", {}
    if near(g, 2 * h * right):
        return "not-divided", {}
    if near(g, np.full(x.shape, right.sum())):
        return "all-at-once", {}
    if near(g, slope):
        return "not-numerical", {}
    if near(g, -right):
        return "sign", {}
    if np.sum(np.isclose(g, right)) == 1:
        return "one-entry", {}
    return "other", {"place": 0, "given": float(g.flat[0]), "right": float(right.flat[0])}


def others(function: Any, rng: Rng) -> Said | None:
    """The usual step, other functions: entries that belong together, a number without axes, a step by default."""
    A, b = rng.standard_normal((5, 5)), rng.standard_normal(5)
    g = np.asarray(function(lambda x: np.sin(x @ A @ x), b, 1e-5))
    if not near(g, np.cos(b @ A @ b) * (A + A.T) @ b, 1e-6):
        return "together", {}
    g = np.asarray(function(lambda x: np.exp(x), np.array(0.7)))
    return None if near(g, np.exp(np.array(0.7)), 1e-6) else ("number", {})


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def entry_by_entry(form: Any) -> Any:
    """form(f, x, step, h) for every entry."""

    def function(f: Scalar, x: Array, h: float = 1e-5) -> Array:
        out = np.zeros(x.shape)
        for i in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[i] = h
            out[i] = form(f, x, step, h)
        return out

    return function


def left_moved(f: Scalar, x: Array, h: float = 1e-5) -> Array:
    """Entries that have been moved stay where they are."""
    out, step = np.zeros(x.shape), np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step[i] = h
        out[i] = (f(x + step) - f(x - step)) / (2 * h)
    return out


def in_place(restored: bool) -> Any:
    """x itself is moved."""

    def function(f: Scalar, x: Array, h: float = 1e-5) -> Array:
        out = np.zeros(x.shape)
        for i in np.ndindex(x.shape):
            old = x[i]
            x[i] = old + h
            up = f(x)
            x[i] = old - h
            out[i] = (up - f(x)) / (2 * h)
            if restored:
                x[i] = old
        return out

    return function


def unit_vectors(f: Scalar, x: Array, h: float = 1e-5) -> Array:
    steps = h * np.eye(x.size).reshape(x.size, *x.shape)
    return np.array([f(x + s) / h / 2 - f(x - s) / h / 2 for s in steps]).reshape(x.shape)


def near(a: Array, b: Array, tolerance: float = 1e-9) -> bool:
    return a.shape == b.shape and bool(np.abs(a - b).max(initial=0) <= tolerance * np.abs(b).max(initial=1))


EXERCISE = Exercise(
    slug="central-difference",
    part=0,
    minutes=10,
    idioms=("np.ndindex(x.shape)", "step = np.zeros(x.shape)", "step[i] = h"),
    equation="g_i = (f(x + h e_i) - f(x - h e_i)) / (2h)",
    shapes={"f": "(...) → ()", "x": "(...)", "gradient": "(...), as x"},
    function="central_difference",
    signature="f, x, h=1e-5",
    results=("gradient",),
    solution=central_difference,
    arguments=lambda rng: {},
    judge=judge,
    mutants={
        "one-sided": entry_by_entry(lambda f, x, s, h: (f(x + s) - f(x)) / h),
        "factor": entry_by_entry(lambda f, x, s, h: (f(x + s) - f(x - s)) / h),
        "not-divided": entry_by_entry(lambda f, x, s, h: f(x + s) - f(x - s)),
        "all-at-once": entry_by_entry(lambda f, x, s, h: (f(x + h) - f(x - h)) / (2 * h)),
        "shape": lambda f, x, h=1e-5: (f(x + h) - f(x - h)) / (2 * h),
        "sign": entry_by_entry(lambda f, x, s, h: (f(x - s) - f(x + s)) / (2 * h)),
        "one-entry": left_moved,
        "changed": in_place(restored=False),
        "not-numerical": lambda f, x, h=1e-5: central_difference(f, x),
    },
    unusual={"in-place": in_place(restored=True), "unit-vectors": unit_vectors},
)
