"""The logarithm: its slope is 1/x, which is where training on log(p) breaks."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.uniform(0.5, 3.0, (3, 5))}


def adversarial(rng: Rng) -> Cases:
    return {"number": {"x": np.array(2.0)}, "ones": {"x": np.ones(3)}, "tiny": {"x": rng.uniform(1, 2, 5) * 1e-200}}


def one_by_one(x: Array) -> Any:
    y = np.array([math.log(v) for v in x.ravel()]).reshape(x.shape)
    return y, lambda dy: np.array([d / v for d, v in zip(dy.ravel(), x.ravel())]).reshape(x.shape)


EXERCISE = Exercise(
    slug="log",
    part=1,
    minutes=10,
    needs=("exp",),
    idioms=("np.log(x)",),
    equation="y = log x",
    shapes={"x": "(...)", "y": "(...)", "dy": "(...)"},
    function="log",
    signature="x",
    gradients=("x",),
    op="log",
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "value": with_backward(np.log, lambda dy, x: dy / np.log(x)),
        "product": with_backward(np.log, lambda dy, x: dy * x),
        "no-cotangent": with_backward(np.log, lambda dy, x: 1 / x),
        "base-ten": with_backward(np.log, lambda dy, x: dy / (x * math.log(10))),
        "square": with_backward(np.log, lambda dy, x: dy / x**2),
    },
    unusual={"by-value": with_backward(np.log, lambda dy, x: dy * np.exp(-np.log(x))), "one-by-one": one_by_one},
)
