"""Normalisation: every row of features brought to one scale."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.op import Array, Forward, op


@op("x", "weight", "bias")
def layer_norm(x: Array, weight: Array | None = None, bias: Array | None = None, eps: float = 1e-5) -> Forward:
    """
    for: keeping the residual stream's scale in hand: each row is shifted to mean 0, scaled to variance 1, then given a
        learned gain and bias per feature.

    equation:
        μ = mean(x),   σ² = mean((x - μ)²),   x̂ = (x - μ) / √(σ² + ε),   y = γ * x̂ + β      (along the last axis)

    where:
        x       (..., n)
        weight  (n,)   γ, the gain, or None: 1
        bias    (n,)   β, or None: 0
        eps     ε, inside the root: a constant row becomes β, not 0/0

    by hand:
        >>> layer_norm(np.array([1.0, 3.0]), eps=0.0).numpy()
        array([-1.,  1.])

    backward:
        dx̂ = γ * dy, and with means along the last axis
        dx = (dx̂               (term 1)
              - mean(dx̂)       (term 2)
              - x̂ mean(dx̂ x̂)  (term 3)
             ) / √(σ² + ε)
        dγ = Σ_rows dy * x̂
        dβ = Σ_rows dy

    why:
        Moving x_i moves x̂ in three ways: by itself, through μ, and through σ². If μ and σ² were constants, term 1 alone
        would do. The output does not change when x is shifted, so the gradient must have no component along the vector
        of ones: term 2 takes it out. Nor does it change (for ε = 0) when x - μ is scaled, so the gradient must have no
        component along x̂: term 3 takes it out, since x̂ has length √n. Two projections, nothing else.

    saved: x̂ and 1/√(σ² + ε), one number per row.

    cost: about 8 passes over x forward, 8 back; two sums over the rows for γ and β.

    differs from: PyTorch in nothing but the way it is computed: two passes, and a mean that is corrected once.

    goes wrong: mean(x²) - mean(x)² cancels when the mean is large ([40000, 40001, ...] in float32 has variance -128);
        without terms 2 and 3 training still runs, a little worse. At γ = 1 and dy = 1 dx is 0, and it stays 0 when
        term 3 is dropped or anything is multiplied by a wrong factor: check with random ones.

    exercise: layer-norm

    source: Ba, Kiros and Hinton 2016, "Layer normalization", equation 3; Xu et al. 2019, "Understanding and improving
        layer normalization", on terms 2 and 3.
    """
    n = _check(x, weight, bias, eps)
    c = x - _mean(x)
    c -= _mean(c)  # the mean was rounded at the size of x; what is left of it is seen at the size of c
    r = 1 / np.sqrt(_mean(c * c) + float(eps))  # (..., 1)
    xhat = c * r  # (..., n)
    y = xhat if weight is None else xhat * weight
    if bias is not None:
        y = y + bias

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        dx = dweight = dbias = None
        # y = γ * x̂ + β
        dxhat = dy if weight is None else dy * weight
        rows = math.prod(x.shape[:-1])
        if need.weight:
            dweight = (dy * xhat).reshape(rows, n).sum(0)
        if need.bias:
            dbias = dy.reshape(rows, n).sum(0)
        if need.x:
            # x̂ = (x - μ) / √(σ² + ε)
            dx = dxhat - _mean(dxhat)  # term 1, term 2
            dx -= xhat * _mean(dxhat * xhat)  # term 3
            dx *= r
        return dx, dweight, dbias

    return y, backward


@op("x", "weight")
def rms_norm(x: Array, weight: Array | None = None, eps: float = 1e-6, *, offset: float = 0.0) -> Forward:
    """
    for: layer normalisation without the centring: each row is divided by its root mean square, then given a gain.

    equation:
        ρ = √(mean(x²) + ε),   x̂ = x / ρ,   y = (offset + w) * x̂      (along the last axis)

    where:
        x       (..., n)
        weight  (n,)  w, or None: the gain is 1
        eps     ε, inside the root: a row of zeros stays zero
        offset  0, or 1 for models that store what the gain differs from 1 by ("1 + w", w starts at 0)

    by hand:
        >>> rms_norm(np.array([1.0, 7.0]), eps=0.0).numpy()
        array([0.2, 1.4])

    backward:
        dx̂ = (offset + w) * dy
        dx = (dx̂              (term 1)
              - x̂ mean(dx̂ x̂)  (term 2)
             ) / ρ
        dw = Σ_rows dy * x̂

    why:
        x_i moves x̂ by itself and through ρ, which all of the row share: ∂ρ/∂x_i = x_i / (n ρ) = x̂_i / n. So
        dx_i = dx̂_i / ρ - Σ_j dx̂_j x_j / ρ² · x̂_i / n, and x_j / ρ = x̂_j gives term 2. For ε = 0 scaling x does not
        change y, so the gradient has no component along x. There is no third term as in layer_norm: shifting x does
        change y.

    saved: x̂ and 1/ρ, one number per row.

    cost: 4 passes over x forward, 5 back; one sum over the rows for w.

    differs from: layer_norm, in leaving the mean in: rows of mean 0 come out alike. PyTorch's default ε is the dtype's
        machine epsilon; published models say 1e-5 or 1e-6. Where models keep activations in half precision they differ
        in whether x̂ is rounded before or after the gain; here everything is in the dtype of x, at least float32.

    goes wrong: with a "1 + w" model's weights and offset 0 the gain is near 0 and the model says nothing; the other way
        round the gain is near 2. Without term 2 training still runs, a little worse.

    exercise: rms-norm

    source: Zhang and Sennrich 2019, "Root mean square layer normalization"; 1 + w: Gemma Team 2024, "Gemma".
    """
    n = _check(x, weight, None, eps, "rms_norm")
    r = 1 / np.sqrt(_mean(x * x) + float(eps))  # 1/ρ, (..., 1)
    xhat = x * r  # (..., n)
    gain = None if weight is None else weight + float(offset)
    y = xhat if gain is None else xhat * gain

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        dx = dweight = None
        # y = gain * x̂
        dxhat = dy if gain is None else dy * gain
        if need.weight:
            dweight = (dy * xhat).reshape(math.prod(x.shape[:-1]), n).sum(0)
        if need.x:
            # x̂ = x / √(mean(x²) + ε)
            dx = dxhat - xhat * _mean(dxhat * xhat)  # term 1 - term 2
            dx *= r
        return dx, dweight

    return y, backward


def _mean(x: Array) -> Array:
    """Mean along the last axis, which is kept; of nothing it is 0."""
    mean: Array = x.sum(-1, keepdims=True) / max(x.shape[-1], 1)
    return mean


def _check(x: Array, weight: Array | None, bias: Array | None, eps: float, name: str = "layer_norm") -> int:
    """Shapes that fit, or an error; returns n."""
    if x.ndim == 0:
        raise ValueError(f"{name} works along the last axis, and a single number has none")
    n = int(x.shape[-1])
    for what, given in (("weight", weight), ("bias", bias)):
        if given is not None and given.shape != (n,):
            raise ValueError(f"{name}: one {what} per feature, ({n},) for x {x.shape}, not {given.shape}")
    if not eps >= 0:
        raise ValueError(f"{name}: eps is added to a variance or mean square, so it is at least 0, not {eps}")
    return n
