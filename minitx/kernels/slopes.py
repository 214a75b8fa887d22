"""The activations inside kernels: the value and the slope of each, together, since they share most of their work.

A forward pass that stores the slopes instead of x leaves its backward pass a single product, dx = dy * slope.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from minitx.kernels import vectormath
from minitx.kernels.compile import exact
from minitx.kernels.vectormath import const, exp, exp_or_0, max_nan, min_nan, normal, sigmoids


@exact
def relu(x):
    zero = const(x, 0.0, 0.0)
    return max_nan(x, zero), const(x, 1.0, 1.0) if x > zero else zero


@exact
def gelu(x):
    """x Φ(x); slope Φ(x) + x φ(x). Beyond ±40 the share is 0 or 1 to the last digit, and -inf * 0 is avoided."""
    share, density = normal(x)
    below = max_nan(x, const(x, -40.0, -40.0))
    return below * share, share + min_nan(below, const(x, 40.0, 40.0)) * density


@exact
def gelu_tanh(x):
    """x σ(u) with u = a (x + b x³); slope σ(u) + x σ'(u) du/dx."""
    a, b = const(x, 1.5957691216057308, 1.5957691216057308), const(x, 0.044715, 0.044715)  # 2 √(2/π)
    below = max_nan(x, const(x, -40.0, -40.0))
    v = min_nan(below, const(x, 40.0, 40.0))
    u = a * (v + b * v * v * v)
    share, other = sigmoids(u, exp_or_0(-abs(u)))
    return below * share, share + v * share * other * a * (const(x, 1.0, 1.0) + const(x, 3.0, 3.0) * b * v * v)


@exact
def silu(x):
    """x σ(x); slope σ(x) + x σ'(x)."""
    below = max_nan(x, const(x, -800.0, -800.0))
    v = min_nan(below, const(x, 800.0, 800.0))
    share, other = sigmoids(v, exp(-abs(v)))
    return below * share, share + v * share * other


@exact
def tanh(x):
    """tanh(x); slope 1 - tanh(x)²."""
    y = vectormath.tanh(x)
    return y, const(x, 1.0, 1.0) - y * y


@exact
def sigmoid(x):
    """σ(x); slope σ(x) σ(-x), which loses nothing at either end."""
    y, other = sigmoids(x, exp(-abs(x)))
    return y, y * other


@exact
def erf(x):
    """erf(x); slope 2/√π exp(-x²)."""
    near = min_nan(max_nan(x, const(x, -28.0, -28.0)), const(x, 28.0, 28.0))  # x² is finite, exp(-28²) is 0
    return vectormath.erf(x), const(x, 1.1283791670955126, 1.1283791670955126) * exp_or_0(-near * near)
