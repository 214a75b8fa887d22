"""Softmax along the last axis: the outputs of a row share their sum."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.standard_normal((2, 3, 5))}


def forward_cases(rng: Rng) -> Cases:
    x = rng.standard_normal((3, 5))
    blind = x.copy()
    blind[0, 1] = blind[2, 3] = -np.inf
    return {"large": {"x": 1000 * x}, "shifted": {"x": x - 3000}, "masked": {"x": blind}}


def adversarial(rng: Rng) -> Cases:
    ties = np.repeat(rng.standard_normal((3, 1)), 5, axis=1)
    blind = rng.standard_normal((3, 5))
    blind[1] = -np.inf
    return {"ties": {"x": ties}, "one": {"x": rng.standard_normal((3, 1))}, "blind": {"x": blind}}


def terms(dy: Array, x: Array) -> dict[str, list[Array]]:
    y = softmax(x)
    return {"x": [y * dy, -y * (dy * y).sum(-1, keepdims=True)]}


def intermediates(dy: Array, x: Array) -> dict[str, Array]:
    return {"y": softmax(x)}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def independent(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: y * (1 - y) * dy


def cotangent_forgotten(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: y * (dy - (y * y).sum(-1, keepdims=True))


def bare_sum(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: y * (dy - dy.sum(-1, keepdims=True))


def mean_of_dy(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: y * (dy - dy.mean(-1, keepdims=True))


def whole_sum(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: y * (dy - (dy * y).sum())


def log_softmax_backward(x: Array) -> Any:
    y = softmax(x)
    return y, lambda dy: dy - y * dy.sum(-1, keepdims=True)


def jacobian(x: Array) -> Any:
    """n x n for every row: more memory, the same numbers."""
    top = x.max(-1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0))
    y = e / np.maximum(e.sum(-1, keepdims=True), np.finfo(float).tiny)
    J = y[..., None] * np.eye(x.shape[-1]) - y[..., None] * y[..., None, :]
    return y, lambda dy: np.einsum("...i,...ij->...j", dy, J)


def loops(x: Array) -> Any:
    rows = x.reshape(-1, x.shape[-1])
    y = np.zeros_like(rows)
    for i, row in enumerate(rows):
        if np.isfinite(row).any():
            e = np.exp(row - row.max())
            y[i] = e / e.sum()

    def backward(dy: Array) -> Array:
        dx = np.zeros_like(y)
        for i, (yi, di) in enumerate(zip(y, dy.reshape(y.shape))):
            for j in range(len(yi)):
                dx[i, j] = sum(di[k] * yi[k] * ((k == j) - yi[j]) for k in range(len(yi)))
        return dx.reshape(x.shape)

    return y.reshape(x.shape), backward


EXERCISE = Exercise(
    slug="softmax",
    part=1,
    minutes=30,
    needs=("exp", "sum"),
    idioms=("x.max(-1, keepdims=True)", "np.where(np.isfinite(top), top, 0)"),
    equation="y_i = exp(x_i) / Σ_j exp(x_j)",
    shapes={"x": "(..., n)", "y": "(..., n)", "dy": "(..., n)"},
    function="softmax",
    signature="x",
    gradients=("x",),
    op="softmax",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "independent": independent,
        "cotangent-forgotten": cotangent_forgotten,
        "bare-sum": bare_sum,
        "mean-of-dy": mean_of_dy,
        "whole-sum": whole_sum,
        "log-softmax": log_softmax_backward,
    },
    unusual={"jacobian": jacobian, "loops": loops},
)
