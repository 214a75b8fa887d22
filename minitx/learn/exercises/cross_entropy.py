"""Cross-entropy of logits: softmax, logarithm and the choice of the target in one, so that their Jacobians cancel."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    targets = rng.integers(0, 7, (3, 5))
    targets[0, 1] = targets[2, 0] = -100
    return {"logits": rng.standard_normal((3, 5, 7)), "targets": targets, "ignore_index": -100}


def forward_cases(rng: Rng) -> Cases:
    logits = rng.standard_normal((5, 7))
    given: Arguments = {"targets": np.array([0, 6, -100, 3, 3]), "ignore_index": -100}
    return {"large": {"logits": 1000 * logits, **given}, "shifted": {"logits": logits - 3000, **given}}


def adversarial(rng: Rng) -> Cases:
    logits, targets = rng.standard_normal((5, 7)), np.array([0, 6, -100, 3, 3])
    return {
        "all-ignored": {"logits": logits, "targets": np.full(5, -100), "ignore_index": -100},
        "none-ignored": {"logits": logits, "targets": np.abs(targets) % 7, "ignore_index": -100},
        "class-ignored": {"logits": logits, "targets": np.array([0, 6, 2, 3, 3]), "ignore_index": 3},
        "certain": {"logits": 1000 * logits, "targets": targets, "ignore_index": -100},
        "one-row": {"logits": logits[0], "targets": np.array(2), "ignore_index": -100},
    }


def terms(dy: Array, logits: Array, targets: Array, ignore_index: int) -> dict[str, list[Array]]:
    scale = dy * weights(targets, ignore_index)
    return {"logits": [scale * softmax(logits), -scale * onehot(logits, targets)]}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def weights(targets: Array, ignore_index: int) -> Any:
    """1/N for the rows that count, 0 for the others."""
    counted = targets != ignore_index
    return (counted / np.maximum(counted.sum(), 1))[..., None]


def onehot(logits: Array, targets: Array) -> Any:
    return (np.arange(logits.shape[-1]) == targets[..., None]).astype(float)


def log_p(logits: Array) -> Any:
    c = logits - logits.max(-1, keepdims=True)
    return c - np.log(np.exp(c).sum(-1, keepdims=True))


def forward(logits: Array, targets: Array, ignore_index: int) -> Any:
    return -(weights(targets, ignore_index) * onehot(logits, targets) * log_p(logits)).sum()


def difference(logits: Array, targets: Array) -> Any:
    return softmax(logits) - onehot(logits, targets)


def all_positions(logits: Array, targets: Array, ignore_index: int) -> Any:
    """The mean over all rows, the ignored ones too: forward and backward agree, on another loss."""
    scale = (targets != ignore_index)[..., None] / max(targets.size, 1)
    y = -(scale * onehot(logits, targets) * log_p(logits)).sum()
    return y, lambda dy: dy * scale * difference(logits, targets)


def ignored_pulled(dy: Array, logits: Array, targets: Array, ignore_index: int) -> Any:
    """Ignored rows still get p."""
    return dy * difference(logits, targets) / max((targets != ignore_index).sum(), 1)


def summed(dy: Array, logits: Array, targets: Array, ignore_index: int) -> Any:
    return dy * (targets != ignore_index)[..., None] * difference(logits, targets)


def divided_by_classes(dy: Array, logits: Array, targets: Array, ignore_index: int) -> Any:
    return summed(dy, logits, targets, ignore_index) / logits.shape[-1]


def no_cotangent(dy: Array, logits: Array, targets: Array, ignore_index: int) -> Any:
    return weights(targets, ignore_index) * difference(logits, targets)


def twice_softmax(dy: Array, logits: Array, targets: Array, ignore_index: int) -> Any:
    """p - onehot taken for the gradient of p, and sent through softmax once more."""
    p = softmax(logits)
    dp = dy * weights(targets, ignore_index) * (p - onehot(logits, targets))
    return p * (dp - (dp * p).sum(-1, keepdims=True))


def minus_by_index(dy: Array, logits: Array, targets: Array, ignore_index: int) -> Any:
    """Every row loses 1 at some class, the ignored ones at the class ignore_index % V."""
    dx = softmax(logits) - (np.arange(logits.shape[-1]) == (targets % logits.shape[-1])[..., None])
    return dy * dx / max((targets != ignore_index).sum(), 1)


def in_three_steps(logits: Array, targets: Array, ignore_index: int) -> Any:
    """Choose, take the mean, and send each gradient back by itself."""
    V = logits.shape[-1]
    rows, t = logits.reshape(-1, V), targets.ravel()
    kept = np.flatnonzero(t != ignore_index)
    lp = log_p(rows)
    y = -np.sum(lp[kept, t[kept]]) / max(len(kept), 1)

    def backward(dy: Array) -> Any:
        dlp = np.zeros(rows.shape)
        dlp[kept, t[kept]] = -dy / max(len(kept), 1)
        return (dlp - np.exp(lp) * dlp.sum(-1, keepdims=True)).reshape(logits.shape)

    return y, backward


def loops(logits: Array, targets: Array, ignore_index: int) -> Any:
    places = [i for i in np.ndindex(targets.shape) if targets[i] != ignore_index]
    n = max(len(places), 1)
    y = 0.0
    for i in places:
        top = logits[i].max()
        y += (top + np.log(np.exp(logits[i] - top).sum()) - logits[i][targets[i]]) / n

    def backward(dy: Array) -> Array:
        dx = np.zeros(logits.shape)
        for i in places:
            e = np.exp(logits[i] - logits[i].max())
            dx[i] = e / e.sum() * dy / n
            dx[i][targets[i]] -= dy / n
        return dx

    return np.array(y), backward


def without_ignored(logits: Array, targets: Array, ignore_index: int) -> Any:
    """Weights of 0 for ignored rows, einsum for everything."""
    V = logits.shape[-1]
    w, q = weights(targets, ignore_index).ravel(), onehot(logits, targets).reshape(-1, V)
    p = softmax(logits).reshape(-1, V)
    y = np.einsum("n,nv,nv->", w, q, -log_p(logits).reshape(-1, V))
    return y, lambda dy: np.einsum("n,nv->nv", dy * w, p - q).reshape(logits.shape)


EXERCISE = Exercise(
    slug="cross-entropy",
    part=1,
    minutes=30,
    needs=("log-softmax", "mean"),
    idioms=("targets != ignore_index", "dx[np.arange(N), t] -= 1"),
    equation="p = softmax(logits);  y = - Σ_n log p_n[target_n] / N",
    shapes={"logits": "(..., V)", "targets": "(...) int: 0 ... V - 1, ignore_index", "y": "()", "dy": "()"},
    function="cross_entropy",
    signature="logits, targets, ignore_index=-100",
    gradients=("logits",),
    op="cross_entropy",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    numbers=lambda logits, targets, ignore_index: {"N": int((targets != ignore_index).sum())},
    terms=terms,
    mutants={
        "all-positions": all_positions,
        "ignored-pulled": with_backward(forward, ignored_pulled),
        "no-divisor": with_backward(forward, summed),
        "classes": with_backward(forward, divided_by_classes),
        "no-cotangent": with_backward(forward, no_cotangent),
        "softmax-twice": with_backward(forward, twice_softmax),
        "ignored-class": with_backward(forward, minus_by_index),
    },
    unusual={"steps": in_three_steps, "loops": loops, "einsum": without_ignored},
)
