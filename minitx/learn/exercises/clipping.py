"""Clipping by the global norm: one factor for all gradients, so that the step keeps its direction."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.op import Array


def draw(rng: Rng, size: float, max_norm: float) -> Arguments:
    return {
        "g1": size * rng.standard_normal((3, 5)),
        "g2": size * rng.standard_normal(7),
        "max_norm": max_norm,
    }


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 1.0, 0.7)


def adversarial(rng: Rng) -> Cases:
    zero = draw(rng, 0.0, 1.0)
    one = draw(rng, 1.0, 2.0)
    one["g2"] *= 0.001  # one long, one short
    return {
        "short": draw(rng, 0.01, 1.0),
        "zero": zero,
        "unequal": one,
        "huge": draw(rng, 1e200, 1.0),
        "nothing": draw(rng, 1.0, 0.0),
    }


def clip(g1: Array, g2: Array, max_norm: float) -> Any:
    top = max(np.abs(g1).max(), np.abs(g2).max())
    if top == 0:
        return g1.copy(), g2.copy(), 0.0
    norm = top * math.sqrt(((g1 / top) ** 2).sum() + ((g2 / top) ** 2).sum())  # no square overflows
    factor = min(1.0, max_norm / (norm + 1e-6))
    return factor * g1, factor * g2, norm


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def with_factors(norm: Any, factors: Any) -> Any:
    """Another norm(g1, g2), or other factors(norm, max_norm, g1, g2)."""

    def function(g1: Array, g2: Array, max_norm: float) -> Any:
        n = norm(g1, g2)
        with np.errstate(all="ignore"):
            f1, f2 = factors(n, max_norm, g1, g2)
        return f1 * g1, f2 * g2, n

    return function


def length(*gradients: Array) -> float:
    top = max(float(np.abs(g).max()) for g in gradients)
    return top * math.sqrt(sum(float(((g / top) ** 2).sum()) for g in gradients)) if top else 0.0


def usual(norm: float, max_norm: float, *gradients: Array) -> Any:
    return (min(1.0, max_norm / (norm + 1e-6)),) * 2


def each_by_itself(norm: float, max_norm: float, *gradients: Array) -> Any:
    return tuple(min(1.0, max_norm / (length(g) + 1e-6)) for g in gradients)


def overflowing(*gradients: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(sum((g**2).sum() for g in gradients)))


def entry_by_entry(g1: Array, g2: Array, max_norm: float) -> Any:
    return np.clip(g1, -max_norm, max_norm), np.clip(g2, -max_norm, max_norm), length(g1, g2)


def hypot(g1: Array, g2: Array, max_norm: float) -> Any:
    norm = math.hypot(*g1.ravel(), *g2.ravel())
    if norm + 1e-6 <= max_norm:
        return g1 * 1, g2 * 1, norm
    return g1 * (max_norm / (norm + 1e-6)), g2 * (max_norm / (norm + 1e-6)), norm


def one_vector(g1: Array, g2: Array, max_norm: float) -> Any:
    """All gradients as one vector, cut apart afterwards."""
    g = np.concatenate([g1.ravel(), g2.ravel()])
    top = np.abs(g).max() or 1.0
    norm = top * np.linalg.norm(g / top)
    g = g * np.minimum(1, max_norm / (norm + 1e-6))
    return g[: g1.size].reshape(g1.shape), g[g1.size :].reshape(g2.shape), norm


EXERCISE = Exercise(
    slug="clipping",
    part=1,
    minutes=10,
    needs=("adamw",),
    idioms=("(g * g).sum()", "min(1.0, a / b)"),
    equation="norm = √(Σ_i g1_i² + Σ_i g2_i²);  factor = min(1, max_norm / (norm + 1e-6));  g ← factor g",
    shapes={"g1, g2": "(...)", "max_norm": "()", "norm": "()"},
    function="clip",
    signature="g1, g2, max_norm",
    results=("g1", "g2", "norm"),
    solution=clip,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "each-by-itself": with_factors(length, each_by_itself),
        "entry-by-entry": entry_by_entry,
        "short-stretched": with_factors(length, lambda n, m, *g: (m / (n + 1e-6),) * 2),
        "sum-of-norms": with_factors(lambda a, b: length(a) + length(b), usual),
        "squared-norm": with_factors(lambda a, b: length(a, b) ** 2 if length(a, b) < 1e100 else 1e308, usual),
        "mean-square": with_factors(lambda a, b: length(a, b) / math.sqrt(a.size + b.size), usual),
        "overflow": with_factors(overflowing, usual),
        "first-only": with_factors(length, lambda n, m, *g: (min(1.0, m / (n + 1e-6)), 1.0)),
    },
    unusual={"hypot": hypot, "one-vector": one_vector},
)
