"""Break it: a wrong backward that the usual check accepts."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Exercise, Rng, Said
from minitx.learn.exercises.pieces import softmax, softmax_backward
from minitx.op import Array


def broken(x: Array) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)

    def backward(dy: Array) -> Array:
        dx: Array = y * (dy - dy.mean(-1, keepdims=True))  # right for y.sum(), and for nothing else
        return dx

    return y, backward


def judge(function: Any, rng: Rng) -> Said | None:
    x = rng.standard_normal((3, 5))
    answer = function(x.copy())
    if not (isinstance(answer, tuple) and len(answer) == 2 and callable(answer[1])):
        return "pair", {}
    y, backward = answer
    if np.shape(y) != x.shape or not np.allclose(y, softmax(x), rtol=1e-9, atol=0):
        return "forward", {}
    ones, dy, dz = np.ones(x.shape), rng.standard_normal(x.shape), rng.standard_normal(x.shape)
    g = backward(ones.copy())
    if np.shape(g) != x.shape:
        return "shape", {"given": np.shape(g), "right": x.shape}
    if not np.abs(g).max() < 1e-9:
        return "caught", {"largest": float(np.abs(g).max())}
    if np.allclose(backward(dy.copy()), softmax_backward(y, dy), rtol=1e-6, atol=1e-9):
        return "right", {}
    one, two, both = (np.asarray(backward(d.copy())) for d in (dy, dz, 2 * dy - 3 * dz))
    if not np.allclose(both, 2 * one - 3 * two, rtol=1e-7, atol=1e-9):
        return "nonlinear", {}
    return None


def with_backward_of(backward: Any) -> Any:
    """The right value, with backward(y, dy)."""
    return lambda x: (softmax(x), lambda dy: backward(softmax(x), dy))


EXERCISE = Exercise(
    slug="break-it",
    part=0,
    minutes=10,
    needs=("vjp-check",),
    idioms=("x.sum(-1, keepdims=True)", "x.mean(-1, keepdims=True)"),
    equation="y_i = exp(x_i) / Σ_j exp(x_j)",
    shapes={"x": "(N, n)", "y": "(N, n)", "dy": "(N, n)"},
    function="softmax",
    signature="x",
    gradients=("x",),
    solution=broken,
    arguments=lambda rng: {"x": rng.standard_normal((3, 5))},
    judge=judge,
    mutants={
        "pair": softmax,
        "forward": lambda x: (np.exp(x), lambda dy: 0 * dy),
        "shape": with_backward_of(lambda y, dy: 0 * dy[0]),
        "caught": with_backward_of(lambda y, dy: y * dy),
        "right": with_backward_of(softmax_backward),
        "nonlinear": with_backward_of(lambda y, dy: softmax_backward(y, dy) * dy),
    },
    unusual={
        "nothing": with_backward_of(lambda y, dy: 0 * dy),
        "twice": with_backward_of(lambda y, dy: 2 * softmax_backward(y, dy)),
        "centred": with_backward_of(lambda y, dy: dy - dy.mean(-1, keepdims=True)),
    },
)
