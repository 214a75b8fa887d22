"""RoPE: each pair of features turns by its position; backward turns it back."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def draw(rng: Rng, positions: Any, d: int = 14, base: float = 100.0) -> Arguments:
    positions = np.asarray(positions)
    return {"x": rng.standard_normal((2, 3, len(positions), d)), "positions": positions, "base": base}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, np.sort(rng.choice(50, 5, replace=False)))


def forward_cases(rng: Rng) -> Cases:
    return {"far": draw(rng, [2_000_003, 2_000_004, 7], base=10000.0)}


def adversarial(rng: Rng) -> Cases:
    usual = draw(rng, np.arange(5), 4, 10000.0)
    return {"zero": draw(rng, [0, 0, 0]), "one-pair": draw(rng, [0, 5, 2], 2), "base": usual}


def terms(dy: Array, x: Array, positions: Array, base: float) -> dict[str, list[Array]]:
    cos, sin = (np.concatenate([t, t], -1) for t in table(x, positions, base))
    n = x.shape[-1] // 2
    partner = np.concatenate([dy[..., n:], -dy[..., :n]], -1)
    return {"x": [dy * cos, partner * sin]}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def table(x: Array, positions: Array, base: float) -> tuple[Array, Array]:
    """cos θ and sin θ, (T, d/2)."""
    n = x.shape[-1] // 2
    theta = positions[:, None] * base ** (-np.arange(n) / n)
    return np.cos(theta), np.sin(theta)


def turned(x: Array, cos: Array, sin: Array) -> Array:
    n = x.shape[-1] // 2
    a, b = x[..., :n], x[..., n:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def forward(x: Array, positions: Array, base: float) -> Array:
    return turned(x, *table(x, positions, base))


def back_by(cos: Any, sin: Any) -> Any:
    """dy turned by cos(c) and sin(s) in place of c and -s."""

    def backward(dy: Array, x: Array, positions: Array, base: float) -> Array:
        c, s = table(x, positions, base)
        return turned(dy, cos(c), sin(s))

    return with_backward(forward, backward)


def half_back_first(dy: Array, x: Array, positions: Array, base: float) -> Array:
    """The sign of the other sine only."""
    c, s = table(x, positions, base)
    n = x.shape[-1] // 2
    a, b = dy[..., :n], dy[..., n:]
    return np.concatenate([a * c - b * s, b * c - a * s], -1)


def one_partner(first: bool) -> Any:
    """One half of the features gets nothing from its partners."""

    def backward(dy: Array, x: Array, positions: Array, base: float) -> Array:
        c, s = table(x, positions, base)
        n = x.shape[-1] // 2
        a, b = dy[..., :n], dy[..., n:]
        return np.concatenate([a * c + (b * s if first else 0), b * c - (0 if first else a * s)], -1)

    return with_backward(forward, backward)


def half_back(dy: Array, x: Array, positions: Array, base: float) -> Array:
    """The sign of one of the two sines only."""
    c, s = table(x, positions, base)
    n = x.shape[-1] // 2
    a, b = dy[..., :n], dy[..., n:]
    return np.concatenate([a * c + b * s, b * c + a * s], -1)


def neighbours(x: Array, positions: Array, base: float) -> Any:
    """The pairs of the paper: (x_2i, x_2i+1)."""
    c, s = table(x, positions, base)

    def turn(x: Array, s: Array) -> Array:
        y = np.empty(x.shape)
        y[..., ::2] = x[..., ::2] * c - x[..., 1::2] * s
        y[..., 1::2] = x[..., 1::2] * c + x[..., ::2] * s
        return y

    return turn(x, s), lambda dy: turn(dy, -s)


def other_way(x: Array, positions: Array, base: float) -> Any:
    c, s = table(x, positions, base)
    return turned(x, c, -s), lambda dy: turned(dy, c, s)


def by_row(x: Array, positions: Array, base: float) -> Any:
    c, s = table(x, np.arange(len(positions)), base)
    return turned(x, c, s), lambda dy: turned(dy, c, -s)


def width(x: Array, positions: Array, base: float) -> Any:
    """base^(-i / d) instead of base^(-2i / d)."""
    return rotate(x, positions, base**0.5)


def single_precision(x: Array, positions: Array, base: float) -> Any:
    n = x.shape[-1] // 2
    rates = (base ** (-np.arange(n) / n)).astype(np.float32)
    theta = (positions.astype(np.float32)[:, None] * rates).astype(np.float64)
    return turned(x, np.cos(theta), np.sin(theta)), lambda dy: turned(dy, np.cos(theta), -np.sin(theta))


def rotate(x: Array, positions: Array, base: float) -> Any:
    c, s = table(x, positions, base)
    return turned(x, c, s), lambda dy: turned(dy, c, -s)


def complex_numbers(x: Array, positions: Array, base: float) -> Any:
    """A pair is a complex number, and the rotation a product with e^(iθ)."""
    n = x.shape[-1] // 2
    e = np.exp(1j * positions[:, None] * base ** (-np.arange(n) / n))

    def times(x: Array, e: Array) -> Array:
        z = (x[..., :n] + 1j * x[..., n:]) * e
        return np.concatenate([z.real, z.imag], -1)

    return times(x, e), lambda dy: times(dy, e.conj())


def matrices(x: Array, positions: Array, base: float) -> Any:
    """One rotation matrix for every position."""
    T, d = x.shape[2:]
    n = d // 2
    R = np.zeros((T, d, d))
    for i in range(n):
        theta = positions * base ** (-2 * i / d)
        R[:, i, i] = R[:, i + n, i + n] = np.cos(theta)
        R[:, i, i + n] = -np.sin(theta)
        R[:, i + n, i] = np.sin(theta)
    return np.einsum("tij,bhtj->bhti", R, x), lambda dy: np.einsum("tij,bhti->bhtj", R, dy)


def half_turns(x: Array, positions: Array, base: float) -> Any:
    """x cos + (the pair turned by 90 degrees) sin, as most published code has it."""
    n = x.shape[-1] // 2
    cos, sin = (np.concatenate([t, t], -1) for t in table(x, positions, base))

    def quarter(x: Array) -> Array:
        return np.concatenate([-x[..., n:], x[..., :n]], -1)

    def quarter_back(g: Array) -> Array:
        return np.concatenate([g[..., n:], -g[..., :n]], -1)

    return x * cos + quarter(x) * sin, lambda dy: dy * cos + quarter_back(dy * sin)


EXERCISE = Exercise(
    slug="rotary",
    part=1,
    minutes=30,
    needs=("positions", "heads"),
    idioms=("x[..., : d // 2]", "np.concatenate([a, b], -1)"),
    equation="""\
