"""Attention's weights: scaled scores, a mask, softmax."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, softmax_backward, with_backward
from minitx.op import Array


def draw(rng: Rng, mask: Array, B: int = 2, H: int = 3) -> Arguments:
    T, S = mask.shape
    return {"q": rng.standard_normal((B, H, T, 7)), "k": rng.standard_normal((B, H, S, 7)), "mask": mask}


def arguments(rng: Rng) -> Arguments:
    mask = rng.random((3, 5)) < 0.6
    mask[np.arange(3), rng.integers(0, 5, 3)] = True  # every query sees a key
    return draw(rng, mask, 1, 2)


def forward_cases(rng: Rng) -> Cases:
    made = arguments(rng)
    return {"large": made | {"q": 500 * made["q"]}}


def adversarial(rng: Rng) -> Cases:
    blind = rng.random((5, 7)) < 0.6
    blind[1] = False
    return {
        "blind": draw(rng, blind),
        "one-key": draw(rng, np.eye(5, 7, dtype=bool)),
        "all": draw(rng, np.full((5, 7), True)),
    }


def terms(dw: Array, q: Array, k: Array, mask: Array) -> dict[str, list[Array]]:
    w = forward(q, k, mask)
    scale = 1 / math.sqrt(q.shape[-1])
    one, two = scale * w * dw, -scale * w * (dw * w).sum(-1, keepdims=True)
    return {"q": [one @ k, two @ k], "k": [one.swapaxes(2, 3) @ q, two.swapaxes(2, 3) @ q]}


def intermediates(dw: Array, q: Array, k: Array, mask: Array) -> dict[str, Array]:
    return {"w": forward(q, k, mask)}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(q: Array, k: Array, mask: Array) -> Any:
    z = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
    return softmax(np.where(mask, z, -np.inf))


def back(ds: Array, q: Array, k: Array) -> tuple[Array, Array]:
    return ds @ k, ds.swapaxes(2, 3) @ q


def changed(ds: Any) -> Any:
    """Backward from ds(w, dw, 1/√d, mask) where it is not what it should be."""

    def backward(dw: Array, q: Array, k: Array, mask: Array) -> Any:
        return back(ds(forward(q, k, mask), dw, 1 / math.sqrt(q.shape[-1]), mask), q, k)

    return with_backward(forward, backward)


def of_scores(scores: Any) -> Any:
    """The weights of other scores, scores(q kᵀ, mask, d) → (z, what to multiply dz by), with a backward that fits."""

    def function(q: Array, k: Array, mask: Array) -> Any:
        z, factor = scores(q @ k.swapaxes(2, 3), mask, q.shape[-1])
        w = softmax(z)
        return w, lambda dw: back(factor * softmax_backward(w, dw), q, k)

    return function


def small_number(s: Array, mask: Array, d: int) -> Any:
    """A large negative number where -inf was meant: a query that sees nothing sees everything."""
    return np.where(mask, s / math.sqrt(d), -1e9), np.where(mask, 1 / math.sqrt(d), 0.0)


def times_mask(s: Array, mask: Array, d: int) -> Any:
    """Scores of 0 where there should be none."""
    return s * mask / math.sqrt(d), mask / math.sqrt(d)


def opposite(s: Array, mask: Array, d: int) -> Any:
    return np.where(mask, -np.inf, s / math.sqrt(d)), 1 / math.sqrt(d)


def unscaled(s: Array, mask: Array, d: int) -> Any:
    return np.where(mask, s, -np.inf), 1.0


def by_d(s: Array, mask: Array, d: int) -> Any:
    return np.where(mask, s / d, -np.inf), 1 / d


def nan_rows(q: Array, k: Array, mask: Array) -> Any:
    with np.errstate(all="ignore"):
        z = np.where(mask, q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1]), -np.inf)
        e = np.exp(z - z.max(-1, keepdims=True))
        w = e / e.sum(-1, keepdims=True)
    return w, lambda dw: back(softmax_backward(w, dw) / math.sqrt(q.shape[-1]), q, k)


def masked_afterwards(q: Array, k: Array, mask: Array) -> Any:
    """The mask multiplies the weights: a row no longer sums to 1."""
    w = softmax(q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1]))
    return w * mask, lambda dw: back(softmax_backward(w, dw * mask) / math.sqrt(q.shape[-1]), q, k)


def einsum(q: Array, k: Array, mask: Array) -> Any:
    scale = q.shape[-1] ** -0.5
    s = np.einsum("bhtd,bhsd->bhts", q, k) * scale
    s = np.where(mask, s, -1e300)
    e = np.where(mask, np.exp(s - s.max(-1, keepdims=True)), 0)
    w = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)

    def backward(dw: Array) -> Any:
        ds = scale * (w * dw - w * np.einsum("bhts,bhts->bht", w, dw)[..., None])
        return np.einsum("bhts,bhsd->bhtd", ds, k), np.einsum("bhts,bhtd->bhsd", ds, q)

    return w, backward


def query_by_query(q: Array, k: Array, mask: Array) -> Any:
    """Only the keys that are seen are ever touched."""
    B, H, T, d = q.shape
    w = np.zeros((B, H, T, k.shape[2]))
    rows = [(i, mask[i[2]]) for i in np.ndindex(B, H, T) if mask[i[2]].any()]
    for i, seen in rows:
        s = k[i[:2]][seen] @ q[i] / math.sqrt(d)
        e = np.exp(s - s.max())
        w[i][seen] = e / e.sum()

    def backward(dw: Array) -> Any:
        dq, dk = np.zeros(q.shape), np.zeros(k.shape)
        for i, seen in rows:
            p, g = w[i][seen], dw[i][seen]
            ds = p * (g - g @ p) / math.sqrt(d)
            dq[i] = ds @ k[i[:2]][seen]
            dk[i[:2]][seen] += np.outer(ds, q[i])
        return dq, dk

    return w, backward


EXERCISE = Exercise(
    slug="attention-weights",
    part=1,
    minutes=30,
    needs=("softmax", "matmul"),
    idioms=("np.where(mask, z, -np.inf)", "k.swapaxes(-1, -2)", "math.sqrt(d)"),
    equation="s = q kᵀ / √d;  z = where(mask, s, -∞);  w = softmax(z)",
    shapes={
        "q": "(B, H, T, d)", "k": "(B, H, S, d)", "mask": "(T, S) bool", "s, z": "(B, H, T, S)",
        "w": "(B, H, T, S)", "dw": "(B, H, T, S)",
    },
    function="attention_weights",
    signature="q, k, mask",
    results=("w",),
    gradients=("q", "k"),
    op="attention_weights",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "small-number": of_scores(small_number),
        "zero-scores": of_scores(times_mask),
        "opposite-mask": of_scores(opposite),
        "unscaled": of_scores(unscaled),
        "scaled-by-d": of_scores(by_d),
        "nan-rows": nan_rows,
        "masked-afterwards": masked_afterwards,
        "scale-forgotten": changed(lambda w, dw, scale, mask: softmax_backward(w, dw)),
        "bare-sum": changed(lambda w, dw, scale, mask: scale * w * (dw - dw.sum(-1, keepdims=True))),
        "weight-in-front": changed(lambda w, dw, scale, mask: scale * mask * (dw - (dw * w).sum(-1, keepdims=True))),
        "over-queries": changed(lambda w, dw, scale, mask: scale * w * (dw - (dw * w).sum(-2, keepdims=True))),
        "softmax-skipped": changed(lambda w, dw, scale, mask: scale * mask * dw),
    },
    unusual={"einsum": einsum, "queries": query_by_query},
)  # fmt: skip
