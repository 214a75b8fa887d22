"""The check of a backward: a random cotangent, a random direction, two numbers that have to agree."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Exercise, Rng, Said
from minitx.learn.exercises.pieces import softmax, softmax_backward
from minitx.op import Array


def check(function: Any, x: Array, rng: Rng) -> bool:
    y, backward = function(x)
    dy = rng.standard_normal(y.shape)  # not ones: they hide faults
    u = rng.standard_normal(x.shape)  # a direction
    said = (backward(dy) * u).sum()
    h = 1e-5
    there, back = function(x + h * u)[0], function(x - h * u)[0]
    slope = (dy * (there - back)).sum() / (2 * h)
    size = np.abs(backward(dy) * u).sum() + 1e-12  # what adds up to `said`; it may cancel
    return bool(abs(said - slope) <= 1e-5 * size)


# ---------------------------------------------------------------------- right and wrong functions to try it on


def tanh(x: Array) -> Any:
    y = np.tanh(x)
    return y, lambda dy: dy * (1 - y * y)


def sum_of_squares(x: Array) -> Any:
    """Fewer axes come out than go in."""
    return (x * x).sum(-1), lambda dy: 2 * x * dy[..., None]


def large(x: Array) -> Any:
    return 1e7 * np.sin(x), lambda dy: 1e7 * np.cos(x) * dy


def small(x: Array) -> Any:
    return 1e-7 * np.sin(x), lambda dy: 1e-7 * np.cos(x) * dy


def soft(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: softmax_backward(y, dy)


def zero(x: Array) -> Any:
    """Softmax with a backward of 0: right for every dy that is constant along the row."""
    return softmax(x), lambda dy: np.zeros(x.shape)


def one_term(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: y * dy


def twice(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: 2 * softmax_backward(y, dy)


def one_row(x: Array) -> Any:
    """Right but for one row."""

    def backward(dy: Array) -> Array:
        dx = dy * np.cos(x)
        dx[-1] = 0
        return dx

    return np.sin(x), backward


def cotangent_unused(x: Array) -> Any:
    return np.sin(x), lambda dy: np.cos(x)


def small_wrong(x: Array) -> Any:
    return 1e-7 * np.sin(x), lambda dy: 1.01e-7 * np.cos(x) * dy


RIGHT = {"tanh": tanh, "sum-of-squares": sum_of_squares, "large": large, "small": small, "softmax": soft}
WRONG = {
    "zero": zero, "one-term": one_term, "twice": twice, "one-row": one_row, "cotangent-unused": cotangent_unused,
    "small-wrong": small_wrong,
}  # fmt: skip


def spied_on(function: Any, rng: Rng) -> Said | None:
    """Which cotangents and directions does the check use?"""
    x = rng.standard_normal((3, 5))
    places: list[Array] = []
    cotangents: list[Array] = []

    def spy(x: Array) -> Any:
        places.append(np.array(x))
        y, backward = tanh(x)

        def watched(dy: Array) -> Any:
            cotangents.append(np.array(dy))
            return backward(dy)

        return y, watched

    function(spy, x.copy(), np.random.default_rng(rng.integers(1 << 30)))
    if not cotangents:
        return "backward-unused", {}
    if all(np.ptp(dy) < 1e-9 for dy in cotangents):
        return "ones", {}
    moves = [p - x for p in places if p.shape == x.shape and np.abs(p - x).max() > 1e-12]
    if not moves:
        return "unmoved", {}
    if all(np.ptp(np.abs(m)) < 1e-6 * np.abs(m).max() for m in moves):
        return "direction", {}
    return None


def judge(function: Any, rng: Rng) -> Said | None:
    if said := spied_on(function, rng):
        return said
    for key, f in {**RIGHT, **WRONG}.items():
        x = rng.standard_normal((3, 5))
        before = x.copy()
        answer = function(f, x, np.random.default_rng(rng.integers(1 << 30)))
        if not np.array_equal(x, before):
            return "changed", {}
        if not isinstance(answer, bool | np.bool_):
            return "no-bool", {"type": type(answer).__name__}
        if bool(answer) != (key in RIGHT):
            return key, {}
    return None


def comparing(
    cotangent: Any = lambda rng, y: rng.standard_normal(y.shape),
    direction: Any = lambda rng, x: rng.standard_normal(x.shape),
    agree: Any = lambda said, slope, size: abs(said - slope) <= 1e-5 * size,
    distance: float = 2.0,
) -> Any:
    """The check with one thing changed."""

    def function(f: Any, x: Array, rng: Rng) -> bool:
        y, backward = f(x)
        dy, u, h = cotangent(rng, y), direction(rng, x), 1e-5
        slope = (dy * (f(x + h * u)[0] - f(x - h * u)[0])).sum() / (distance * h)
        return bool(agree((backward(dy) * u).sum(), slope, np.abs(backward(dy) * u).sum() + 1e-12))

    return function


def every_entry(f: Any, x: Array, rng: Rng) -> bool:
    """No direction: the whole gradient by differences."""
    y, backward = f(x)
    dy, h = rng.standard_normal(y.shape), 1e-5
    slopes = np.zeros(x.shape)
    for i in np.ndindex(x.shape):
        step = np.zeros(x.shape)
        step[i] = h
        slopes[i] = (dy * (f(x + step)[0] - f(x - step)[0])).sum() / (2 * h)
    return bool(np.abs(slopes - backward(dy)).max() <= 1e-6 * np.abs(slopes).max())


EXERCISE = Exercise(
    slug="vjp-check",
    part=0,
    minutes=30,
    needs=("step-width",),
    idioms=("rng.standard_normal(y.shape)", "(dy * y).sum()"),
    equation="Σ dx * u  =  d/dh Σ dy * y(x + h u)  (h = 0)",
    shapes={
        "function": "x → y, backward", "x, dx, u": "(...)", "y, dy": "(...)", "right": "True, False",
    },
    function="check",
    signature="function, x, rng",
    results=("right",),
    solution=check,
    arguments=lambda rng: {},
    judge=judge,
    mutants={
        "ones": comparing(cotangent=lambda rng, y: np.ones(y.shape)),
        "direction": comparing(direction=lambda rng, x: np.ones(x.shape)),
        "one-row": comparing(direction=lambda rng, x: np.eye(*x.shape) * np.array([[1], [0], [0]])),
        "large": comparing(agree=lambda said, slope, size: abs(said - slope) < 1e-5),
        "small-wrong": comparing(agree=lambda said, slope, size: np.isclose(said, slope)),
        "one-term": comparing(agree=lambda said, slope, size: abs(said - slope) <= 3 * size),
        "tanh": comparing(distance=1.0),
        "backward-unused": lambda f, x, rng: True,
        "unmoved": lambda f, x, rng: bool(np.isfinite(f(x)[1](rng.standard_normal(f(x)[0].shape))).all()),
        "no-bool": lambda f, x, rng: None if check(f, x, rng) else 0,
    },
    unusual={"every-entry": every_entry},
)  # fmt: skip
