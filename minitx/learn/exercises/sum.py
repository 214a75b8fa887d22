"""A sum forward is a broadcast backward."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.standard_normal((2, 3, 5)), "axis": 1, "keepdims": False}


def adversarial(rng: Rng) -> Cases:
    return {
        "kept": {"x": rng.standard_normal((2, 3, 5)), "axis": 1, "keepdims": True},
        "first": {"x": rng.standard_normal((2, 3, 5)), "axis": 0, "keepdims": False},
        "last": {"x": rng.standard_normal((2, 3, 5)), "axis": -1, "keepdims": False},
        "one": {"x": rng.standard_normal((2, 1, 5)), "axis": 1, "keepdims": False},
        "square": {"x": rng.standard_normal((3, 3)), "axis": 1, "keepdims": False},
    }


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, axis: int, keepdims: bool) -> Any:
    return x.sum(axis, keepdims=keepdims)


def spread(dy: Array, x: Array, axis: int, keepdims: bool) -> Array:
    return np.broadcast_to(dy if keepdims else np.expand_dims(dy, axis), x.shape).copy()


def side_by_side(dy: Array, x: Array, axis: int, keepdims: bool) -> Array:
    """The copies of an entry lie next to each other, as if the last axis had been summed."""
    return np.repeat(dy.ravel(), x.shape[axis]).reshape(x.shape)


def one_place(dy: Array, x: Array, axis: int, keepdims: bool) -> Array:
    dx = np.zeros(x.shape)
    np.moveaxis(dx, axis, 0)[0] = dy.reshape(np.moveaxis(dx, axis, 0)[0].shape)
    return dx


def tiled(x: Array, axis: int, keepdims: bool) -> Any:
    """A sum is a product with ones, and its backward a product with the same ones."""
    ones = np.ones((x.shape[axis], 1))
    y = np.moveaxis(np.moveaxis(x, axis, -1) @ ones, -1, axis)

    def backward(dy: Array) -> Array:
        dy = dy.reshape(y.shape)
        return np.moveaxis(np.moveaxis(dy, axis, -1) @ ones.T, -1, axis)

    return y if keepdims else y.squeeze(axis), backward


def loops(x: Array, axis: int, keepdims: bool) -> Any:
    axis %= x.ndim
    y = np.zeros((*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    for i in np.ndindex(x.shape):
        y[(*i[:axis], 0, *i[axis + 1 :])] += x[i]

    def backward(dy: Array) -> Array:
        dx = np.zeros(x.shape)
        for i in np.ndindex(x.shape):
            dx[i] = dy.reshape(y.shape)[(*i[:axis], 0, *i[axis + 1 :])]
        return dx

    return y if keepdims else y.squeeze(axis), backward


EXERCISE = Exercise(
    slug="sum",
    part=1,
    minutes=10,
    needs=("vjp-check",),
    idioms=("x.sum(axis, keepdims=True)", "np.expand_dims(dy, axis)", "np.broadcast_to(a, shape).copy()"),
    equation="y = Σ_j x_j",
    shapes={"x": "(2, 3, 5)", "y": "(2, 5), (2, 1, 5)", "dy": "(2, 5), (2, 1, 5)"},
    function="sum",
    signature="x, axis, keepdims=False",
    gradients=("x",),
    op="sum",
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "mean": with_backward(forward, lambda dy, x, axis, keep: spread(dy, x, axis, keep) / x.shape[axis]),
        "all-of-dy": with_backward(forward, lambda dy, x, axis, keep: np.full(x.shape, dy.sum())),
        "side-by-side": with_backward(forward, side_by_side),
        "one-place": with_backward(forward, one_place),
        "no-cotangent": with_backward(forward, lambda dy, x, axis, keep: np.ones(x.shape)),
    },
    unusual={"product": tiled, "loops": loops},
)
