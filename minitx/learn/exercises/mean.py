"""The mean: a sum, and the 1/n that people forget or count wrongly."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.pieces import with_backward
from minitx.learn.exercises.sum import adversarial, arguments, spread
from minitx.op import Array

# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, axis: int, keepdims: bool) -> Any:
    return x.sum(axis, keepdims=keepdims) / x.shape[axis]


def side_by_side(dy: Array, x: Array, axis: int, keepdims: bool) -> Any:
    """The copies of an entry lie next to each other, as if the mean had been along the last axis."""
    return np.repeat(dy.ravel(), x.shape[axis]).reshape(x.shape) / x.shape[axis]


def product(x: Array, axis: int, keepdims: bool) -> Any:
    """A mean is a product with 1/n, and its backward a product with the same 1/n."""
    share = np.full((x.shape[axis], 1), 1 / x.shape[axis])
    y = np.moveaxis(np.moveaxis(x, axis, -1) @ share, -1, axis)

    def backward(dy: Array) -> Array:
        return np.moveaxis(np.moveaxis(dy.reshape(y.shape), axis, -1) @ share.T, -1, axis)

    return y if keepdims else y.squeeze(axis), backward


def running(x: Array, axis: int, keepdims: bool) -> Any:
    """The mean as it changes with every element."""
    slices = np.moveaxis(x, axis, 0)
    y = np.zeros(slices.shape[1:])
    for count, part in enumerate(slices, 1):
        y = y + (part - y) / count

    def backward(dy: Array) -> Array:
        dx = np.empty(x.shape)
        for part in np.moveaxis(dx, axis, 0):
            part[...] = dy.reshape(part.shape) / len(slices)
        return dx

    return np.expand_dims(y, axis) if keepdims else y, backward


EXERCISE = Exercise(
    slug="mean",
    part=1,
    minutes=10,
    needs=("sum",),
    idioms=("x.mean(axis, keepdims=True)", "np.expand_dims(dy, axis)"),
    equation="y = 1/n Σ_j x_j",
    shapes={"x": "(2, 3, 5)", "y": "(2, 5), (2, 1, 5)", "dy": "(2, 5), (2, 1, 5)"},
    function="mean",
    signature="x, axis, keepdims=False",
    gradients=("x",),
    op="mean",
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "no-n": with_backward(forward, spread),
        "size": with_backward(forward, lambda dy, x, axis, keep: spread(dy, x, axis, keep) / x.size),
        "other-axis": with_backward(forward, lambda dy, x, axis, keep: spread(dy, x, axis, keep) / x.shape[axis - 1]),
        "side-by-side": with_backward(forward, side_by_side),
        "twice": with_backward(forward, lambda dy, x, axis, keep: spread(dy, x, axis, keep) / x.shape[axis] ** 2),
    },
    unusual={"product": product, "running": running},
)
