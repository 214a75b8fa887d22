"""LayerNorm: mean and variance are made of x, and the gradient has to know it."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def draw(rng: Rng, x: Array, eps: float = 0.02) -> Arguments:
    n = x.shape[-1]
    return {"x": x, "weight": rng.standard_normal(n), "bias": rng.standard_normal(n), "eps": eps}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, rng.standard_normal((2, 5, 7)))


def forward_cases(rng: Rng) -> Cases:
    return {"far-from-zero": draw(rng, rng.standard_normal((3, 7)) + 1e6, 1e-5)}


def adversarial(rng: Rng) -> Cases:
    constant = np.repeat(rng.standard_normal((3, 1)), 7, axis=1)
    return {
        "constant": draw(rng, constant, 1e-5),
        "one-feature": draw(rng, rng.standard_normal((3, 1))),
        "vector": draw(rng, rng.standard_normal(7)),
        "tiny-eps": draw(rng, 5 + rng.standard_normal((5, 3)), 1e-12),
    }


def terms(dy: Array, x: Array, weight: Array, bias: Array, eps: float) -> dict[str, list[Array]]:
    xhat, r = normalised(x, eps)
    dxhat = dy * weight
    return {"x": [dxhat * r, -mean(dxhat) * r, -xhat * mean(dxhat * xhat) * r]}


def intermediates(dy: Array, x: Array, weight: Array, bias: Array, eps: float) -> dict[str, Array]:
    return {"xhat": normalised(x, eps)[0], "dxhat": dy * weight}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def mean(x: Array) -> Any:
    return x.mean(-1, keepdims=True)


def normalised(x: Array, eps: float) -> tuple[Array, Array]:
    """x̂ and 1/√(σ² + ε)."""
    c = x - mean(x)
    r = 1 / np.sqrt(mean(c * c) + eps)
    return c * r, r


def forward(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    return normalised(x, eps)[0] * weight + bias


def over_rows(g: Array) -> Any:
    return g.reshape(-1, g.shape[-1]).sum(0)


def right(dy: Array, x: Array, weight: Array, eps: float) -> tuple[Array, Array, Array]:
    xhat, r = normalised(x, eps)
    dxhat = dy * weight
    dx = r * (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat))
    return dx, over_rows(dy * xhat), over_rows(dy)


def changed_dx(change: Any) -> Any:
    """dx = change(dy, x, weight, x̂, r)."""

    def backward(dy: Array, x: Array, weight: Array, bias: Array, eps: float) -> Any:
        _, dweight, dbias = right(dy, x, weight, eps)
        return change(dy, x, weight, *normalised(x, eps)), dweight, dbias

    return with_backward(forward, backward)


def changed(change: Any) -> Any:
    """change(dx, dγ, dβ, dy, x, x̂) in place of the right gradients."""

    def backward(dy: Array, x: Array, weight: Array, bias: Array, eps: float) -> Any:
        return change(*right(dy, x, weight, eps), dy, x, normalised(x, eps)[0])

    return with_backward(forward, backward)


def rows(x: Array) -> Any:
    return x.size // x.shape[-1]


def gain_forgotten(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    return r * (dy - mean(dy) - xhat * mean(dy * xhat))


def gain_afterwards(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    return gain_forgotten(dy, x, weight, xhat, r) * weight


def sums(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - d.sum(-1, keepdims=True) - xhat * (d * xhat).sum(-1, keepdims=True))


def not_normalised(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d) - x * mean(d * xhat))


def centred_for_normalised(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d, c = dy * weight, x - mean(x)
    return r * (d - mean(d) - c * mean(d * c))


def scale_forgotten(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return d - mean(d) - xhat * mean(d * xhat)


def over_other_axes(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    m = d.mean(0, keepdims=True) if d.ndim > 1 else d
    p = (d * xhat).mean(0, keepdims=True) if d.ndim > 1 else d * xhat
    return r * (d - m - xhat * p)


def mean_of_dxhat(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d) - xhat * mean(d))


def product_only(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d) - mean(d * xhat))


def not_averaged(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d) - xhat * d * xhat)


def last_unscaled(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d)) - xhat * mean(d * xhat)


def not_centred_inside(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d) - xhat * mean(d * x * r))


def not_centred_outside(dy: Array, x: Array, weight: Array, xhat: Array, r: Array) -> Any:
    d = dy * weight
    return r * (d - mean(d) - x * r * mean(d * xhat))


def unbiased(x: Array, weight: Array, bias: Array, eps: float) -> Any:
    """The variance by n - 1, forward and backward: another function."""
    n = x.shape[-1]
    c = x - mean(x)
    r = 1 / np.sqrt((c * c).sum(-1, keepdims=True) / max(n - 1, 1) + eps)
    xhat = c * r

    def backward(dy: Array) -> Any:
        d = dy * weight
        dx = r * (d - mean(d) - xhat * (d * xhat).sum(-1, keepdims=True) / max(n - 1, 1))
        return dx, over_rows(dy * xhat), over_rows(dy)

    return xhat * weight + bias, backward


def eps_outside(x: Array, weight: Array, bias: Array, eps: float) -> Any:
    c = x - mean(x)
    s = np.sqrt(mean(c * c))
    xhat = c / (s + eps)

    def backward(dy: Array) -> Any:
        d = dy * weight
        through_s = c * mean(d * xhat) / np.where(s == 0, 1, s)
        return (d - mean(d) - through_s) / (s + eps), over_rows(dy * xhat), over_rows(dy)

    return xhat * weight + bias, backward


def by_columns(x: Array, weight: Array, bias: Array, eps: float) -> Any:
    """Normalised over all that stands in front, as batch normalisation does."""
    shape, n = x.shape, x.shape[-1]
    rows = x.reshape(-1, n)
    c = rows - rows.mean(0)
    r = 1 / np.sqrt((c * c).mean(0) + eps)
    xhat = c * r

    def backward(dy: Array) -> Any:
        dy = dy.reshape(-1, n)
        d = dy * weight
        dx = r * (d - d.mean(0) - xhat * (d * xhat).mean(0))
        return dx.reshape(shape), (dy * xhat).sum(0), dy.sum(0)

    return (xhat * weight + bias).reshape(shape), backward


def step_by_step(x: Array, weight: Array, bias: Array, eps: float) -> Any:
    """The graph node by node: mean, centring, variance, root, quotient."""
    n = x.shape[-1]
    mu = x.sum(-1, keepdims=True) / n
    c = x - mu
    var = (c**2).sum(-1, keepdims=True) / n
    s = np.sqrt(var + eps)
    y = c / s * weight + bias

    def backward(dy: Array) -> Any:
        dq = dy * weight  # y = q γ + β,  q = c / s
        dc = dq / s
        ds = -(dq * c).sum(-1, keepdims=True) / s**2
        dvar = ds / (2 * s)
        dc = dc + dvar * 2 * c / n
        dmu = -dc.sum(-1, keepdims=True)
        dx = dc + dmu / n
        lead = tuple(range(x.ndim - 1))
        return dx, (dy * c / s).sum(lead), dy.sum(lead)

    return y, backward


def projections(x: Array, weight: Array, bias: Array, eps: float) -> Any:
    """Two projections as matrices, row by row."""
    n, shape = x.shape[-1], x.shape
    P = np.eye(n) - 1 / n
    X = x.reshape(-1, n) @ P
    s = np.sqrt(np.einsum("ri,ri->r", X, X) / n + eps)
    U = X / s[:, None]

    def backward(dy: Array) -> Any:
        dy = dy.reshape(-1, n)
        dx = np.empty(X.shape)
        for i, u in enumerate(U):
            dx[i] = (np.eye(n) - np.outer(u, u) / n) @ P @ (dy[i] * weight) / s[i]
        return dx.reshape(shape), np.einsum("ri,ri->i", dy, U), dy.sum(0)

    return (U * weight + bias).reshape(shape), backward


def in_one_formula(x: Array, weight: Array, bias: Array, eps: float) -> Any:
    """The form in which many libraries have it: n dx̂ - Σ dx̂ - x̂ Σ dx̂ x̂, divided by n σ."""
    xhat, r = normalised(x, eps)
    n = x.shape[-1]

    def backward(dy: Array) -> Any:
        d = weight * dy
        dx = r / n * (n * d - d.sum(-1, keepdims=True) - xhat * (d * xhat).sum(-1, keepdims=True))
        return dx, np.einsum("ri,ri->i", dy.reshape(-1, n), xhat.reshape(-1, n)), dy.reshape(-1, n).sum(0)

    return xhat * weight + bias, backward


EXERCISE = Exercise(
    slug="layer-norm",
    part=1,
    minutes=90,
    needs=("mean", "multiply", "linear"),
    idioms=("x.mean(-1, keepdims=True)", "(dy * xhat).reshape(-1, n).sum(0)"),
    equation="μ = mean(x);  σ² = mean((x - μ)²);  x̂ = (x - μ) / √(σ² + ε);  y = γ * x̂ + β",
    shapes={
        "x": "(..., n)", "weight": "(n,)  γ", "bias": "(n,)  β", "eps": "ε", "μ, σ²": "(..., 1)", "xhat": "(..., n)  x̂",
        "y": "(..., n)", "dy": "(..., n)",
    },
    function="layer_norm",
    signature="x, weight, bias, eps=1e-5",
    gradients=("x", "weight", "bias"),
    op="layer_norm",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "gain-forgotten": changed_dx(gain_forgotten),
        "gain-afterwards": changed_dx(gain_afterwards),
        "sums": changed_dx(sums),
        "not-normalised": changed_dx(not_normalised),
        "centred": changed_dx(centred_for_normalised),
        "scale-forgotten": changed_dx(scale_forgotten),
        "other-axes": changed_dx(over_other_axes),
        "mean-of-dxhat": changed_dx(mean_of_dxhat),
        "product-only": changed_dx(product_only),
        "not-averaged": changed_dx(not_averaged),
        "last-unscaled": changed_dx(last_unscaled),
        "not-centred-inside": changed_dx(not_centred_inside),
        "not-centred-outside": changed_dx(not_centred_outside),
        "gain-of-x": changed(lambda dx, dg, db, dy, x, xhat: (dx, over_rows(dy * x), db)),
        "gain-of-dy": changed(lambda dx, dg, db, dy, x, xhat: (dx, db, db)),
        "rows-averaged": changed(lambda dx, dg, db, dy, x, xhat: (dx, dg / rows(x), db / rows(x))),
        "unbiased": unbiased,
        "eps-outside": eps_outside,
        "columns": by_columns,
    },
    unusual={"steps": step_by_step, "projections": projections, "one-formula": in_one_formula},
)  # fmt: skip
