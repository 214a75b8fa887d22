"""Grouped queries: several query heads share a key and value head, which collects from all of them."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, softmax_backward, with_backward
from minitx.op import Array


def draw(rng: Rng, B: int, H: int, H_kv: int, T: int, S: int, d: int, e: int) -> Arguments:
    shapes = {"q": (B, H, T, d), "k": (B, H_kv, S, d), "v": (B, H_kv, S, e)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 1, 6, 3, 5, 7, 4, 8)


def adversarial(rng: Rng) -> Cases:
    return {
        "one-for-all": draw(rng, 2, 3, 1, 5, 7, 4, 8),
        "one-each": draw(rng, 2, 3, 3, 5, 7, 4, 8),
        "groups-of-three": draw(rng, 2, 6, 2, 5, 7, 4, 8),
    }


def terms(do: Array, q: Array, k: Array, v: Array) -> dict[str, list[Array]]:
    """Of dk and dv: what the first query head of each group sends, what the second does, ..."""
    B, H_kv, S, d = k.shape
    r = q.shape[1] // H_kv
    _, dk, dv = each(do, q, k, v)
    dk, dv = dk.reshape(B, H_kv, r, S, d), dv.reshape(B, H_kv, r, S, -1)
    return {"k": [dk[:, :, i] for i in range(r)], "v": [dv[:, :, i] for i in range(r)]}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def consecutive(H: int, H_kv: int) -> Array:
    """The key head of each query head."""
    return np.arange(H) // (H // H_kv)


def each(do: Array, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    """dq, and what every query head sends to the keys and values it used: (B, H, S, d), (B, H, S, d_v)."""
    own = consecutive(q.shape[1], k.shape[1])
    K, V = k[:, own], v[:, own]
    w = softmax(q @ K.swapaxes(2, 3) / math.sqrt(q.shape[3]))
    ds = softmax_backward(w, do @ V.swapaxes(2, 3)) / math.sqrt(q.shape[3])
    return ds @ K, ds.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do


def forward(q: Array, k: Array, v: Array) -> Any:
    own = consecutive(q.shape[1], k.shape[1])
    return softmax(q @ k[:, own].swapaxes(2, 3) / math.sqrt(q.shape[3])) @ v[:, own]


def grouped(a: Array, H_kv: int) -> Array:
    return a.reshape(a.shape[0], H_kv, a.shape[1] // H_kv, *a.shape[2:])


def changed(collect: Any) -> Any:
    """dk and dv as collect(what each query head sends, H_kv) makes them."""

    def backward(do: Array, q: Array, k: Array, v: Array) -> Any:
        dq, dk, dv = each(do, q, k, v)
        return dq, collect(dk, k.shape[1]), collect(dv, k.shape[1])

    return with_backward(forward, backward)


def from_weights(ds: Any) -> Any:
    """Backward from ds(w, dw, 1/√d), with everything collected as it should be."""

    def backward(do: Array, q: Array, k: Array, v: Array) -> Any:
        own = consecutive(q.shape[1], k.shape[1])
        scale = 1 / math.sqrt(q.shape[3])
        w = softmax(q @ k[:, own].swapaxes(2, 3) * scale)
        given = ds(w, do @ v[:, own].swapaxes(2, 3), scale)
        dk, dv = given.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do
        return given @ k[:, own], grouped(dk, k.shape[1]).sum(2), grouped(dv, k.shape[1]).sum(2)

    return with_backward(forward, backward)


def every_third(a: Array, H_kv: int) -> Any:
    """Collected as if query head i had used key head i % H_kv."""
    return a.reshape(a.shape[0], a.shape[1] // H_kv, H_kv, *a.shape[2:]).sum(1)


def modulo(q: Array, k: Array, v: Array) -> Any:
    """Query head i uses key head i % H_kv, forward and backward."""
    own = np.arange(q.shape[1]) % k.shape[1]
    K, V = k[:, own], v[:, own]
    w = softmax(q @ K.swapaxes(2, 3) / math.sqrt(q.shape[3]))

    def backward(do: Array) -> Any:
        ds = softmax_backward(w, do @ V.swapaxes(2, 3)) / math.sqrt(q.shape[3])
        return ds @ K, every_third(ds.swapaxes(2, 3) @ q, k.shape[1]), every_third(w.swapaxes(2, 3) @ do, k.shape[1])

    return w @ V, backward


def one_list(q: Array, k: Array, v: Array) -> Any:
    """The queries of a group, one after the other, as one longer list for their key head."""
    B, H, T, d = q.shape
    H_kv = k.shape[1]
    Q = q.reshape(B, H_kv, H // H_kv * T, d)
    w = softmax(Q @ k.swapaxes(2, 3) / math.sqrt(d))

    def backward(do: Array) -> Any:
        DO = do.reshape(B, H_kv, H // H_kv * T, -1)
        ds = softmax_backward(w, DO @ v.swapaxes(2, 3)) / math.sqrt(d)
        return (ds @ k).reshape(q.shape), ds.swapaxes(2, 3) @ Q, w.swapaxes(2, 3) @ DO

    return (w @ v).reshape(B, H, T, -1), backward


def einsum(q: Array, k: Array, v: Array) -> Any:
    d, H_kv = q.shape[3], k.shape[1]
    Q = grouped(q, H_kv)
    w = softmax(np.einsum("bgrtd,bgsd->bgrts", Q, k) / math.sqrt(d))

    def backward(do: Array) -> Any:
        DO = grouped(do, H_kv)
        ds = softmax_backward(w, np.einsum("bgrte,bgse->bgrts", DO, v)) / math.sqrt(d)
        dq = np.einsum("bgrts,bgsd->bgrtd", ds, k).reshape(q.shape)
        return dq, np.einsum("bgrts,bgrtd->bgsd", ds, Q), np.einsum("bgrts,bgrte->bgse", w, DO)

    return np.einsum("bgrts,bgse->bgrte", w, v).reshape(*q.shape[:3], -1), backward


def head_by_head(q: Array, k: Array, v: Array) -> Any:
    H, d = q.shape[1], q.shape[3]
    own = consecutive(H, k.shape[1])
    w = [softmax(q[:, h] @ k[:, g].swapaxes(1, 2) / math.sqrt(d)) for h, g in enumerate(own)]

    def backward(do: Array) -> Any:
        dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
        for h, g in enumerate(own):
            ds = softmax_backward(w[h], do[:, h] @ v[:, g].swapaxes(1, 2)) / math.sqrt(d)
            dq[:, h] = ds @ k[:, g]
            dk[:, g] += ds.swapaxes(1, 2) @ q[:, h]
            dv[:, g] += w[h].swapaxes(1, 2) @ do[:, h]
        return dq, dk, dv

    return np.stack([w[h] @ v[:, g] for h, g in enumerate(own)], 1), backward


EXERCISE = Exercise(
    slug="grouped-query",
    part=1,
    minutes=30,
    needs=("attention", "sum"),
    idioms=("np.repeat(k, H // H_kv, axis=1)", "dk.reshape(B, H_kv, H // H_kv, S, d)"),
    equation="o_i = softmax(q_i k_gᵀ / √d) v_g,  g = i // (H / H_kv)",
    shapes={
        "q": "(B, H, T, d)", "k": "(B, H_kv, S, d)", "v": "(B, H_kv, S, d_v)", "o": "(B, H, T, d_v)",
        "do": "(B, H, T, d_v)",
    },
    function="grouped_query",
    signature="q, k, v",
    results=("o",),
    gradients=("q", "k", "v"),
    op="attention",
    arguments=arguments,
    adversarial=adversarial,
    terms=terms,
    mutants={
        "modulo": modulo,
        "modulo-backward": changed(every_third),
        "group-mean": changed(lambda a, H_kv: grouped(a, H_kv).mean(2)),
        "group-unsummed": changed(lambda a, H_kv: a),
        "second-term": from_weights(lambda w, dw, scale: w * dw * scale),
        "bare-sum": from_weights(lambda w, dw, scale: w * (dw - dw.sum(-1, keepdims=True)) * scale),
        "weight-in-front": from_weights(lambda w, dw, scale: (dw - (dw * w).sum(-1, keepdims=True)) * scale),
        "scale-forgotten": from_weights(lambda w, dw, scale: softmax_backward(w, dw)),
        "sum-of-all": changed(lambda a, H_kv: np.repeat(a.sum(1, keepdims=True), H_kv, 1)),
    },
    unusual={"list": one_list, "einsum": einsum, "heads": head_by_head},
)  # fmt: skip
