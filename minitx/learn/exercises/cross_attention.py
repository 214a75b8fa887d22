"""Cross-attention: queries from here, keys and values from the memory, which therefore gets two gradients."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, softmax_backward, with_backward
from minitx.op import Array


def draw(rng: Rng, B: int, T: int, S: int) -> Arguments:
    shapes = {"x": (B, T, 5), "memory": (B, S, 11), "w_q": (13, 5), "w_k": (13, 11), "w_v": (17, 11)}
    return {name: rng.standard_normal(shape) / math.sqrt(shape[-1]) for name, shape in shapes.items()}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 4, 3, 7)


def adversarial(rng: Rng) -> Cases:
    return {"more-queries": draw(rng, 2, 7, 3), "one-key": draw(rng, 2, 3, 1), "one-query": draw(rng, 1, 1, 5)}


def terms(do: Array, x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> dict[str, list[Array]]:
    q, k, v, w = projected(x, memory, w_q, w_k, w_v)
    _, dk, dv = back(do, q, k, v, w)
    return {"memory": [dk @ w_k, dv @ w_v]}


def intermediates(do: Array, x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> dict[str, Array]:
    q, k, v, w = projected(x, memory, w_q, w_k, w_v)
    dq, dk, dv = back(do, q, k, v, w)
    return {"w": w, "dv": dv, "dw": do @ v.swapaxes(1, 2), "dq": dq, "dk": dk}


def cross_attention(x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    scale = 1 / math.sqrt(len(w_q))
    q = x @ w_q.T  # (B, T, d)
    k = memory @ w_k.T  # (B, S, d)
    v = memory @ w_v.T  # (B, S, d_v)
    s = scale * q @ k.swapaxes(1, 2)  # (B, T, S)
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    o = w @ v  # (B, T, d_v)

    def backward(do: Array) -> tuple[Array, ...]:
        # o = w v
        dv = w.swapaxes(1, 2) @ do  # (B, S, d_v)
        dw = do @ v.swapaxes(1, 2)  # (B, T, S)
        # w = softmax(s),  s = scale q kᵀ
        ds = scale * w * (dw - (dw * w).sum(-1, keepdims=True))
        dq = ds @ k  # (B, T, d)
        dk = ds.swapaxes(1, 2) @ q  # (B, S, d)
        # q = x w_qᵀ,  k = memory w_kᵀ,  v = memory w_vᵀ
        dx = dq @ w_q
        dmemory = dk @ w_k + dv @ w_v  # term 1, as keys, and term 2, as values
        return dx, dmemory, rows(dq).T @ rows(x), rows(dk).T @ rows(memory), rows(dv).T @ rows(memory)

    def rows(a: Array) -> Array:
        return a.reshape(-1, a.shape[-1])

    return o, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def projected(x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> tuple[Array, ...]:
    q, k, v = x @ w_q.T, memory @ w_k.T, memory @ w_v.T
    return q, k, v, softmax(q @ k.swapaxes(1, 2) / math.sqrt(len(w_q)))


def back(do: Array, q: Array, k: Array, v: Array, w: Array) -> tuple[Array, Array, Array]:
    ds = softmax_backward(w, do @ v.swapaxes(1, 2)) / math.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(1, 2) @ q, w.swapaxes(1, 2) @ do


def outer(a: Array, b: Array) -> Any:
    return np.einsum("bnd,bne->de", a, b)


def forward(x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Array:
    *_, v, w = projected(x, memory, w_q, w_k, w_v)
    return w @ v


def changed(change: Any) -> Any:
    """change(dq, dk, dv, x, memory, w_q, w_k, w_v) → the five gradients."""

    def backward(do: Array, *given: Array) -> Any:
        return change(*back(do, *projected(*given)), *given)

    return with_backward(forward, backward)


def gradients(dq: Array, dk: Array, dv: Array, x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    return dq @ w_q, dk @ w_k + dv @ w_v, outer(dq, x), outer(dk, memory), outer(dv, memory)


def averaged(dq: Array, dk: Array, dv: Array, x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    """Two uses of the memory, and the mean of what they send."""
    dx, dmemory, *dw = gradients(dq, dk, dv, x, memory, w_q, w_k, w_v)
    return dx, dmemory / 2, *dw


def batch_mean(dq: Array, dk: Array, dv: Array, x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    dx, dmemory, *dw = gradients(dq, dk, dv, x, memory, w_q, w_k, w_v)
    return dx, dmemory, *(d / len(x) for d in dw)


def projections_of_gradients(
    dq: Array, dk: Array, dv: Array, x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array
) -> Any:
    """w_k's gradient from the keys themselves instead of the memory they were made of."""
    dx, dmemory, dw_q, _, dw_v = gradients(dq, dk, dv, x, memory, w_q, w_k, w_v)
    return dx, dmemory, dw_q, outer(dk, memory @ w_k.T @ w_k), dw_v


