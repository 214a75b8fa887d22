"""The maximum along an axis; where several elements are largest, they share."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import apart, with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": apart(rng, (2, 3, 5)), "axis": 1}


def adversarial(rng: Rng) -> Cases:
    two = apart(rng, (2, 3, 5))
    two[:, 0] = two[:, 2] = two.max(1) + 1
    return {
        "two": {"x": two, "axis": 1},
        "all": {"x": np.repeat(rng.standard_normal((2, 1)), 3, axis=1), "axis": 1},
        "signs": {"x": -5 - np.abs(apart(rng, (3, 7))), "axis": 0},
        "last": {"x": apart(rng, (2, 3, 5)), "axis": -1},
        "infinite": {"x": np.where(apart(rng, (3, 5)) > 0, -np.inf, 1.0) + np.array([[0], [-np.inf], [0]]), "axis": 0},
    }


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, axis: int) -> Any:
    return x.max(axis)


def hits(x: Array, axis: int) -> Any:
    return (x == x.max(axis, keepdims=True)).astype(float)


def shared(x: Array, axis: int) -> Any:
    hit = hits(x, axis)
    return hit / hit.sum(axis, keepdims=True)


def first(dy: Array, x: Array, axis: int) -> Array:
    dx = np.zeros(x.shape)
    np.put_along_axis(dx, np.expand_dims(x.argmax(axis), axis), np.expand_dims(dy, axis), axis)
    return dx


def whole_array(dy: Array, x: Array, axis: int) -> Any:
    hit = x == x.max()
    return hit * np.expand_dims(dy, axis) / hit.sum()


def side_by_side(dy: Array, x: Array, axis: int) -> Any:
    return shared(x, axis) * np.repeat(dy.ravel(), x.shape[axis]).reshape(x.shape)


def by_sorting(x: Array, axis: int) -> Any:
    """The last of the sorted elements; whatever is equal to it stands before it."""
    s = np.moveaxis(x, axis, -1)
    order = np.argsort(s, -1)
    top = np.take_along_axis(s, order[..., -1:], -1)
    count = s.shape[-1] - np.sum(s < top, -1)

    def backward(dy: Array) -> Array:
        dx = np.where(s < top, 0.0, (dy / count)[..., None])
        return np.moveaxis(dx, -1, axis)

    return top[..., 0], backward


def loops(x: Array, axis: int) -> Any:
    s = np.moveaxis(x, axis, -1)
    y = np.empty(s.shape[:-1])
    for i in np.ndindex(y.shape):
        y[i] = max(s[i])

    def backward(dy: Array) -> Array:
        dx = np.zeros(s.shape)
        for i in np.ndindex(y.shape):
            largest = [j for j, value in enumerate(s[i]) if value == y[i]]
            for j in largest:
                dx[(*i, j)] = dy[i] / len(largest)
        return np.moveaxis(dx, -1, axis)

    return y, backward


EXERCISE = Exercise(
    slug="max",
    part=1,
    minutes=10,
    needs=("sum", "kinks"),
    idioms=("x == x.max(axis, keepdims=True)", "hit.sum(axis, keepdims=True)"),
    equation="y = max_j x_j",
    shapes={"x": "(2, 3, 5)", "y": "(2, 5)", "dy": "(2, 5)"},
    function="max",
    signature="x, axis",
    gradients=("x",),
    op="max",
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "all-get-all": with_backward(forward, lambda dy, x, axis: hits(x, axis) * np.expand_dims(dy, axis)),
        "first": with_backward(forward, first),
        "whole-array": with_backward(forward, whole_array),
        "side-by-side": with_backward(forward, side_by_side),
        "value": with_backward(forward, lambda dy, x, axis: shared(x, axis) * x * np.expand_dims(dy, axis)),
    },
    unusual={"sorting": by_sorting, "loops": loops},
)
