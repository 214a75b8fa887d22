"""The loss that keeps a router from sending everything to few experts: half of it moves, half is a count."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.expert_weights import draw
from minitx.learn.exercises.pieces import softmax, softmax_backward, with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 5, 7, 2)


def forward_cases(rng: Rng) -> Cases:
    made = draw(rng, 5, 7, 2)
    return {"large": made | {"scores": 1000 * made["scores"]}}


def adversarial(rng: Rng) -> Cases:
    even = {"scores": rng.standard_normal((6, 3)), "chosen": np.arange(6)[:, None] % 3}
    same = draw(rng, 5, 7, 1) | {"chosen": np.full((5, 1), 6)}
    return {"one": draw(rng, 5, 7, 1), "same-expert": same, "even": even}


def terms(dy: Array, scores: Array, chosen: Array) -> dict[str, list[Array]]:
    p, g = softmax(scores), dy / len(scores) * scores.shape[1] * load(scores, chosen)
    return {"scores": [p * g, -p * (p * g).sum(1, keepdims=True)]}


def intermediates(dy: Array, scores: Array, chosen: Array) -> dict[str, Array]:
    return {"p": softmax(scores), "f": load(scores, chosen)}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def load(scores: Array, chosen: Array) -> Array:
    """f: the share of the assignments that went to each expert."""
    return np.bincount(chosen.ravel(), minlength=scores.shape[1]) / chosen.size


def forward(scores: Array, chosen: Array) -> Any:
    return scores.shape[1] * (load(scores, chosen) * softmax(scores).mean(0)).sum()


def with_dp(dp: Any) -> Any:
    """Backward through softmax from dp(dy, N, E, f, p)."""

    def backward(dy: Array, scores: Array, chosen: Array) -> Any:
        p = softmax(scores)
        N, E = scores.shape
        return softmax_backward(p, np.broadcast_to(dp(dy, N, E, load(scores, chosen), p), p.shape))

    return with_backward(forward, backward)


def per_choice(scores: Array, chosen: Array) -> Any:
    """f sums to k: another convention."""
    k = chosen.shape[1]
    return k * forward(scores, chosen), lambda dy: right(k * dy, scores, chosen)


def right(dy: Array, scores: Array, chosen: Array) -> Any:
    g = dy / len(scores) * scores.shape[1] * load(scores, chosen)
    return softmax_backward(softmax(scores), np.broadcast_to(g, scores.shape))


def softmax_skipped(dy: Array, scores: Array, chosen: Array) -> Array:
    g = dy / len(scores) * scores.shape[1] * load(scores, chosen)
    return np.broadcast_to(g, scores.shape).copy()


def einsum(scores: Array, chosen: Array) -> Any:
    N, E = scores.shape
    f = (chosen[..., None] == np.arange(E)).mean((0, 1))
    e = np.exp(scores - scores.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)

    def backward(dy: Array) -> Any:
        return dy * E / N * (np.einsum("ne,e->ne", p, f) - np.einsum("ne,nj,j->ne", p, p, f))

    return E / N * np.einsum("ne,e->", p, f), backward


def token_by_token(scores: Array, chosen: Array) -> Any:
    N, E = scores.shape
    f = np.array([np.sum(chosen == e) / chosen.size for e in range(E)])
    P = sum(softmax(row) for row in scores) / N

    def backward(dy: Array) -> Any:
        rows = [(np.diag(p) - np.outer(p, p)) @ (E * f) for p in map(softmax, scores)]
        return np.stack(rows) * dy / N

    return E * (f @ P), backward


EXERCISE = Exercise(
    slug="balance-loss",
    part=1,
    minutes=10,
    needs=("expert-weights",),
    idioms=("np.bincount(chosen.ravel(), minlength=E)", "p.mean(0)"),
    equation="p = softmax(scores);  P = mean_n p_n;  f_e = Σ_nj (c_nj = e) / (N k);  y = E Σ_e f_e P_e",
    shapes={"scores": "(N, E)", "chosen": "(N, k) int  c", "p": "(N, E)", "P, f": "(E,)", "y": "()", "dy": "()"},
    function="balance_loss",
    signature="scores, chosen",
    gradients=("scores",),
    op="balance_loss",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "per-choice": per_choice,
        "no-experts": with_dp(lambda dy, N, E, f, p: dy / N * f),
        "no-tokens": with_dp(lambda dy, N, E, f, p: dy * E * f),
        "no-cotangent": with_dp(lambda dy, N, E, f, p: E / N * f),
        "wrong-factor": with_dp(lambda dy, N, E, f, p: dy * E / N * p.mean(0)),
        "both-move": with_dp(lambda dy, N, E, f, p: dy * E / N * (f + p.mean(0))),
        "softmax-skipped": with_backward(forward, softmax_skipped),
    },
    unusual={"einsum": einsum, "tokens": token_by_token},
)
