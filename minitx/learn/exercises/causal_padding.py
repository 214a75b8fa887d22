"""Causal and padding masks, and the query that sees nothing."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, softmax_backward
from minitx.op import Array


def draw(rng: Rng, T: int, S: int, lengths: list[int], H: int = 3) -> Arguments:
    B = len(lengths)
    return {
        "q": rng.standard_normal((B, H, T, 7)),
        "k": rng.standard_normal((B, H, S, 7)),
        "v": rng.standard_normal((B, H, S, 11)),
        "lengths": np.array(lengths),
    }


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 3, 5, [5, 3], 1)


def adversarial(rng: Rng) -> Cases:
    return {
        "square": draw(rng, 5, 5, [5, 2]),
        "more-queries": draw(rng, 5, 3, [3, 2]),
        "no-keys": draw(rng, 3, 5, [0, 5]),
        "one-query": draw(rng, 1, 7, [7, 6]),
    }


def masked_attention(q: Array, k: Array, v: Array, lengths: Array) -> Any:
    T, S, scale = q.shape[2], k.shape[2], 1 / math.sqrt(q.shape[3])
    key, position = np.arange(S), np.arange(T)[:, None] + (S - T)
    allowed = (key <= position) & (key < lengths[:, None, None, None])  # (B, 1, T, S)
    z = np.where(allowed, scale * q @ k.swapaxes(2, 3), -np.inf)  # (B, H, T, S)
    top = z.max(-1, keepdims=True)
    e = np.exp(z - np.where(np.isfinite(top), top, 0))  # a query that sees nothing: exp(-inf - 0) = 0
    total = e.sum(-1, keepdims=True)
    w = e / np.where(total == 0, 1, total)
    o = w @ v  # (B, H, T, d_v)

    def backward(do: Array) -> tuple[Array, Array, Array]:
        # o = w v
        dv = w.swapaxes(2, 3) @ do
        dw = do @ v.swapaxes(2, 3)
        # w = softmax(z); where w is 0, dz is 0: the mask needs no backward of its own
        dz = w * (dw - (dw * w).sum(-1, keepdims=True))
        # s = scale q kᵀ
        ds = scale * dz
        return ds @ k, ds.swapaxes(2, 3) @ q, dv

    return o, backward


def terms(do: Array, q: Array, k: Array, v: Array, lengths: Array) -> dict[str, list[Array]]:
    w, scale = weights(q, k, may(q, k, lengths)), 1 / math.sqrt(q.shape[3])
    dw = do @ v.swapaxes(2, 3)
    one, two = scale * w * dw, -scale * w * (dw * w).sum(-1, keepdims=True)
    return {"q": [one @ k, two @ k], "k": [one.swapaxes(2, 3) @ q, two.swapaxes(2, 3) @ q]}


def intermediates(do: Array, q: Array, k: Array, v: Array, lengths: Array) -> dict[str, Array]:
    return {"w": weights(q, k, may(q, k, lengths)), "dw": do @ v.swapaxes(2, 3)}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def may(q: Array, k: Array, lengths: Array, shift: int = 0) -> Any:
    T, S = q.shape[2], k.shape[2]
    causal = np.arange(S) <= np.arange(T)[:, None] + (S - T) + shift
    return causal & (np.arange(S) < lengths[:, None, None, None])


def weights(q: Array, k: Array, allowed: Array, nothing: float = -np.inf) -> Any:
    z = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    return softmax(np.where(allowed, z, nothing))


def masked_by(allowed: Any, nothing: float = -np.inf) -> Any:
    """Attention under allowed(q, k, lengths), forward and backward."""

    def function(q: Array, k: Array, v: Array, lengths: Array) -> Any:
        w = weights(q, k, allowed(q, k, lengths), nothing)

        def backward(do: Array) -> Any:
            ds = softmax_backward(w, do @ v.swapaxes(2, 3)) / math.sqrt(q.shape[3])
            return ds @ k, ds.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do

        return w @ v, backward

    return function


def top_left(q: Array, k: Array, lengths: Array) -> Any:
    return may(q, k, lengths, q.shape[2] - k.shape[2])


def padding_only(q: Array, k: Array, lengths: Array) -> Any:
    return may(q, k, lengths, k.shape[2] + q.shape[2])


def causal_only(q: Array, k: Array, lengths: Array) -> Any:
    return may(q, k, 0 * lengths + k.shape[2])


def either(q: Array, k: Array, lengths: Array) -> Any:
    return causal_only(q, k, lengths) | padding_only(q, k, lengths)


def nan_rows(q: Array, k: Array, v: Array, lengths: Array) -> Any:
    allowed = may(q, k, lengths)
    with np.errstate(all="ignore"):
        z = np.where(allowed, q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3]), -np.inf)
        e = np.exp(z - z.max(-1, keepdims=True))
        w = e / e.sum(-1, keepdims=True)

    def backward(do: Array) -> Any:
        ds = softmax_backward(w, do @ v.swapaxes(2, 3)) / math.sqrt(q.shape[3])
        return ds @ k, ds.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do

    return w @ v, backward


def dv_unmasked(q: Array, k: Array, v: Array, lengths: Array) -> Any:
    """Forward is right; backward makes the weights again and forgets the mask."""
    w = weights(q, k, may(q, k, lengths))
    again = weights(q, k, np.array(True))

    def backward(do: Array) -> Any:
        ds = softmax_backward(again, do @ v.swapaxes(2, 3)) / math.sqrt(q.shape[3])
        return ds @ k, ds.swapaxes(2, 3) @ q, again.swapaxes(2, 3) @ do

    return w @ v, backward


def query_by_query(q: Array, k: Array, v: Array, lengths: Array) -> Any:
    """Every query is given only the keys that it sees."""
    B, H, T, d = q.shape
    S = k.shape[2]
    seen = {(b, t): max(0, min(int(lengths[b]), t + S - T + 1)) for b in range(B) for t in range(T)}
    o = np.zeros((B, H, T, v.shape[3]))
    w = {}
    for b, h, t in np.ndindex(B, H, T):
        if n := seen[b, t]:
            w[b, h, t] = softmax(k[b, h, :n] @ q[b, h, t] / math.sqrt(d))
            o[b, h, t] = w[b, h, t] @ v[b, h, :n]

    def backward(do: Array) -> Any:
        dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
        for (b, h, t), p in w.items():
            n = len(p)
            dv[b, h, :n] += np.outer(p, do[b, h, t])
            dp = v[b, h, :n] @ do[b, h, t]
            ds = p * (dp - dp @ p) / math.sqrt(d)
            dq[b, h, t] = ds @ k[b, h, :n]
            dk[b, h, :n] += np.outer(ds, q[b, h, t])
        return dq, dk, dv

    return o, backward


def multiplied(q: Array, k: Array, v: Array, lengths: Array) -> Any:
    """No -inf anywhere: exp of all scores, times the mask."""
    m = may(q, k, lengths).astype(float)
    s = np.einsum("bhtd,bhsd->bhts", q, k) / math.sqrt(q.shape[3])
    e = m * np.exp(np.clip(s - np.where(m > 0, s, -1e300).max(-1, keepdims=True), -1e300, 0) * m)
    w = e / (e.sum(-1, keepdims=True) + (m.sum(-1, keepdims=True) == 0))

    def backward(do: Array) -> Any:
        dw = np.einsum("bhte,bhse->bhts", do, v)
        ds = (w * dw - w * (w * dw).sum(-1, keepdims=True)) / math.sqrt(q.shape[3])
        dq, dk = np.einsum("bhts,bhsd->bhtd", ds, k), np.einsum("bhts,bhtd->bhsd", ds, q)
        return dq, dk, np.einsum("bhts,bhte->bhse", w, do)

    return np.einsum("bhts,bhse->bhte", w, v), backward


EXERCISE = Exercise(
    slug="causal-padding",
    part=1,
    minutes=30,
    needs=("attention",),
    idioms=("np.arange(S) <= position[:, None]", "lengths[:, None, None, None]", "np.where(allowed, z, -np.inf)"),
    equation="allowed_bij = (j <= i + S - T) and (j < lengths_b);  o = softmax(where(allowed, q kᵀ / √d, -∞)) v",
    shapes={
        "q": "(B, H, T, d)", "k": "(B, H, S, d)", "v": "(B, H, S, d_v)", "lengths": "(B,) int",
        "allowed": "(B, 1, T, S)", "o": "(B, H, T, d_v)", "do": "(B, H, T, d_v)",
    },
    function="masked_attention",
    signature="q, k, v, lengths",
    results=("o",),
    gradients=("q", "k", "v"),
    solution=masked_attention,
    arguments=arguments,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "top-left": masked_by(top_left),
        "next-key": masked_by(lambda q, k, lengths: may(q, k, lengths, 1)),
        "not-itself": masked_by(lambda q, k, lengths: may(q, k, lengths, -1)),
        "padding-only": masked_by(padding_only),
        "causal-only": masked_by(causal_only),
        "either": masked_by(either),
        "one-key-more": masked_by(lambda q, k, lengths: may(q, k, lengths + 1)),
        "uniform-rows": masked_by(may, -1e9),
        "nan-rows": nan_rows,
        "backward-unmasked": dv_unmasked,
    },
    unusual={"queries": query_by_query, "multiplied": multiplied},
)  # fmt: skip
