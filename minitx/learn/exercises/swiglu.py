"""SwiGLU: one projection, through SiLU, decides how much of another passes."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import sigmoid, with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"gate": 1.5 * rng.standard_normal((5, 7)), "up": rng.standard_normal((5, 7))}


def forward_cases(rng: Rng) -> Cases:
    return {"large": {"gate": 1000 * rng.standard_normal((3, 5)), "up": rng.standard_normal((3, 5))}}


def adversarial(rng: Rng) -> Cases:
    return {
        "far": {"gate": np.array([-745.0, -50.0, 50.0, 745.0]), "up": rng.standard_normal(4)},
        "zero": {"gate": np.zeros((3, 1)), "up": rng.standard_normal((3, 1))},
    }


def terms(dy: Array, gate: Array, up: Array) -> dict[str, list[Array]]:
    s = sigmoid(gate)
    return {"gate": [dy * up * s, dy * up * gate * s * (1 - s)]}


def intermediates(dy: Array, gate: Array, up: Array) -> dict[str, Array]:
    s = sigmoid(gate)
    return {"s": s, "a": gate * s, "da": dy * up}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def silu(x: Array) -> Any:
    return x * sigmoid(x)


def forward(gate: Array, up: Array) -> Any:
    return silu(gate) * up


def right(dy: Array, gate: Array, up: Array) -> tuple[Array, Array]:
    s = sigmoid(gate)
    return dy * up * (s + gate * s * (1 - s)), dy * silu(gate)


def changed(change: Any) -> Any:
    """change(dgate, dup, dy, gate, up, σ(gate)) in place of the right gradients."""
    return with_backward(forward, lambda dy, g, u: change(*right(dy, g, u), dy, g, u, sigmoid(g)))


def glu(gate: Array, up: Array) -> Any:
    s = sigmoid(gate)
    return s * up, lambda dy: (dy * up * s * (1 - s), dy * s)


def exchanged(gate: Array, up: Array) -> Any:
    return forward(up, gate), lambda dy: right(dy, up, gate)[::-1]


def printed(gate: Array, up: Array) -> Any:
    """1 / (1 + e^-x) as it stands, with e^-x kept from overflowing."""
    e = np.exp(-np.clip(gate, -700, None))
    y = gate * up / (1 + e)

    def backward(dy: Array) -> Any:
        dgate = dy * up * (1 / (1 + e) + gate * e / (1 + e) / (1 + e))
        return dgate, dy * gate / (1 + e)

    return y, backward


def by_tanh(gate: Array, up: Array) -> Any:
    """σ(x) = (1 + tanh(x / 2)) / 2, and silu'(x) = σ + silu (1 - σ)."""
    s = (1 + np.tanh(gate / 2)) / 2
    a = gate * s
    return a * up, lambda dy: (dy * up * (s + a * (1 - s)), dy * a)


EXERCISE = Exercise(
    slug="swiglu",
    part=1,
    minutes=10,
    needs=("multiply", "gelu"),
    idioms=("np.exp(-np.abs(x))", "np.where(x >= 0, a, b)"),
    equation="s = σ(gate) = 1 / (1 + e^-gate);  a = gate * s;  y = a * up",
    shapes={"gate": "(..., d_ff)", "up": "(..., d_ff)", "s, a": "(..., d_ff)", "y": "(..., d_ff)", "dy": "(..., d_ff)"},
    function="swiglu",
    signature="gate, up",
    gradients=("gate", "up"),
    op="swiglu",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "exchanged": exchanged,
        "glu": glu,
        "up-forgotten": changed(lambda dg, du, dy, g, u, s: (dy * (s + g * s * (1 - s)), du)),
        "up-by-sigmoid": changed(lambda dg, du, dy, g, u, s: (dg, dy * s)),
        "no-cotangent-in-up": changed(lambda dg, du, dy, g, u, s: (dg, g * s)),
        "slope-not-squared": changed(lambda dg, du, dy, g, u, s: (dy * u * (s + g * (1 - s)), du)),
        "slope-of-s-squared": changed(lambda dg, du, dy, g, u, s: (dy * u * (s + g * s * s), du)),
        "slope-is-s": changed(lambda dg, du, dy, g, u, s: (dy * u * (s + g * s), du)),
        "gate-inside-forgotten": changed(lambda dg, du, dy, g, u, s: (dy * u * (s + s * (1 - s)), du)),
        "relu-slope": changed(lambda dg, du, dy, g, u, s: (dy * u * (g > 0), du)),
    },
    unusual={"printed": printed, "tanh": by_tanh},
)
