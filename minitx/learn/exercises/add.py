"""z = x + y with broadcasting: a number that was used many times collects many gradients."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import collect, with_backward
from minitx.learn.exercises.pieces import fit as fitted
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return pair(rng, (2, 3, 5), (3, 1))


def pair(rng: Rng, x: tuple[int, ...], y: tuple[int, ...]) -> Arguments:
    return {"x": rng.standard_normal(x), "y": rng.standard_normal(y)}


def broadcasts(rng: Rng) -> Cases:
    """Every way in which x and y may meet."""
    return {
        "same-shape": pair(rng, (3, 5), (3, 5)),
        "both": pair(rng, (3, 1), (2, 1, 5)),
        "number": pair(rng, (3, 5), ()),
        "x-smaller": pair(rng, (5,), (7, 5)),
    }


def adversarial(rng: Rng) -> Cases:
    return broadcasts(rng) | {"ones": pair(rng, (1, 1), (1,))}


def add(x: Array, y: Array) -> Any:
    z = x + y

    def backward(dz: Array) -> tuple[Array, Array]:
        return fit(dz, x.shape), fit(dz, y.shape)

    def fit(g: Array, shape: tuple[int, ...]) -> Array:
        g = g.sum(axis=tuple(range(g.ndim - len(shape))))  # axes that the input does not have
        for axis, n in enumerate(shape):
            if n == 1:
                g = g.sum(axis=axis, keepdims=True)  # axes along which it was repeated
        return g

    return z, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, y: Array) -> Array:
    return x + y


def averaged(g: Array, shape: tuple[int, ...]) -> Any:
    return fitted(g, shape) * max(int(np.prod(shape)), 1) / g.size


def without_axes(g: Array, shape: tuple[int, ...]) -> Any:
    return fitted(g, shape).squeeze()


def in_front_only(g: Array, shape: tuple[int, ...]) -> Any:
    return g.sum(axis=tuple(range(g.ndim - len(shape))))


def loops(x: Array, y: Array) -> Any:
    z = x + y

    def backward(dz: Array) -> Any:
        out = []
        for part in (x, y):
            d = np.zeros(part.shape)
            for i in np.ndindex(dz.shape):
                own = tuple(0 if n == 1 else j for n, j in zip(part.shape, i[dz.ndim - part.ndim :]))
                d[own] += dz[i]
            out.append(d)
        return tuple(out)

    return z, backward


EXERCISE = Exercise(
    slug="add",
    part=1,
    minutes=30,
    needs=("vjp-check",),
    idioms=("g.sum(axis=(0, 1))", "g.sum(axis=i, keepdims=True)"),
    equation="z = x + y",
    shapes={"x": "(2, 3, 5)", "y": "(3, 1)", "z": "(2, 3, 5)", "dz": "(2, 3, 5)"},
    function="add",
    signature="x, y",
    results=("z",),
    gradients=("x", "y"),
    solution=add,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "no-sum": with_backward(forward, lambda dz, x, y: (dz, dz)),
        "mean": with_backward(forward, lambda dz, x, y: (averaged(dz, x.shape), averaged(dz, y.shape))),
        "lost-axis": with_backward(forward, lambda dz, x, y: (dz, without_axes(dz, y.shape))),
        "in-front-only": with_backward(forward, lambda dz, x, y: tuple(in_front_only(dz, a.shape) for a in (x, y))),
        "minus": with_backward(forward, lambda dz, x, y: (fitted(dz, x.shape), -fitted(dz, y.shape))),
    },
    unusual={
        "loops": loops,
        "collected": with_backward(forward, lambda dz, x, y: (collect(dz, x.shape), collect(dz, y.shape))),
    },
)
