"""The linear layer: y = x Wᵀ + b, the same W and b for every row."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return draw(rng, (2, 5, 3))


def draw(rng: Rng, shape: tuple[int, ...], out: int = 7) -> Arguments:
    return {
        "x": rng.standard_normal(shape),
        "weight": rng.standard_normal((out, shape[-1])),
        "bias": rng.standard_normal(out),
    }


def adversarial(rng: Rng) -> Cases:
    return {
        "vector": draw(rng, (5,)),
        "empty": draw(rng, (0, 5)),
        "square": draw(rng, (5, 5), 5),
        "four-axes": draw(rng, (2, 3, 1, 5), 1),
    }


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, weight: Array, bias: Array) -> Array:
    return x @ weight.T + bias


def right(dy: Array, x: Array, weight: Array) -> tuple[Array, Array, Array]:
    rows, drows = x.reshape(-1, weight.shape[1]), dy.reshape(-1, weight.shape[0])
    return dy @ weight, drows.T @ rows, drows.sum(0)


def changed(change: Any) -> Any:
    """change(dx, dW, db, dy, x, weight) in place of the right gradients."""
    return with_backward(forward, lambda dy, x, weight, bias: change(*right(dy, x, weight), dy, x, weight))


def rows(x: Array) -> int:
    return max(int(np.prod(x.shape[:-1])), 1)


def first_axis_only(dx: Array, dW: Array, db: Array, dy: Array, x: Array, weight: Array) -> Any:
    return dx, dW, dy.sum(0) if dy.ndim > 1 else dy


def last_row(dx: Array, dW: Array, db: Array, dy: Array, x: Array, weight: Array) -> Any:
    a, b = dy.reshape(-1, len(weight))[-1:], x.reshape(-1, x.shape[-1])[-1:]
    return dx, a.T @ b, db


def einsum(x: Array, weight: Array, bias: Array) -> Any:
    y = np.einsum("...i,oi->...o", x, weight) + bias

    def backward(dy: Array) -> Any:
        return (
            np.einsum("...o,oi->...i", dy, weight),
            np.einsum("no,ni->oi", dy.reshape(-1, len(weight)), x.reshape(-1, x.shape[-1])),
            np.einsum("no->o", dy.reshape(-1, len(weight))),
        )

    return y, backward


def column_of_ones(x: Array, weight: Array, bias: Array) -> Any:
    """The bias is the weight of an input that is always 1."""
    x1 = np.concatenate([x, np.ones((*x.shape[:-1], 1))], -1).reshape(-1, x.shape[-1] + 1)
    W1 = np.concatenate([weight, bias[:, None]], 1)

    def backward(dy: Array) -> Any:
        rows = dy.reshape(len(x1), len(W1))
        dW1 = rows.T @ x1
        return (rows @ W1)[:, :-1].reshape(x.shape), dW1[:, :-1], dW1[:, -1]

    return (x1 @ W1.T).reshape(*x.shape[:-1], len(W1)), backward


def loops(x: Array, weight: Array, bias: Array) -> Any:
    y = np.empty((*x.shape[:-1], len(weight)))
    for n in np.ndindex(x.shape[:-1]):
        for o in range(len(weight)):
            y[(*n, o)] = sum(weight[o] * x[n]) + bias[o]

    def backward(dy: Array) -> Any:
        dx, dW, db = np.zeros(x.shape), np.zeros(weight.shape), np.zeros(bias.shape)
        for n in np.ndindex(x.shape[:-1]):
            for o in range(len(weight)):
                dx[n] += dy[(*n, o)] * weight[o]
                dW[o] += dy[(*n, o)] * x[n]
                db[o] += dy[(*n, o)]
        return dx, dW, db

    return y, backward


EXERCISE = Exercise(
    slug="linear",
    part=1,
    minutes=30,
    needs=("matmul", "add"),
    idioms=("weight.T", "x.reshape(-1, x.shape[-1])"),
    equation="y = x Wᵀ + b",
    shapes={"x": "(..., in)", "weight": "(out, in)  W", "bias": "(out,)  b", "y": "(..., out)", "dy": "(..., out)"},
    function="linear",
    signature="x, weight, bias",
    gradients=("x", "weight", "bias"),
    op="linear",
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "weight-transposed": changed(lambda dx, dW, db, dy, x, weight: (dx, dW.T, db)),
        "bias-mean": changed(lambda dx, dW, db, dy, x, weight: (dx, dW, db / rows(x))),
        "weight-mean": changed(lambda dx, dW, db, dy, x, weight: (dx, dW / rows(x), db)),
        "bias-one-axis": changed(first_axis_only),
        "last-row": changed(last_row),
        "dx-cotangent": changed(lambda dx, dW, db, dy, x, weight: (x, dW, db)),
        "bias-unsummed": changed(lambda dx, dW, db, dy, x, weight: (dx, dW, dy)),
    },
    unusual={"einsum": einsum, "ones": column_of_ones, "loops": loops},
)
