"""The bent lines: tanh, sigmoid, erf, ReLU, GELU (both forms) and SiLU."""
from __future__ import annotations

import math

import numpy as np

from minitx.kernels.erfc import erf as erf_values
from minitx.kernels.erfc import erfc
from minitx.op import Array, Forward, op


@op
def tanh(x: Array) -> Forward:
    """
    for: squashing to (-1, 1).

    equation:
        y = (e^x - e^-x) / (e^x + e^-x)

    backward:
        dx = dy * (1 - y²)

    saved: y.

    goes wrong: nothing that matters. (Near y = ±1 the difference 1 - y² keeps few digits: in float32 its absolute
        error is 1e-7, also where the slope is smaller than that.)
    """
    y = np.tanh(x)

    def backward(dy: Array) -> Array:
        dx: Array = dy * (1 - y * y)
        return dx

    return y, backward


@op
def sigmoid(x: Array) -> Forward:
    """
    for: squashing to (0, 1): a gate, or the probability of one of two classes.

    equation:
        y = 1 / (1 + e^-x)

    by hand:
        >>> sigmoid(np.log([1.0, 3.0])).numpy()
        array([0.5 , 0.75])

    backward:
        dx = dy * y (1 - y)

    why: with r = e^-|x| one has y = 1 / (1+r) for x >= 0 and r / (1+r) for x < 0, so that y (1 - y) = r / (1+r)² on
        both sides. In this form nothing overflows, and nothing is lost at the right end, where 1 - y rounds to 0.

    saved: r / (1+r)².

    goes wrong: 1 / (1 + exp(-x)) as it stands overflows for x < -88.7 in float32, with the right value 0 and a warning.
    """
    y, slope = _sigmoid(x)

    def backward(dy: Array) -> Array:
        return dy * slope

    return y, backward


@op
def erf(x: Array) -> Forward:
    """
    for: the exact GELU: the share of a normal distribution within x of the middle, at √2 x standard deviations.

    equation:
        y = 2/√π ∫_0^x exp(-u²) du

    backward:
        dx = dy * 2/√π exp(-x²)

    why: the derivative of an integral is its integrand.

    saved: x.

    source: minitx/kernels/erfc.py computes it, once for definitions and kernels.
    """
    y = erf_values(x)

    def backward(dy: Array) -> Array:
        near = np.clip(x, -28, 28)  # x² cannot overflow, and exp(-28²) is 0
        dx: Array = dy * (2 / math.sqrt(math.pi) * np.exp(-near * near))
        return dx

    return y, backward


@op
def relu(x: Array) -> Forward:
    """
    for: the activation of the original Transformer: keep what is positive.

    equation:
        y = max(x, 0)

    backward:
        dx = dy where x > 0, else 0

    why: at x = 0 any slope from 0 to 1 is a subgradient; 0 is taken (as PyTorch does).

    saved: y: it is positive exactly where x is.

    goes wrong: a unit that is negative on all data gets no gradient any more and stays dead.

    source: Nair and Hinton 2010, "Rectified linear units improve restricted Boltzmann machines".
    """
    y = np.maximum(x, 0)

    def backward(dy: Array) -> Array:
        return np.where(y > 0, dy, 0)

    return y, backward


@op
def gelu(x: Array, approximate: str = "none") -> Forward:
    """
    for: the activation of BERT and GPT: ReLU with its corner rounded.

    equation:
        y = x Φ(x)                           approximate="none"
        y = x σ(2 √(2/π) (x + 0.044715 x³))  approximate="tanh"

    where:
        Φ(x) = erfc(-x/√2) / 2  the share of a standard normal distribution below x
        φ(x) = exp(-x²/2) / √(2π)  its density
        σ(u) = 1 / (1 + e^-u)

    by hand:
        >>> gelu(np.array([-50.0, 0.0, 50.0])).numpy()
        array([-0.,  0., 50.])

    backward:
        none: dx = dy * (Φ(x)             (term 1)
                       + x φ(x))          (term 2)
        tanh: dx = dy * (σ(u)             (term 1)
                       + x σ'(u) du/dx)   (term 2)   u = 2 √(2/π) (x + 0.044715 x³)

    why: the product rule, with Φ' = φ. The second form is written 0.5 x (1 + tanh(u/2)) in the paper; since
        (1 + tanh(u/2)) / 2 = σ(u) it is the same function, and σ does not cancel for negative x.

    saved: x, and what multiplies it: Φ(x) or σ(u).

    cost: forward an exp and a polynomial an element ("none") or an exp ("tanh"); backward one exp more ("none").

    differs from: nothing in value, but these are two functions that differ by up to 5e-4: GELU(1) is 0.841345 or
        0.841192. Models are trained with one of them (GPT-2: tanh).

    goes wrong: 1 + erf(x/√2) cancels: float32 gives GELU(-6) = 0 instead of -5.9e-9. x³ overflows for large x, and
        inf * 0 makes the gradient NaN.

    exercise: gelu

    source: Hendrycks and Gimpel 2016, "Gaussian error linear units (GELUs)".
    """
    near = np.clip(x, -40, 40)  # beyond, the share is 0 or 1 to the last digit; and no power overflows
    if approximate == "none":
        share = 0.5 * erfc(near * -math.sqrt(0.5))  # Φ(x)
    elif approximate == "tanh":
        a, b = 2 * math.sqrt(2 / math.pi), 0.044715
        share, dsigma = _sigmoid(a * (near + b * near * near * near))  # σ(u), σ'(u)
    else:
        raise ValueError(f'gelu: approximate is "none" (exact, by erf) or "tanh", not {approximate!r}')
    y = np.maximum(x, -40) * share  # the limit at -∞ is 0, and -inf * 0 would be NaN

    def backward(dy: Array) -> Array:
        # y = x * share(x)
        if approximate == "none":
            dshare = np.exp(-0.5 * near * near) * (1 / math.sqrt(2 * math.pi))  # φ(x)
        else:
            dshare = dsigma * (a * (1 + 3 * b * near * near))  # σ'(u) du/dx
        dx: Array = dy * (share + near * dshare)  # term 1 + term 2
        return dx

    return y, backward


@op
def silu(x: Array) -> Forward:
    """
    for: a smooth ReLU, also called swish; the activation inside SwiGLU.

    equation:
        y = x σ(x)

    backward:
        dx = dy * (σ(x)       (term 1)
                 + x σ'(x))   (term 2)

    why: the product rule; σ' as in sigmoid.

    saved: x, σ(x) and σ'(x).

    source: Elfwing et al. 2018, "Sigmoid-weighted linear units"; Ramachandran et al. 2017 (swish).
    """
    near = np.clip(x, -800, 800)  # beyond, σ is 0 or 1 and σ' is 0, in float64 too
    gate, dgate = _sigmoid(near)
    y = np.maximum(x, -800) * gate  # the limit at -∞ is 0, and -inf * 0 would be NaN

    def backward(dy: Array) -> Array:
        # y = x * gate(x)
        dx: Array = dy * (gate + near * dgate)  # term 1 + term 2
        return dx

    return y, backward


def _sigmoid(x: Array) -> tuple[Array, Array]:
    """σ(x) and σ'(x), each to full relative accuracy at both ends."""
    r = np.exp(-np.abs(x))
    y = np.exp(np.minimum(x, 0)) / (1 + r)  # 1 or r above the line
    return y, r / ((1 + r) * (1 + r))
