"""exp is its own derivative."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.standard_normal((3, 5))}


def adversarial(rng: Rng) -> Cases:
    return {"number": {"x": np.array(0.7)}, "zeros": {"x": np.zeros(3)}, "tiny": {"x": -800 - rng.random(5)}}


def by_slices(x: Array) -> Any:
    """One number at a time, by the standard library."""
    y = np.array([math.exp(v) for v in x.ravel()]).reshape(x.shape)
    return y, lambda dy: np.array([d * v for d, v in zip(dy.ravel(), y.ravel())]).reshape(x.shape)


EXERCISE = Exercise(
    slug="exp",
    part=1,
    minutes=10,
    needs=("vjp-check",),
    idioms=("np.exp(x)",),
    equation="y = e^x",
    shapes={"x": "(...)", "y": "(...)", "dy": "(...)"},
    function="exp",
    signature="x",
    gradients=("x",),
    op="exp",
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "input": with_backward(np.exp, lambda dy, x: dy * x),
        "cotangent-inside": with_backward(np.exp, lambda dy, x: np.exp(dy)),
        "no-cotangent": with_backward(np.exp, lambda dy, x: np.exp(x)),
        "power-rule": with_backward(np.exp, lambda dy, x: dy * x * np.exp(x - 1)),
        "minus": with_backward(np.exp, lambda dy, x: -dy * np.exp(x)),
    },
    unusual={"again": with_backward(np.exp, lambda dy, x: dy * np.exp(x)), "one-by-one": by_slices},
)
