"""z = x y, one y for a whole stack of matrices x."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.standard_normal((5, 2, 3)), "y": rng.standard_normal((3, 7))}


def adversarial(rng: Rng) -> Cases:
    return {
        "one": {"x": rng.standard_normal((1, 1, 3)), "y": rng.standard_normal((3, 1))},
        "square": {"x": rng.standard_normal((3, 3, 3)), "y": rng.standard_normal((3, 3))},
        "empty": {"x": rng.standard_normal((0, 2, 3)), "y": rng.standard_normal((3, 7))},
    }


def matmul(x: Array, y: Array) -> Any:
    k, m = y.shape
    z = x @ y  # (B, n, m)

    def backward(dz: Array) -> tuple[Array, Array]:
        dx = dz @ y.T  # (B, n, k)
        dy = x.reshape(-1, k).T @ dz.reshape(-1, m)  # (k, m): one product, which also sums over the stack
        return dx, dy

    return z, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, y: Array) -> Array:
    return x @ y


def dx(dz: Array, y: Array) -> Array:
    return dz @ y.T


def dys(dz: Array, x: Array) -> Array:
    """What each matrix of the stack contributes to dy."""
    return x.swapaxes(1, 2) @ dz


def loops(x: Array, y: Array) -> Any:
    z = np.stack([row @ y for row in x.reshape(-1, len(y))]).reshape(*x.shape[:2], -1) if x.size else forward(x, y)

    def backward(dz: Array) -> Any:
        a, b = np.zeros(x.shape), np.zeros(y.shape)
        for i in np.ndindex(dz.shape[:2]):
            for j in range(y.shape[1]):
                a[i] += dz[(*i, j)] * y[:, j]
                b[:, j] += dz[(*i, j)] * x[i]
        return a, b

    return z, backward


EXERCISE = Exercise(
    slug="matmul",
    part=1,
    minutes=30,
    needs=("multiply",),
    idioms=("y.T", "x.swapaxes(-1, -2)", "x.reshape(-1, k)"),
    equation="z_bij = Σ_k x_bik y_kj        z = x @ y",
    shapes={"x": "(B, n, k)", "y": "(k, m)", "z": "(B, n, m)", "dz": "(B, n, m)"},
    function="matmul",
    signature="x, y",
    results=("z",),
    gradients=("x", "y"),
    solution=matmul,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "stack-not-summed": with_backward(forward, lambda dz, x, y: (dx(dz, y), dys(dz, x))),
        "stack-mean": with_backward(forward, lambda dz, x, y: (dx(dz, y), dys(dz, x).sum(0) / max(len(x), 1))),
        "one-of-stack": with_backward(forward, lambda dz, x, y: (dx(dz, y), dys(dz[:1], x[:1]).sum(0))),
        "dy-transposed": with_backward(forward, lambda dz, x, y: (dx(dz, y), dys(dz, x).sum(0).T)),
        "sign": with_backward(forward, lambda dz, x, y: (-dx(dz, y), dys(dz, x).sum(0))),
    },
    unusual={
        "loops": loops,
        "einsum": with_backward(
            lambda x, y: np.einsum("bik,kj->bij", x, y),
            lambda dz, x, y: (np.einsum("bij,kj->bik", dz, y), np.einsum("bik,bij->kj", x, dz)),
        ),
        "summed-stack": with_backward(forward, lambda dz, x, y: (dx(dz, y), dys(dz, x).sum(0))),
    },
)
