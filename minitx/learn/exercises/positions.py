"""Sinusoidal positions, added to scaled embeddings; any width, odd ones too."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.standard_normal((2, 3, 7)), "positions": np.sort(rng.choice(50, 3, replace=False))}


def forward_cases(rng: Rng) -> Cases:
    return {"far": {"x": rng.standard_normal((2, 3, 7)), "positions": np.array([100_000, 2_000_003, 2_000_004])}}


def adversarial(rng: Rng) -> Cases:
    return {
        "even": {"x": rng.standard_normal((3, 5, 8)), "positions": np.arange(5)},
        "one-feature": {"x": rng.standard_normal((2, 3, 1)), "positions": np.array([0, 3, 4])},
        "repeated": {"x": rng.standard_normal((2, 3, 5)), "positions": np.array([4, 0, 4])},
    }


def embed(x: Array, positions: Array) -> Any:
    d = x.shape[-1]
    rates = 10000.0 ** (-np.arange(0, d, 2) / d)  # (⌈d/2⌉,)
    angles = positions[:, None] * rates  # (T, ⌈d/2⌉)
    table = np.empty((len(positions), d))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)[:, : d // 2]  # an odd width: the last sine has no cosine
    y = math.sqrt(d) * x + table

    def backward(dy: Array) -> Array:
        return math.sqrt(d) * dy

    return y, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def pair(j: Array, d: int) -> Any:
    """The even number at which the pair of feature j begins."""
    return j - j % 2


def made_of(rates: Any, even: Any = np.sin, odd: Any = np.cos, scale: Any = math.sqrt) -> Any:
    """rates(j, d): the rate of feature j, then even(angle) or odd(angle)."""

    def forward(x: Array, positions: Array) -> Any:
        d = x.shape[-1]
        j = np.arange(d)
        angles = positions[:, None] * rates(j, d)
        return scale(d) * x + np.where(j % 2 == 0, even(angles), odd(angles))

    return with_backward(forward, lambda dy, x, positions: scale(x.shape[-1]) * dy)


def right(j: Array, d: int) -> Any:
    return 10000.0 ** (-pair(j, d) / d)


forward = made_of(right)


def value(x: Array, positions: Array) -> Any:
    return forward(x, positions)[0]


def halves(x: Array, positions: Array) -> Any:
    """All sines first, then all cosines."""
    d = x.shape[-1]
    angles = positions[:, None] * 10000.0 ** (-np.arange(0, d, 2) / d)
    table = np.concatenate([np.sin(angles), np.cos(angles)], -1)[:, :d]
    return math.sqrt(d) * x + table, lambda dy: math.sqrt(d) * dy


def cosine_of_next(x: Array, positions: Array) -> Any:
    return made_of(lambda j, d: 10000.0 ** (-j / d))(x, positions)


def by_row(x: Array, positions: Array) -> Any:
    """Position 0, 1, 2 ..., whatever the positions say."""
    return forward(x, np.arange(len(positions)))


def loops(x: Array, positions: Array) -> Any:
    d = x.shape[-1]
    y = x * d**0.5
    for t, p in enumerate(positions.tolist()):
        for i in range(d):
            angle = p / 10000 ** (2 * (i // 2) / d)
            y[..., t, i] += math.cos(angle) if i % 2 else math.sin(angle)
    return y, lambda dy: dy * d**0.5


def shifted_sine(x: Array, positions: Array) -> Any:
    """cos θ = sin(θ + π/2)."""
    d = x.shape[-1]
    j = np.arange(d)
    angles = np.outer(positions, np.exp(-math.log(10000) * (j // 2 * 2) / d)) + math.pi / 2 * (j % 2)
    return x * np.full(d, math.sqrt(d)) + np.sin(angles), lambda dy: dy * np.full(d, math.sqrt(d))


EXERCISE = Exercise(
    slug="positions",
    part=1,
    minutes=10,
    needs=("embedding", "add"),
    idioms=("np.arange(0, d, 2)", "table[:, 0::2] = ...", "positions[:, None] * rates"),
    equation="y = √d x + PE[positions];  PE[p, 2i] = sin(p / 10000^(2i/d));  PE[p, 2i+1] = cos(p / 10000^(2i/d))",
    shapes={"x": "(B, T, d)", "positions": "(T,) int", "PE": "(T, d)", "y": "(B, T, d)", "dy": "(B, T, d)"},
    function="embed",
    signature="x, positions",
    gradients=("x",),
    solution=embed,
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    mutants={
        "exchanged": made_of(right, np.cos, np.sin),
        "halves": halves,
        "own-rate": cosine_of_next,
        "half-rate": made_of(lambda j, d: 10000.0 ** (-pair(j, d) / 2 / d)),
        "width-of-half": made_of(lambda j, d: 10000.0 ** (-pair(j, d) / max(d // 2 * 2, 2))),
        "rising": made_of(lambda j, d: 10000.0 ** (pair(j, d) / d)),
        "unscaled": made_of(right, scale=lambda d: 1.0),
        "rows-for-positions": by_row,
        "backward-unscaled": with_backward(value, lambda dy, x, positions: dy),
        "backward-other-way": with_backward(value, lambda dy, x, positions: dy / math.sqrt(x.shape[-1])),
    },
    unusual={"loops": loops, "sines": shifted_sine},
)
