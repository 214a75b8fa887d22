"""A step with a cache: new tokens ask, old ones answer from what was kept; token by token equals all at once."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax
from minitx.op import Array


def draw(rng: Rng, new: int, old: int, B: int = 2) -> Arguments:
    shapes = {
        "x": (B, new, 5), "k_cache": (B, old, 7), "v_cache": (B, old, 11), "w_q": (7, 5), "w_k": (7, 5), "w_v": (11, 5),
    }  # fmt: skip
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 3, 4)


def adversarial(rng: Rng) -> Cases:
    sizes = {"one-token": (1, 4), "empty-cache": (3, 0), "first-token": (1, 0), "long": (2, 13)}
    return {key: draw(rng, *size) for key, size in sizes.items()}


def step(x: Array, k_cache: Array, v_cache: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    q = x @ w_q.T  # (B, T, d): of the new tokens only
    k = np.concatenate([k_cache, x @ w_k.T], 1)  # (B, S, d): the old ones, then the new
    v = np.concatenate([v_cache, x @ w_v.T], 1)  # (B, S, d_v)
    T, S = x.shape[1], k.shape[1]
    allowed = np.arange(S) <= np.arange(T)[:, None] + (S - T)  # new token i stands at place S - T + i
    s = np.where(allowed, q @ k.swapaxes(1, 2) / math.sqrt(len(w_q)), -np.inf)  # (B, T, S)
    e = np.exp(s - s.max(-1, keepdims=True))
    o = e / e.sum(-1, keepdims=True) @ v  # (B, T, d_v)
    return o, k, v


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def stepped(
    allowed: Any = None, store: Any = None, old_first: bool = True, scale: Any = lambda w_q, S: 1 / math.sqrt(len(w_q))
) -> Any:
    """The step with one thing changed: who may see whom (T, S), what is kept, the order, the scale."""

    def function(x: Array, k_cache: Array, v_cache: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
        q, new_k, new_v = x @ w_q.T, x @ w_k.T, x @ w_v.T
        pairs = ((k_cache, new_k), (v_cache, new_v))
        k, v = (np.concatenate(pair if old_first else pair[::-1], 1) for pair in pairs)
        T, S = x.shape[1], k.shape[1]
        i, j = np.arange(T)[:, None], np.arange(S)
        s = q @ k.swapaxes(1, 2) * scale(w_q, S)
        w = softmax(np.where(j <= i + S - T if allowed is None else allowed(i, j, T, S), s, -np.inf))
        kept = (k, v) if store is None else store(k_cache, v_cache, new_k, new_v)
        return w @ v, *kept

    return function


def queries_kept(x: Array, k_cache: Array, v_cache: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    """The keys of the new tokens made with w_q."""
    return step(x, k_cache, v_cache, w_q, w_q, w_v)


def token_by_token(x: Array, k_cache: Array, v_cache: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    """No mask: each token is appended, then asks all that is there."""
    k, v, out = k_cache, v_cache, []
    for t in range(x.shape[1]):
        one = x[:, t]
        k = np.concatenate([k, (one @ w_k.T)[:, None]], 1)
        v = np.concatenate([v, (one @ w_v.T)[:, None]], 1)
        w = softmax(np.einsum("bd,bsd->bs", one @ w_q.T, k) / math.sqrt(len(w_q)))
        out.append(np.einsum("bs,bse->be", w, v))
    return np.stack(out, 1), k, v


def preallocated(x: Array, k_cache: Array, v_cache: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    """Room for old and new, written by place; two softmaxes, over old and new, merged."""
    B, T, _ = x.shape
    P = k_cache.shape[1]
    k, v = np.empty((B, P + T, len(w_k))), np.empty((B, P + T, len(w_v)))
    k[:, :P], v[:, :P] = k_cache, v_cache
    np.matmul(x, w_k.T, out=k[:, P:])
    np.matmul(x, w_v.T, out=v[:, P:])
    z = np.einsum("btd,bsd->bts", x @ w_q.T, k) * len(w_q) ** -0.5
    z[:, :, P:] += np.triu(np.full((T, T), -np.inf), 1)
    e = np.exp(z - z.max(-1, keepdims=True))
    return np.einsum("bts,bse->bte", e, v) / e.sum(-1)[..., None], k, v


EXERCISE = Exercise(
    slug="kv-cache",
    part=1,
    minutes=30,
    needs=("causal-padding",),
    idioms=("np.concatenate([k_cache, k_new], axis=1)", "np.arange(S) <= place[:, None]"),
    equation="""\
q = x w_qᵀ;  k = [k_cache, x w_kᵀ];  v = [v_cache, x w_vᵀ]
o = softmax(where(allowed, q kᵀ / √d, -∞)) v;  allowed_ij = (j <= P + i)""",
    shapes={
        "x": "(B, T, D)", "k_cache": "(B, P, d)", "v_cache": "(B, P, d_v)", "w_q, w_k": "(d, D)",
        "w_v": "(d_v, D)", "o": "(B, T, d_v)", "k": "(B, P + T, d)", "v": "(B, P + T, d_v)",
    },
    function="step",
    signature="x, k_cache, v_cache, w_q, w_k, w_v",
    results=("o", "k", "v"),
    solution=step,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "top-left": stepped(allowed=lambda i, j, T, S: j <= i),
        "new-see-all": stepped(allowed=lambda i, j, T, S: j < S + 0 * i),
        "new-only": stepped(allowed=lambda i, j, T, S: (j >= S - T) & (j <= i + S - T)),
        "not-itself": stepped(allowed=lambda i, j, T, S: (j < i + S - T) | (j == 0)),
        "new-first": stepped(old_first=False),
        "cache-not-grown": stepped(store=lambda k_cache, v_cache, k, v: (k_cache, v_cache)),
        "cache-replaced": stepped(store=lambda k_cache, v_cache, k, v: (k, v)),
        "scale-of-length": stepped(scale=lambda w_q, S: 1 / math.sqrt(S)),
        "keys-by-query": queries_kept,
    },
    unusual={"tokens": token_by_token, "preallocated": preallocated},
)  # fmt: skip