def scaled(factor: Any) -> Any:
    def change(dq: Array, dk: Array, *rest: Array) -> Any:
        f = factor(dq.shape[-1])
        return gradients(f * dq, f * dk, *rest)

    return changed(change)


def detached(dq: Array, dk: Array, dv: Array, x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    """Nothing goes back to the encoder."""
    dx, dmemory, *dw = gradients(dq, dk, dv, x, memory, w_q, w_k, w_v)
    return dx, 0 * dmemory, *dw


def keys_and_values_at_once(x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    """One product makes keys and values, so the two gradients of memory are one product, too."""
    d = len(w_q)
    W = np.concatenate([w_k, w_v])
    kv = memory @ W.T
    k, v = kv[..., :d], kv[..., d:]
    q = x @ w_q.T
    w = softmax(np.einsum("btd,bsd->bts", q, k) / math.sqrt(d))

    def backward(do: Array) -> Any:
        dq, dk, dv = back(do, q, k, v, w)
        dkv = np.concatenate([dk, dv], -1)
        dW = outer(dkv, memory)
        return dq @ w_q, dkv @ W, outer(dq, x), dW[:d], dW[d:]

    return w @ v, backward


def absorbed(x: Array, memory: Array, w_q: Array, w_k: Array, w_v: Array) -> Any:
    """Keys are never made: x w_qᵀ w_k meets the memory itself; nor values: the mean of the memory is projected."""
    scale = 1 / math.sqrt(len(w_q))
    q = x @ w_q.T
    u = q @ w_k
    w = softmax(scale * u @ memory.swapaxes(1, 2))
    m = w @ memory

    def backward(do: Array) -> Any:
        dm = do @ w_v
        dw = dm @ memory.swapaxes(1, 2)
        ds = scale * softmax_backward(w, dw)
        du = ds @ memory
        dmemory = w.swapaxes(1, 2) @ dm + ds.swapaxes(1, 2) @ u
        dq = du @ w_k.T
        return dq @ w_q, dmemory, outer(dq, x), outer(q, du), outer(do, m)

    return m @ w_v.T, backward


EXERCISE = Exercise(
    slug="cross-attention",
    part=1,
    minutes=90,
    needs=("attention", "residual"),
    idioms=("a.reshape(-1, a.shape[-1])", "k.swapaxes(1, 2)"),
    equation="q = x w_qᵀ;  k = memory w_kᵀ;  v = memory w_vᵀ;  w = softmax(q kᵀ / √d);  o = w v",
    shapes={
        "x": "(B, T, D)", "memory": "(B, S, E)", "w_q": "(d, D)", "w_k": "(d, E)",
        "w_v": "(d_v, E)", "q": "(B, T, d)", "k": "(B, S, d)", "v": "(B, S, d_v)", "w": "(B, T, S)", "o": "(B, T, d_v)",
        "do": "(B, T, d_v)",
    },
    function="cross_attention",
    signature="x, memory, w_q, w_k, w_v",
    results=("o",),
    gradients=("x", "memory", "w_q", "w_k", "w_v"),
    solution=cross_attention,
    arguments=arguments,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "averaged": changed(averaged),
        "batch-mean": changed(batch_mean),
        "keys-for-memory": changed(projections_of_gradients),
        "scale-forgotten": scaled(lambda d: math.sqrt(d)),
        "scale-twice": scaled(lambda d: 1 / math.sqrt(d)),
        "detached": changed(detached),
    },
    unusual={"at-once": keys_and_values_at_once, "absorbed": absorbed},
)  # fmt: skip
