"""RMSNorm: one statistic instead of two, and one term fewer."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def draw(rng: Rng, x: Array, eps: float = 0.02) -> Arguments:
    return {"x": x, "weight": rng.standard_normal(x.shape[-1]), "eps": eps}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, rng.standard_normal((2, 5, 7)))


def forward_cases(rng: Rng) -> Cases:
    return {"large": draw(rng, 1e10 * rng.standard_normal((3, 7)))}


def adversarial(rng: Rng) -> Cases:
    return {
        "zeros": draw(rng, np.zeros((3, 7)), 1e-6),
        "one-feature": draw(rng, rng.standard_normal((3, 1))),
        "vector": draw(rng, rng.standard_normal(7)),
        "far-from-zero": draw(rng, 100 + rng.standard_normal((5, 3)), 1e-12),
    }


def terms(dy: Array, x: Array, weight: Array, eps: float) -> dict[str, list[Array]]:
    r = inverse(x, eps)
    dxhat = dy * weight
    return {"x": [dxhat * r, -x * r * mean(dxhat * x * r) * r]}


def intermediates(dy: Array, x: Array, weight: Array, eps: float) -> dict[str, Array]:
    return {"xhat": x * inverse(x, eps), "dxhat": dy * weight}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def mean(x: Array) -> Any:
    return x.mean(-1, keepdims=True)


def inverse(x: Array, eps: float) -> Any:
    """1/ρ."""
    return 1 / np.sqrt(mean(x * x) + eps)


def over_rows(g: Array) -> Any:
    return g.reshape(-1, g.shape[-1]).sum(0)


def forward(x: Array, weight: Array, eps: float) -> Any:
    return x * inverse(x, eps) * weight


def changed_dx(change: Any) -> Any:
    """dx = change(dy, x, weight, x̂, r)."""

    def backward(dy: Array, x: Array, weight: Array, eps: float) -> Any:
        r = inverse(x, eps)
        return change(dy, x, weight, x * r, r), over_rows(dy * x * r)

    return with_backward(forward, backward)


def changed_gain(change: Any) -> Any:
    """dw = change(dy, x, x̂)."""

    def backward(dy: Array, x: Array, weight: Array, eps: float) -> Any:
        r = inverse(x, eps)
        xhat, d = x * r, dy * weight
        return r * (d - xhat * mean(d * xhat)), change(dy, x, xhat)

    return with_backward(forward, backward)


def gain_forgotten(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    return r * (dy - xhat * mean(dy * xhat))


def sum_for_mean(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - xhat * (d * xhat).sum(-1, keepdims=True))


def not_normalised(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - x * mean(d * x))


def scale_forgotten(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return d - xhat * mean(d * xhat)


def layer_norms(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d) - xhat * mean(d * xhat))


def gain_afterwards(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    return gain_forgotten(dy, x, weight, xhat, r) * weight


def over_other_axes(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    p = (d * xhat).mean(0, keepdims=True) if d.ndim > 1 else d * xhat
    return r * (d - xhat * p)


def mean_of_dxhat(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - xhat * mean(d))


def product_only(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d * xhat))


def not_averaged(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - xhat * d * xhat)


def last_unscaled(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d) - xhat * mean(d * xhat)


def one_plus(x: Array, weight: Array, eps: float) -> Any:
    """The gain 1 + w: another convention."""
    r = inverse(x, eps)
    xhat = x * r

    def backward(dy: Array) -> Any:
        d = dy * (1 + weight)
        return r * (d - xhat * mean(d * xhat)), over_rows(dy * xhat)

    return xhat * (1 + weight), backward


def step_by_step(x: Array, weight: Array, eps: float) -> Any:
    n = x.shape[-1]
    rho = np.sqrt((x * x).sum(-1, keepdims=True) / n + eps)

    def backward(dy: Array) -> Any:
        dq = dy * weight
        drho = -(dq * x).sum(-1, keepdims=True) / rho**2
        dx = dq / rho + drho * x / (n * rho)
        return dx, (dy * x / rho).sum(tuple(range(x.ndim - 1)))

    return x / rho * weight, backward


def row_by_row(x: Array, weight: Array, eps: float) -> Any:
    """One matrix a row: the Jacobian of x / ρ."""
    n, shape = x.shape[-1], x.shape
    rows = x.reshape(-1, n)
    rho = np.sqrt(np.einsum("ri,ri->r", rows, rows) / n + eps)

    def backward(dy: Array) -> Any:
        dy = dy.reshape(-1, n)
        dx = np.empty(rows.shape)
        for i, row in enumerate(rows):
            J = (np.eye(n) - np.outer(row, row) / (n * rho[i] ** 2)) / rho[i]
            dx[i] = J @ (weight * dy[i])
        return dx.reshape(shape), np.einsum("ri,ri,r->i", dy, rows, 1 / rho)

    return (rows / rho[:, None] * weight).reshape(shape), backward


EXERCISE = Exercise(
    slug="rms-norm",
    part=1,
    minutes=30,
    needs=("layer-norm",),
    idioms=("(x * x).mean(-1, keepdims=True)",),
    equation="ρ = √(mean(x²) + ε);  x̂ = x / ρ;  y = w * x̂",
    shapes={
        "x": "(..., n)", "weight": "(n,)  w", "eps": "ε", "ρ": "(..., 1)", "xhat": "(..., n)  x̂", "y": "(..., n)",
        "dy": "(..., n)",
    },
    function="rms_norm",
    signature="x, weight, eps=1e-6",
    gradients=("x", "weight"),
    op="rms_norm",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "gain-forgotten": changed_dx(gain_forgotten),
        "gain-afterwards": changed_dx(gain_afterwards),
        "sum": changed_dx(sum_for_mean),
        "not-normalised": changed_dx(not_normalised),
        "scale-forgotten": changed_dx(scale_forgotten),
        "other-axes": changed_dx(over_other_axes),
        "mean-of-dxhat": changed_dx(mean_of_dxhat),
        "product-only": changed_dx(product_only),
        "not-averaged": changed_dx(not_averaged),
        "last-unscaled": changed_dx(last_unscaled),
        "layer-norm": changed_dx(layer_norms),
        "gain-of-x": changed_gain(lambda dy, x, xhat: over_rows(dy * x)),
        "gain-averaged": changed_gain(lambda dy, x, xhat: over_rows(dy * xhat) * x.shape[-1] / x.size),
        "one-plus": one_plus,
    },
    unusual={"steps": step_by_step, "jacobian": row_by_row},
)  # fmt: skip
