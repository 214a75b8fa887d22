"""One step of AdamW: two fading means, corrected for their start, and a decay that goes around them."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.op import Array

OPTIONS = {"lr": 0.03, "beta1": 0.9, "beta2": 0.99, "eps": 1e-3, "weight_decay": 0.1}


def draw(rng: Rng, t: int, **more: Any) -> Arguments:
    shape = (3, 5)
    m = 0.3 * rng.standard_normal(shape)
    v = m**2 + 0.1 * rng.random(shape)
    if t == 1:
        m, v = np.zeros(shape), np.zeros(shape)
    p, g = rng.standard_normal(shape), rng.standard_normal(shape)
    return {"p": p, "g": g, "m": m, "v": v, "t": t, **OPTIONS, **more}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 3)


def adversarial(rng: Rng) -> Cases:
    still = draw(rng, 1)
    still["g"] = np.zeros((3, 5))
    return {
        "first": draw(rng, 1),
        "still": still,
        "late": draw(rng, 10_000),
        "no-decay": draw(rng, 2, weight_decay=0.0),
        "tiny": {**draw(rng, 1), "g": 1e-9 * rng.standard_normal((3, 5))},
    }


def adamw(
    p: Array, g: Array, m: Array, v: Array, t: int, lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999,
    eps: float = 1e-8, weight_decay: float = 0.01,
) -> Any:  # fmt: skip
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g * g
    mhat = m / (1 - beta1**t)  # both began at 0: of the weights so far, 1 - β^t is the sum
    vhat = v / (1 - beta2**t)
    p = p - lr * (mhat / (np.sqrt(vhat) + eps) + weight_decay * p)  # p before the step
    return p, m, v


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def stepped(
    l2: bool = False, square: bool = True, hats: str = "mv", t0: int = 0, eps_inside: bool = False,
    decay: Any = lambda p, moved, lr, weight_decay: lr * weight_decay * p, sign: float = 1.0, old: bool = False,
) -> Any:  # fmt: skip
    """The step with one thing changed."""

    def function(
        p: Array, g: Array, m: Array, v: Array, t: int, lr: float, beta1: float, beta2: float, eps: float,
        weight_decay: float,
    ) -> Any:  # fmt: skip
        if l2:
            g = g + weight_decay * p
        m0, v0 = m, v
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * (g * g if square else np.abs(g))
        t = t - t0
        a, b = (m0, v0) if old else (m, v)
        with np.errstate(all="ignore"):
            a = a / (1 - beta1**t) if "m" in hats else a
            b = b / (1 - beta2**t) if "v" in hats else b
        root = np.sqrt(b + eps) if eps_inside else np.sqrt(b) + eps
        moved = p - sign * lr * a / root
        return moved - (0 if l2 else decay(p, moved, lr, weight_decay)), m, v

    return function


def exchanged(
    p: Array, g: Array, m: Array, v: Array, t: int, lr: float, beta1: float, beta2: float, *rest: float
) -> Any:  # fmt: skip
    return adamw(p, g, m, v, t, lr, beta2, beta1, *rest)


def shrunk_first(
    p: Array, g: Array, m: Array, v: Array, t: int, lr: float, beta1: float, beta2: float, eps: float,
    weight_decay: float,
) -> Any:  # fmt: skip
    """The decay as a factor in front, the two corrections taken out of the arrays."""
    m = m + (1 - beta1) * (g - m)
    v = v + (1 - beta2) * (g**2 - v)
    root = np.sqrt(v) / math.sqrt(1 - beta2**t) + eps
    return p * (1 - lr * weight_decay) - lr / (1 - beta1**t) * m / root, m, v


def one_by_one(p: Array, g: Array, m: Array, v: Array, t: int, *options: float) -> Any:
    out = np.array([adamw(*row, t, *options) for row in zip(p.ravel(), g.ravel(), m.ravel(), v.ravel())])
    return tuple(out[:, i].reshape(p.shape) for i in range(3))


EXERCISE = Exercise(
    slug="adamw",
    part=1,
    minutes=30,
    needs=("mean",),
    idioms=("np.sqrt(vhat)", "beta1**t"),
    equation="""\
m' = β₁ m + (1 - β₁) g;   v' = β₂ v + (1 - β₂) g²;   m̂ = m' / (1 - β₁ᵗ);   v̂ = v' / (1 - β₂ᵗ)
p' = p - lr (m̂ / (√v̂ + eps) + weight_decay p)""",
    shapes={"p, g, m, v": "(...)", "t": "1, 2, 3 ...", "p', m', v'": "(...)"},
    function="adamw",
    signature="p, g, m, v, t, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01",
    results=("p", "m", "v"),
    solution=adamw,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "l2": stepped(l2=True),
        "no-correction": stepped(hats=""),
        "one-correction": stepped(hats="m"),
        "steps-from-zero": stepped(t0=1),
        "not-squared": stepped(square=False),
        "eps-inside": stepped(eps_inside=True),
        "decay-without-rate": stepped(decay=lambda p, moved, lr, wd: wd * p),
        "decay-after": stepped(decay=lambda p, moved, lr, wd: lr * wd * moved),
        "no-decay": stepped(decay=lambda p, moved, lr, wd: 0 * p),
        "uphill": stepped(sign=-1.0),
        "old-moments": stepped(old=True),
        "betas-exchanged": exchanged,
    },
    unusual={"shrunk-first": shrunk_first, "one-by-one": one_by_one},
)
