"""A residual branch: x goes two ways, so two gradients come back."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def draw(rng: Rng, rows: int) -> Arguments:
    return {
        "x": rng.standard_normal((rows, 5)),
        "w1": rng.standard_normal((7, 5)) / 2,
        "w2": rng.standard_normal((5, 7)) / 2,
    }


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 3)


def adversarial(rng: Rng) -> Cases:
    shut = draw(rng, 3)
    shut["w2"] = np.zeros((5, 7))
    saturated = draw(rng, 3)
    saturated["w1"] = 100 * saturated["w1"]
    return {"one-row": draw(rng, 1), "shut": shut, "saturated": saturated}


def terms(dy: Array, x: Array, w1: Array, w2: Array) -> dict[str, list[Array]]:
    h = np.tanh(x @ w1.T)
    return {"x": [dy, (dy @ w2 * (1 - h * h)) @ w1]}


def intermediates(dy: Array, x: Array, w1: Array, w2: Array) -> dict[str, Array]:
    h = np.tanh(x @ w1.T)
    dh = dy @ w2
    return {"a": x @ w1.T, "h": h, "dh": dh, "da": dh * (1 - h * h)}


def residual(x: Array, w1: Array, w2: Array) -> Any:
    a = x @ w1.T  # (N, d_ff)
    h = np.tanh(a)
    y = x + h @ w2.T  # (N, d)

    def backward(dy: Array) -> tuple[Array, Array, Array]:
        # y = x + h w2ᵀ
        dx = dy.copy()  # term 1: straight through
        dh = dy @ w2
        dw2 = dy.T @ h
        # h = tanh(a)
        da = dh * (1 - h * h)
        # a = x w1ᵀ
        dw1 = da.T @ x
        dx += da @ w1  # term 2: through the branch
        return dx, dw1, dw2

    return y, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array, w1: Array, w2: Array) -> Any:
    return x + np.tanh(x @ w1.T) @ w2.T


def with_slope(slope: Any) -> Any:
    """da = dh * slope(a, h), all else right."""

    def backward(dy: Array, x: Array, w1: Array, w2: Array) -> Any:
        a = x @ w1.T
        h = np.tanh(a)
        da = dy @ w2 * slope(a, h)
        return dy + da @ w1, da.T @ x, dy.T @ h

    return with_backward(forward, backward)


def before_the_bend(dy: Array, x: Array, w1: Array, w2: Array) -> Any:
    a = x @ w1.T
    da = dy @ w2 * (1 - np.tanh(a) ** 2)
    return dy + da @ w1, da.T @ x, dy.T @ a


def w1_by_x_plus(dy: Array, x: Array, w1: Array, w2: Array) -> Any:
    """y in the place of x."""
    h = np.tanh(x @ w1.T)
    da = dy @ w2 * (1 - h * h)
    return dy + da @ w1, da.T @ (x + h @ w2.T), dy.T @ h


def added_before(dy: Array, x: Array, w1: Array, w2: Array) -> Any:
    """dx's first part goes through the branch as well: dy is counted in both."""
    h = np.tanh(x @ w1.T)
    da = dy @ w2 * (1 - h * h)
    dx = dy + da @ w1
    return dy + dx, da.T @ x, dy.T @ h


def einsum(x: Array, w1: Array, w2: Array) -> Any:
    h = np.tanh(np.einsum("ni,oi->no", x, w1))

    def backward(dy: Array) -> Any:
        dx = np.einsum("nd,do,no,oi->ni", dy, w2, 1 - h**2, w1) + dy
        return dx, np.einsum("nd,do,no,ni->oi", dy, w2, 1 - h**2, x), np.einsum("nd,no->do", dy, h)

    return x + np.einsum("no,do->nd", h, w2), backward


def row_by_row(x: Array, w1: Array, w2: Array) -> Any:
    def backward(dy: Array) -> Any:
        dx, dw1, dw2 = np.zeros(x.shape), np.zeros(w1.shape), np.zeros(w2.shape)
        for n in range(len(x)):
            h = np.tanh(w1 @ x[n])
            J = np.eye(x.shape[1]) + w2 @ np.diag(1 - h * h) @ w1
            dx[n] = J.T @ dy[n]
            dw1 += np.outer((w2.T @ dy[n]) / np.cosh(np.clip(w1 @ x[n], -300, 300)) ** 2, x[n])
            dw2 += np.outer(dy[n], h)
        return dx, dw1, dw2

    return np.array([row + w2 @ np.tanh(w1 @ row) for row in x]), backward


EXERCISE = Exercise(
    slug="residual",
    part=1,
    minutes=30,
    needs=("linear",),
    idioms=("np.tanh(a)", "dx += ..."),
    equation="a = x w1ᵀ;  h = tanh(a);  y = x + h w2ᵀ",
    shapes={
        "x": "(N, d)", "w1": "(d_ff, d)", "w2": "(d, d_ff)", "a": "(N, d_ff)", "h": "(N, d_ff)", "y": "(N, d)",
        "dy": "(N, d)",
    },
    function="residual",
    signature="x, w1, w2",
    gradients=("x", "w1", "w2"),
    solution=residual,
    arguments=arguments,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "no-slope": with_slope(lambda a, h: 1.0),
        "slope-of-value": with_slope(lambda a, h: 1 - np.tanh(h) ** 2),
        "slope-of-input": with_slope(lambda a, h: 1 - a * a),
        "before-the-bend": with_backward(forward, before_the_bend),
        "output-for-input": with_backward(forward, w1_by_x_plus),
        "skip-twice": with_backward(forward, added_before),
    },
    unusual={"einsum": einsum, "rows": row_by_row},
)  # fmt: skip
