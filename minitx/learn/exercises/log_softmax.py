"""Log-softmax: log-probabilities without a probability that could round to 0."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.standard_normal((2, 3, 5))}


def forward_cases(rng: Rng) -> Cases:
    x = rng.standard_normal((3, 5))
    return {"large": {"x": 1000 * x}, "shifted": {"x": x - 3000}}


def adversarial(rng: Rng) -> Cases:
    certain = rng.standard_normal((3, 5))
    certain[:, 2] += 900
    return {
        "ties": {"x": np.repeat(rng.standard_normal((3, 1)), 5, axis=1)},
        "one": {"x": rng.standard_normal((3, 1))},
        "certain": {"x": certain},
    }


def terms(dy: Array, x: Array) -> dict[str, list[Array]]:
    return {"x": [dy, -softmax(x) * dy.sum(-1, keepdims=True)]}


def intermediates(dy: Array, x: Array) -> dict[str, Array]:
    return {"y": forward(x)}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array) -> Any:
    c = x - x.max(-1, keepdims=True)
    return c - np.log(np.exp(c).sum(-1, keepdims=True))


def weighted(dy: Array, x: Array) -> Any:
    p = softmax(x)
    return dy - p * (dy * p).sum(-1, keepdims=True)


def log_for_p(dy: Array, x: Array) -> Any:
    return dy - forward(x) * dy.sum(-1, keepdims=True)


def unstable(x: Array) -> Any:
    with np.errstate(all="ignore"):
        y = np.log(softmax(x))
    return y, lambda dy: dy - softmax(x) * dy.sum(-1, keepdims=True)


def two_steps(x: Array) -> Any:
    """x minus its log-sum-exp, each with its own backward."""
    top = x.max(-1)
    lse = top + np.log(np.exp(x - top[..., None]).sum(-1))

    def backward(dy: Array) -> Any:
        dlse = -np.einsum("...i->...", dy)
        return dy + dlse[..., None] * np.exp(x - lse[..., None])

    return x - lse[..., None], backward


def jacobian(x: Array) -> Any:
    p = softmax(x)
    J = np.eye(x.shape[-1]) - p[..., None, :]  # ∂y_i/∂x_j, (..., n, n)
    return forward(x), lambda dy: (dy[..., None, :] @ J)[..., 0, :]


EXERCISE = Exercise(
    slug="log-softmax",
    part=1,
    minutes=30,
    needs=("softmax", "log"),
    idioms=("x.max(-1, keepdims=True)", "dy.sum(-1, keepdims=True)"),
    equation="y_i = x_i - log Σ_j exp(x_j)",
    shapes={"x": "(..., n)", "y": "(..., n)", "dy": "(..., n)"},
    function="log_softmax",
    signature="x",
    gradients=("x",),
    op="log_softmax",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "weighted": with_backward(forward, weighted),
        "log-for-p": with_backward(forward, log_for_p),
        "whole-sum": with_backward(forward, lambda dy, x: dy - softmax(x) * dy.sum()),
        "mean": with_backward(forward, lambda dy, x: dy - softmax(x) * dy.mean(-1, keepdims=True)),
        "other-axis": with_backward(forward, lambda dy, x: dy - softmax(x) * dy.sum(0, keepdims=True)),
        "uniform": with_backward(forward, lambda dy, x: dy - dy.mean(-1, keepdims=True)),
        "log-of-softmax": unstable,
    },
    unusual={"two-steps": two_steps, "jacobian": jacobian},
)
