"""Scaled dot-product attention: a weighted mean of the values, in which the weights move too."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, softmax_backward, with_backward
from minitx.op import Array


def draw(rng: Rng, T: int, S: int, d: int = 3, e: int = 13) -> Arguments:
    return {
        "q": rng.standard_normal((2, 3, T, d)),
        "k": rng.standard_normal((2, 3, S, d)),
        "v": rng.standard_normal((2, 3, S, e)),
    }


def arguments(rng: Rng) -> Arguments:
    shapes = {"q": (1, 2, 3, 7), "k": (1, 2, 5, 7), "v": (1, 2, 5, 11)}
    return {name: rng.standard_normal(shape) for name, shape in shapes.items()}


def forward_cases(rng: Rng) -> Cases:
    made = draw(rng, 5, 7)
    return {"large": made | {"q": 500 * made["q"]}}


def adversarial(rng: Rng) -> Cases:
    same = draw(rng, 3, 5)
    same["k"][:] = same["k"][:, :, :1]
    square = draw(rng, 3, 3, 3, 3)
    return {"one-key": draw(rng, 5, 1), "one-query": draw(rng, 1, 5), "equal-keys": same, "square": square}


def terms(do: Array, q: Array, k: Array, v: Array) -> dict[str, list[Array]]:
    w, scale = weights(q, k), 1 / math.sqrt(q.shape[-1])
    dw = do @ v.swapaxes(2, 3)
    one, two = scale * w * dw, -scale * w * (dw * w).sum(-1, keepdims=True)
    return {"q": [one @ k, two @ k], "k": [one.swapaxes(2, 3) @ q, two.swapaxes(2, 3) @ q]}


def intermediates(do: Array, q: Array, k: Array, v: Array) -> dict[str, Array]:
    return {"w": weights(q, k), "dw": do @ v.swapaxes(2, 3)}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def weights(q: Array, k: Array) -> Any:
    return softmax(q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1]))


def forward(q: Array, k: Array, v: Array) -> Any:
    return weights(q, k) @ v


def right(do: Array, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array]:
    w = weights(q, k)
    ds = softmax_backward(w, do @ v.swapaxes(2, 3)) / math.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do


def changed_ds(ds: Any) -> Any:
    """dq and dk from ds(w, dw, 1/√d), dv as it should be."""

    def backward(do: Array, q: Array, k: Array, v: Array) -> Any:
        w = weights(q, k)
        given = ds(w, do @ v.swapaxes(2, 3), 1 / math.sqrt(q.shape[-1]))
        return given @ k, given.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do

    return with_backward(forward, backward)


def changed(change: Any) -> Any:
    """change(dq, dk, dv, do, q, k, v) in place of the right gradients."""
    return with_backward(forward, lambda do, q, k, v: change(*right(do, q, k, v), do, q, k, v))


def weights_constant(dq: Array, dk: Array, dv: Array, do: Array, q: Array, k: Array, v: Array) -> Any:
    return 0 * dq, 0 * dk, dv


def dk_of_keys(dq: Array, dk: Array, dv: Array, do: Array, q: Array, k: Array, v: Array) -> Any:
    """Key j times the sum of its column of ds, where the queries, weighted by that column, should be summed."""
    w = weights(q, k)
    ds = softmax_backward(w, do @ v.swapaxes(2, 3)) / math.sqrt(q.shape[-1])
    return dq, ds.sum(2)[..., None] * k, dv


def dv_by_output(dq: Array, dk: Array, dv: Array, do: Array, q: Array, k: Array, v: Array) -> Any:
    return dq, dk, weights(q, k).swapaxes(2, 3) @ forward(q, k, v)


def dw_of_values(dq: Array, dk: Array, dv: Array, do: Array, q: Array, k: Array, v: Array) -> Any:
    """dw made of what attention gave, o, instead of what came back."""
    w = weights(q, k)
    ds = softmax_backward(w, forward(q, k, v) @ v.swapaxes(2, 3)) / math.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(2, 3) @ q, dv


def over_queries(q: Array, k: Array, v: Array) -> Any:
    """The softmax along the queries: every key shares itself out."""
    scale = 1 / math.sqrt(q.shape[-1])
    w = softmax((q @ k.swapaxes(2, 3) * scale).swapaxes(2, 3)).swapaxes(2, 3)

    def backward(do: Array) -> Any:
        dw = do @ v.swapaxes(2, 3)
        ds = w * (dw - (dw * w).sum(2, keepdims=True)) * scale
        return ds @ k, ds.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do

    return w @ v, backward


def other_scale(scale: Any) -> Any:
    """Another scale than 1/√d, forward and backward alike."""

    def function(q: Array, k: Array, v: Array) -> Any:
        s = scale(q, v)
        w = softmax(q @ k.swapaxes(2, 3) * s)

        def backward(do: Array) -> Any:
            ds = softmax_backward(w, do @ v.swapaxes(2, 3)) * s
            return ds @ k, ds.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do

        return w @ v, backward

    return function


def einsum(q: Array, k: Array, v: Array) -> Any:
    s = np.einsum("...td,...sd->...ts", q, k) / q.shape[-1] ** 0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    w = e / np.einsum("...ts->...t", e)[..., None]

    def backward(do: Array) -> Any:
        dw = np.einsum("...te,...se->...ts", do, v)
        ds = w * (dw - np.einsum("...ts,...ts->...t", dw, w)[..., None]) / q.shape[-1] ** 0.5
        return (
            np.einsum("...ts,...sd->...td", ds, k),
            np.einsum("...ts,...td->...sd", ds, q),
            np.einsum("...ts,...te->...se", w, do),
        )

    return np.einsum("...ts,...se->...te", w, v), backward


def by_output(q: Array, k: Array, v: Array) -> Any:
    """Σ_j dw_j w_j without dw: it is do · o. And the scale put on q."""
    qs = q / math.sqrt(q.shape[-1])
    w = softmax(qs @ k.swapaxes(2, 3))
    o = w @ v

    def backward(do: Array) -> Any:
        ds = w * (do @ v.swapaxes(2, 3) - (do * o).sum(-1, keepdims=True))
        return ds @ k / math.sqrt(q.shape[-1]), ds.swapaxes(2, 3) @ qs, w.swapaxes(2, 3) @ do

    return o, backward


def query_by_query(q: Array, k: Array, v: Array) -> Any:
    B, H, T, d = q.shape
    o = np.empty((B, H, T, v.shape[3]))
    w = {}
    for b, h, t in np.ndindex(B, H, T):
        e = np.exp(k[b, h] @ q[b, h, t] / math.sqrt(d) - (k[b, h] @ q[b, h, t]).max() / math.sqrt(d))
        w[b, h, t] = e / e.sum()
        o[b, h, t] = w[b, h, t] @ v[b, h]

    def backward(do: Array) -> Any:
        dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
        for (b, h, t), p in w.items():
            dv[b, h] += np.outer(p, do[b, h, t])
            J = np.diag(p) - np.outer(p, p)
            ds = J @ (v[b, h] @ do[b, h, t]) / math.sqrt(d)
            dq[b, h, t] = ds @ k[b, h]
            dk[b, h] += np.outer(ds, q[b, h, t])
        return dq, dk, dv

    return o, backward


EXERCISE = Exercise(
    slug="attention",
    part=1,
    minutes=90,
    needs=("attention-weights", "linear"),
    idioms=("k.swapaxes(-1, -2)", "math.sqrt(d)"),
    equation="s = q kᵀ / √d;  w = softmax(s);  o = w v",
    shapes={
        "q": "(B, H, T, d)", "k": "(B, H, S, d)", "v": "(B, H, S, d_v)", "s, w": "(B, H, T, S)", "o": "(B, H, T, d_v)",
        "do": "(B, H, T, d_v)",
    },
    function="attention",
    signature="q, k, v",
    results=("o",),
    gradients=("q", "k", "v"),
    op="attention",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "over-queries": over_queries,
        "unscaled": other_scale(lambda q, v: 1.0),
        "scaled-by-d": other_scale(lambda q, v: 1 / q.shape[-1]),
        "scaled-by-value": other_scale(lambda q, v: 1 / math.sqrt(v.shape[-1])),
        "scale-forgotten": changed_ds(lambda w, dw, scale: softmax_backward(w, dw)),
        "scale-twice": changed_ds(lambda w, dw, scale: softmax_backward(w, dw) * scale**2),
        "softmax-skipped": changed_ds(lambda w, dw, scale: dw * scale),
        "bare-sum": changed_ds(lambda w, dw, scale: w * (dw - dw.sum(-1, keepdims=True)) * scale),
        "weight-in-front": changed_ds(lambda w, dw, scale: (dw - (dw * w).sum(-1, keepdims=True)) * scale),
        "sum-over-queries": changed_ds(lambda w, dw, scale: w * (dw - (dw * w).sum(-2, keepdims=True)) * scale),
        "own-weight-only": changed_ds(lambda w, dw, scale: w * (1 - w) * dw * scale),
        "weights-constant": changed(weights_constant),
        "dk-of-keys": changed(dk_of_keys),
        "dv-of-output": changed(dv_by_output),
        "dw-of-output": changed(dw_of_values),
    },
    unusual={"einsum": einsum, "output": by_output, "queries": query_by_query},
)  # fmt: skip
