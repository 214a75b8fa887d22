"""ALiBi: a penalty in proportion to the distance, and what its slope collects."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def relative(T: int, S: int) -> Array:
    """Position of the key minus position of the query; the last query stands at the last key."""
    return np.arange(S) - (np.arange(T)[:, None] + S - T)


def arguments(rng: Rng) -> Arguments:
    return {"relative": relative(3, 5), "slopes": rng.uniform(0.1, 1.0, 7)}


def adversarial(rng: Rng) -> Cases:
    return {
        "square": {"relative": relative(3, 3), "slopes": rng.uniform(0.1, 1.0, 3)},
        "one-head": {"relative": relative(5, 3), "slopes": rng.uniform(0.1, 1.0, 1)},
        "no-distance": {"relative": np.zeros((2, 3), np.int64), "slopes": rng.uniform(0.1, 1.0, 5)},
    }


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(relative: Array, slopes: Array) -> Array:
    return -slopes[:, None, None] * np.abs(relative)[None, None]


def signed(relative: Array, slopes: Array) -> Any:
    y = slopes[:, None, None] * relative[None, None]
    return y, lambda dy: (dy * relative).sum((0, 2, 3))


def rewarded(relative: Array, slopes: Array) -> Any:
    distance = np.abs(relative)
    return slopes[:, None, None] * distance[None, None], lambda dy: (dy * distance).sum((0, 2, 3))


def einsum(relative: Array, slopes: Array) -> Any:
    distance = np.abs(relative).astype(float)
    return np.einsum("h,ts->hts", -slopes, distance)[None], lambda dy: -np.einsum("bhts,ts->h", dy, distance)


def head_by_head(relative: Array, slopes: Array) -> Any:
    distance = np.maximum(relative, -relative)
    y = np.stack([-m * distance for m in slopes])[None]
    return y, lambda dy: np.array([-np.vdot(distance, dy[0, h]) for h in range(len(slopes))])


EXERCISE = Exercise(
    slug="alibi",
    part=1,
    minutes=10,
    needs=("multiply", "attention-weights"),
    idioms=("slopes[:, None, None]", "g.sum((0, 2, 3))"),
    equation="y_hts = -m_h |relative_ts|",
    shapes={
        "relative": "(T, S) int", "slopes": "(H,)  m",
        "y": "(1, H, T, S)", "dy": "(1, H, T, S)",
    },
    function="alibi_bias",
    signature="relative, slopes",
    gradients=("slopes",),
    op="alibi_bias",
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "signed": signed,
        "rewarded": rewarded,
        "backward-sign": with_backward(forward, lambda dy, r, m: (dy * np.abs(r)).sum((0, 2, 3))),
        "backward-signed": with_backward(forward, lambda dy, r, m: -(dy * r).sum((0, 2, 3))),
        "backward-mean": with_backward(forward, lambda dy, r, m: -(dy * np.abs(r)).mean((0, 2, 3))),
        "distance-forgotten": with_backward(forward, lambda dy, r, m: -dy.sum((0, 2, 3))),
        "slope-kept": with_backward(forward, lambda dy, r, m: -(dy * np.abs(r)).sum((0, 2, 3)) * m),
        "heads-summed": with_backward(forward, lambda dy, r, m: np.full(m.shape, -(dy * np.abs(r)).sum())),
    },
    unusual={"einsum": einsum, "heads": head_by_head},
)  # fmt: skip
