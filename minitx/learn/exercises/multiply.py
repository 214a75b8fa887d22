"""z = x * y with broadcasting: each factor's gradient needs the other factor."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Cases, Exercise, Rng
from minitx.learn.exercises.add import arguments, averaged, broadcasts
from minitx.learn.exercises.pieces import collect, with_backward
from minitx.learn.exercises.pieces import fit as fitted
from minitx.op import Array


def adversarial(rng: Rng) -> Cases:
    return broadcasts(rng) | {"zeros": {"x": np.zeros((3, 5)), "y": np.zeros(5)}}


def mul(x: Array, y: Array) -> Any:
    z = x * y

    def backward(dz: Array) -> tuple[Array, Array]:
        return fit(dz * y, x.shape), fit(dz * x, y.shape)

    def fit(g: Array, shape: tuple[int, ...]) -> Array:
        g = g.sum(axis=tuple(range(g.ndim - len(shape))))  # axes that the input does not have
        for axis, n in enumerate(shape):
            if n == 1:
                g = g.sum(axis=axis, keepdims=True)  # axes along which it was repeated
        return g

    return z, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, y: Array) -> Array:
    return x * y


def sum_first(dz: Array, x: Array, y: Array) -> Any:
    return fitted(dz, x.shape) * fitted(np.broadcast_to(y, dz.shape), x.shape), fitted(dz, y.shape) * fitted(
        np.broadcast_to(x, dz.shape), y.shape
    )


def own_factor(dz: Array, x: Array, y: Array) -> Any:
    return fitted(dz * x, x.shape), fitted(dz * y, y.shape)


def flat(x: Array, y: Array) -> Any:
    """Everything repeated and laid out flat first."""
    X, Y = np.broadcast_arrays(x, y)
    return X * Y, lambda dz: (collect(dz * Y, x.shape), collect(dz * X, y.shape))


def loops(x: Array, y: Array) -> Any:
    def backward(dz: Array) -> Any:
        dx, dy = np.zeros(x.shape), np.zeros(y.shape)
        for i in np.ndindex(dz.shape):
            ix = tuple(0 if n == 1 else j for n, j in zip(x.shape, i[dz.ndim - x.ndim :]))
            iy = tuple(0 if n == 1 else j for n, j in zip(y.shape, i[dz.ndim - y.ndim :]))
            dx[ix] += dz[i] * y[iy]
            dy[iy] += dz[i] * x[ix]
        return dx, dy

    return x * y, backward


EXERCISE = Exercise(
    slug="multiply",
    part=1,
    minutes=10,
    needs=("add",),
    idioms=("g.sum(axis=i, keepdims=True)",),
    equation="z = x * y",
    shapes={"x": "(2, 3, 5)", "y": "(3, 1)", "z": "(2, 3, 5)", "dz": "(2, 3, 5)"},
    function="mul",
    signature="x, y",
    results=("z",),
    gradients=("x", "y"),
    solution=mul,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "no-sum": with_backward(forward, lambda dz, x, y: (dz * y, dz * x)),
        "mean": with_backward(forward, lambda dz, x, y: (averaged(dz * y, x.shape), averaged(dz * x, y.shape))),
        "own-factor": with_backward(forward, own_factor),
        "sum-first": with_backward(forward, sum_first),
        "no-factor": with_backward(forward, lambda dz, x, y: (fitted(dz, x.shape), fitted(dz, y.shape))),
    },
    unusual={"flat": flat, "loops": loops},
)
