"""Dropout, given which elements are kept: what is left makes up for what is gone."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.standard_normal((5, 7)), "kept": rng.random((5, 7)) >= 0.3, "p": 0.3, "training": True}


def adversarial(rng: Rng) -> Cases:
    x, kept = rng.standard_normal((5, 7)), rng.random((5, 7)) >= 0.3
    return {
        "evaluation": {"x": x, "kept": kept, "p": 0.3, "training": False},
        "none-dropped": {"x": x, "kept": np.full(x.shape, True), "p": 0.0, "training": True},
        "all-dropped": {"x": x, "kept": np.full(x.shape, False), "p": 1.0, "training": True},
    }


def dropout(x: Array, kept: Array, p: float, training: bool = True) -> Any:
    if not training:
        return x.copy(), lambda dy: dy
    m = kept / (1 - p) if p < 1 else np.zeros(x.shape)  # 0, or 1 / (1 - p)
    y = m * x

    def backward(dy: Array) -> Array:
        return m * dy

    return y, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, kept: Array, p: float, training: bool) -> Any:
    return dropout(x, kept, p, training)[0]


def factor(kept: Array, p: float, training: bool) -> Any:
    return kept / max(1 - p, 1e-300) if training else 1.0


def changed(change: Any) -> Any:
    """dx = change(right dx, dy, kept, p) in training."""

    def backward(dy: Array, x: Array, kept: Array, p: float, training: bool) -> Array:
        return change(factor(kept, p, training) * dy, dy, kept, p) if training else dy

    return with_backward(forward, backward)


def unscaled(x: Array, kept: Array, p: float, training: bool) -> Any:
    m = kept.astype(float) if training else np.ones(x.shape)
    return m * x, lambda dy: m * dy


def always_on(x: Array, kept: Array, p: float, training: bool) -> Any:
    m = factor(kept, p, True)
    return m * x, lambda dy: m * dy


def scaled_at_evaluation(x: Array, kept: Array, p: float, training: bool) -> Any:
    """The original form: nothing in training, 1 - p at evaluation."""
    m = kept.astype(float) if training else np.full(x.shape, 1 - p)
    return m * x, lambda dy: m * dy


def by_places(x: Array, kept: Array, p: float, training: bool) -> Any:
    if not training:
        return x + 0, lambda dy: dy + 0
    places = np.flatnonzero(kept)
    y = np.zeros(x.size)
    y[places] = x.ravel()[places] / (1 - p)

    def backward(dy: Array) -> Array:
        dx = np.zeros(x.size)
        dx[places] = dy.ravel()[places] / (1 - p)
        return dx.reshape(x.shape)

    return y.reshape(x.shape), backward


def where(x: Array, kept: Array, p: float, training: bool) -> Any:
    scale = 1 / (1 - p) if training and p < 1 else 1.0
    alive = kept if training else np.ones(x.shape, bool)
    return np.where(alive, scale * x, 0), lambda dy: np.where(alive, scale * dy, 0)


EXERCISE = Exercise(
    slug="dropout",
    part=1,
    minutes=10,
    needs=("multiply",),
    idioms=("np.where(kept, a, 0)",),
    equation="m = where(kept, 1 / (1 - p), 0);  y = m * x        (training=False: y = x)",
    shapes={"x": "(...)", "kept": "(...) bool", "p": "0 ... 1", "y": "(...)", "dy": "(...)"},
    function="dropout",
    signature="x, kept, p, training=True",
    gradients=("x",),
    solution=dropout,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "backward-unscaled": changed(lambda dx, dy, kept, p: kept * dy),
        "backward-other-way": changed(lambda dx, dy, kept, p: kept * dy * (1 - p)),
        "backward-by-p": changed(lambda dx, dy, kept, p: kept * dy * p),
        "backward-everywhere": changed(lambda dx, dy, kept, p: dy),
        "inverted-mask": changed(lambda dx, dy, kept, p: ~kept * dy / max(1 - p, 1e-300)),
        "always-on": always_on,
        "scaled-at-evaluation": scaled_at_evaluation,
    },
    unusual={"places": by_places, "where": where},
)