θ = p ω_i;  ω_i = base^(-2i/d), i = 0 ... d/2 - 1;  (a, b) = (x_i, x_(i + d/2))
y_a = x_a cos θ - x_b sin θ;  y_b = x_b cos θ + x_a sin θ""",
    shapes={
        "x": "(B, H, T, d)", "positions": "(T,) int  p", "θ": "(T, d/2)", "y": "(B, H, T, d)",
        "dy": "(B, H, T, d)",
    },
    function="rotary",
    signature="x, positions, base=10000.0",
    gradients=("x",),
    op="rotary",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    mutants={
        "turned-on": back_by(lambda c: c, lambda s: s),
        "half-back": with_backward(forward, half_back),
        "half-back-first": with_backward(forward, half_back_first),
        "first-partner-only": one_partner(True),
        "second-partner-only": one_partner(False),
        "backward-skipped": with_backward(forward, lambda dy, x, positions, base: dy),
        "backward-of-x": with_backward(forward, lambda dy, x, positions, base: turned(x, *table(x, positions, base))),
        "exchanged": back_by(lambda c: np.sqrt(1 - c * c), lambda s: -np.sqrt(1 - s * s)),
        "neighbours": neighbours,
        "other-way": other_way,
        "rows-for-positions": by_row,
        "half-rate": width,
        "single-precision": single_precision,
    },
    unusual={"complex": complex_numbers, "matrices": matrices, "quarter-turns": half_turns},
)  # fmt: skip
