"""Attention tile by tile: an online softmax forward, and the weights made again from what it leaves."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, softmax_backward, with_backward
from minitx.op import Array


def draw(rng: Rng, mask: Array, block_k: int, shape: tuple[int, int] = (1, 2)) -> Arguments:
    T, S = mask.shape
    return {
        "q": rng.standard_normal((*shape, T, 4)),
        "k": rng.standard_normal((*shape, S, 4)),
        "v": rng.standard_normal((*shape, S, 6)),
        "mask": mask,
        "block_k": block_k,
    }


def arguments(rng: Rng) -> Arguments:
    mask = rng.random((3, 5)) < 0.7
    mask[np.arange(3), rng.integers(0, 5, 3)] = True  # every query sees a key
    return draw(rng, mask, 2)


def forward_cases(rng: Rng) -> Cases:
    rising = draw(rng, np.full((3, 7), True), 2)
    rising["k"] *= 300 * np.arange(1, 8)[:, None]
    return {"rising": rising}


def adversarial(rng: Rng) -> Cases:
    late = np.full((3, 7), True)
    late[1, :5] = False  # this query's first tiles are empty
    blind = np.full((3, 7), True)
    blind[2] = False
    falling = draw(rng, np.full((3, 7), True), 3)
    falling["k"] *= np.arange(7, 0, -1)[:, None]
    return {
        "late": draw(rng, late, 2),
        "blind": draw(rng, blind, 3),
        "one-by-one": draw(rng, late, 1),
        "one-tile": draw(rng, late, 100),
        "falling": falling,
        "batch": draw(rng, np.tri(5, 7, 2, dtype=bool), 3, (2, 3)),
    }


def terms(do: Array, q: Array, k: Array, v: Array, mask: Array, block_k: int) -> dict[str, list[Array]]:
    w, scale = weights(q, k, mask), 1 / math.sqrt(q.shape[-1])
    one = scale * w * (do @ v.swapaxes(2, 3))
    two = -scale * w * (do * (w @ v)).sum(-1, keepdims=True)
    return {"q": [one @ k, two @ k], "k": [one.swapaxes(2, 3) @ q, two.swapaxes(2, 3) @ q]}


def intermediates(do: Array, q: Array, k: Array, v: Array, mask: Array, block_k: int) -> dict[str, Array]:
    return {"o": forward(q, k, v, mask, block_k)}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def weights(q: Array, k: Array, mask: Any = True) -> Any:
    return softmax(np.where(mask, q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1]), -np.inf))


def forward(q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
    return weights(q, k, mask) @ v


def online(shrink_sum: bool = True, shrink_output: bool = True, empty_tiles: bool = True, last: bool = True) -> Any:
    """The online softmax with or without each of its cares; the backward is that of attention."""

    def value(q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Array:
        M = np.full((*q.shape[:3], 1), -np.inf)
        l, a = np.zeros_like(M), np.zeros((*q.shape[:3], v.shape[3]))
        for j in range(0, k.shape[2], block_k):
            tile = slice(j, j + block_k)
            z = np.where(mask[:, tile], q @ k[:, :, tile].swapaxes(2, 3) / math.sqrt(q.shape[3]), -np.inf)
            new = np.maximum(M, z.max(-1, keepdims=True))
            safe = np.where(np.isneginf(new), 0, new) if empty_tiles else new
            e, shrink = np.exp(z - safe), np.exp(M - safe)
            l = l * (shrink if shrink_sum else 1) + e.sum(-1, keepdims=True)
            a = a * (shrink if shrink_output else 1) + e @ v[:, :, tile]
            M = new
            if not last:
                a, l = a / np.where(l == 0, 1, l), np.ones_like(l)
        return a / np.where(l == 0, 1, l)

    return value


def back(do: Array, q: Array, k: Array, w: Array, dz: Array) -> tuple[Array, Array, Array]:
    ds = dz / math.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(2, 3) @ q, w.swapaxes(2, 3) @ do


def right(do: Array, q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
    w = weights(q, k, mask)
    return back(do, q, k, w, softmax_backward(w, do @ v.swapaxes(2, 3)))


def tile_D(do: Array, q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
    """Σ_j dw_j w_j over the keys of the tile only."""
    w, dw = weights(q, k, mask), do @ v.swapaxes(2, 3)
    dz = np.zeros(w.shape)
    for j in range(0, k.shape[2], block_k):
        tile = slice(j, j + block_k)
        p, g = w[..., tile], dw[..., tile]
        dz[..., tile] = p * (g - (g * p).sum(-1, keepdims=True))
    return back(do, q, k, w, dz)


def tile_weights(do: Array, q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
    """Each tile's weights normalised by the tile's own sum."""
    w, dw = weights(q, k, mask), do @ v.swapaxes(2, 3)
    D = (do * (w @ v)).sum(-1, keepdims=True)
    for j in range(0, k.shape[2], block_k):
        tile = slice(j, j + block_k)
        w[..., tile] = weights(q, k[:, :, tile], mask[:, tile])
    return back(do, q, k, w, w * (dw - D))


def mask_forgotten(do: Array, q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
    """Backward makes the weights again and forgets the mask; the log-sum-exp is right."""
    s = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3])
    z = np.where(mask, s, -np.inf)
    top = np.where(mask.any(-1, keepdims=True), z.max(-1, keepdims=True), 0)
    w = np.exp(s - top) / np.maximum(np.exp(z - top).sum(-1, keepdims=True), 1e-300)
    w = np.where(mask.any(-1, keepdims=True), w, 0)
    D = (do * forward(q, k, v, mask, block_k)).sum(-1, keepdims=True)
    return back(do, q, k, w, w * (do @ v.swapaxes(2, 3) - D))


def remade(weights_of: Any) -> Any:
    """Backward with the weights that weights_of(scores without scale, mask, M, l, 1/√d) makes again."""

    def backward(do: Array, q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
        scale = 1 / math.sqrt(q.shape[3])
        s = q @ k.swapaxes(2, 3)
        z = np.where(mask, s * scale, -np.inf)
        M = z.max(-1, keepdims=True)
        M = np.where(np.isneginf(M), 0, M)
        l = np.exp(z - M).sum(-1, keepdims=True)
        w = weights_of(np.where(mask, s, -np.inf), M, np.where(l == 0, 1, l), scale)
        D = (do * forward(q, k, v, mask, block_k)).sum(-1, keepdims=True)
        return back(do, q, k, w, w * (do @ v.swapaxes(2, 3) - D))

    return with_backward(forward, backward)


def last_tile_only(do: Array, q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
    """dq is assigned by every tile, not added to."""
    w = weights(q, k, mask)
    dz = softmax_backward(w, do @ v.swapaxes(2, 3))
    _, dk, dv = back(do, q, k, w, dz)
    last = (k.shape[2] - 1) // block_k * block_k
    return dz[..., last:] @ k[:, :, last:] / math.sqrt(q.shape[-1]), dk, dv


def by_log_sum_exp(q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
    """Only the log-sum-exp is kept, and a tile is merged with what came before as a weighted mean of two outputs."""
    scale = q.shape[3] ** -0.5
    tiles = [slice(j, j + block_k) for j in range(0, k.shape[2], block_k)]

    def scores(tile: slice) -> Array:
        return np.where(mask[:, tile], np.einsum("bhtd,bhsd->bhts", q, k[:, :, tile]) * scale, -np.inf)

    lse = np.full((*q.shape[:3], 1), -np.inf)
    o = np.zeros((*q.shape[:3], v.shape[3]))
    for tile in tiles:
        z = scores(tile)
        m = z.max(-1, keepdims=True)
        m = np.where(np.isfinite(m), m, 0)
        with np.errstate(divide="ignore"):
            own = m + np.log(np.exp(z - m).sum(-1, keepdims=True))
        both = np.logaddexp(lse, own)
        safe = np.where(np.isfinite(both), both, 0)
        o = o * np.exp(lse - safe) + np.exp(z - safe) @ v[:, :, tile]
        lse = both

    def backward(do: Array) -> Any:
        dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
        D = (do * o).sum(-1, keepdims=True)
        safe = np.where(np.isfinite(lse), lse, 0)
        for tile in tiles:
            w = np.exp(scores(tile) - safe)
            dv[:, :, tile] = w.swapaxes(2, 3) @ do
            ds = scale * w * (do @ v[:, :, tile].swapaxes(2, 3) - D)
            dq += ds @ k[:, :, tile]
            dk[:, :, tile] = ds.swapaxes(2, 3) @ q
        return dq, dk, dv

    return o, backward


def query_by_query(q: Array, k: Array, v: Array, mask: Array, block_k: int) -> Any:
    """One query at a time, one key at a time, as if block_k were 1."""
    scale = 1 / math.sqrt(q.shape[3])
    o = np.zeros((*q.shape[:3], v.shape[3]))
    kept = {}
    for b, h, t in np.ndindex(*q.shape[:3]):
        M, l, a = -np.inf, 0.0, np.zeros(v.shape[3])
        for s in np.flatnonzero(mask[t]):
            z = scale * (q[b, h, t] @ k[b, h, s])
            new = max(M, z)
            l = l * math.exp(M - new) + math.exp(z - new)
            a = a * math.exp(M - new) + math.exp(z - new) * v[b, h, s]
            M = new
        if l:
            o[b, h, t] = a / l
            kept[b, h, t] = (M, l)

    def backward(do: Array) -> Any:
        dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
        for (b, h, t), (M, l) in kept.items():
            D = do[b, h, t] @ o[b, h, t]
            for s in np.flatnonzero(mask[t]):
                w = math.exp(scale * (q[b, h, t] @ k[b, h, s]) - M) / l
                ds = scale * w * (do[b, h, t] @ v[b, h, s] - D)
                dv[b, h, s] += w * do[b, h, t]
                dq[b, h, t] += ds * k[b, h, s]
                dk[b, h, s] += ds * q[b, h, t]
        return dq, dk, dv

    return o, backward


EXERCISE = Exercise(
    slug="tiled-attention",
    part=1,
    minutes=90,
    needs=("causal-padding", "log-softmax"),
    idioms=("np.maximum(M, z.max(-1, keepdims=True))", "np.where(np.isneginf(M), 0, M)", "k[:, :, j : j + block_k]"),
    equation="""\
M = -∞;  l = 0;  a = 0
for j = 0, block_k, 2 block_k ...:  z = where(mask, q kᵀ / √d, -∞)        (S: j ... j + block_k - 1)
    M' = max(M, max_s z_s);  e = exp(z - M');  l' = exp(M - M') l + Σ_s e_s;  a' = exp(M - M') a + e v
o = a / l""",
    shapes={
        "q": "(B, H, T, d)", "k": "(B, H, S, d)", "v": "(B, H, S, d_v)", "mask": "(T, S) bool",
        "z, e": "(B, H, T, block_k)", "M, l": "(B, H, T, 1)", "a": "(B, H, T, d_v)", "o": "(B, H, T, d_v)",
        "do": "(B, H, T, d_v)",
    },
    function="tiled_attention",
    signature="q, k, v, mask, block_k=128",
    results=("o",),
    gradients=("q", "k", "v"),
    op="tiled_attention",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "sum-not-shrunk": with_backward(online(shrink_sum=False), right),
        "output-not-shrunk": with_backward(online(shrink_output=False), right),
        "empty-tile": with_backward(online(empty_tiles=False), right),
        "divided-each-time": with_backward(online(last=False), right),
        "tile-sum": with_backward(forward, tile_D),
        "tile-weights": with_backward(forward, tile_weights),
        "mask-forgotten": with_backward(forward, mask_forgotten),
        "not-normalised": remade(lambda s, M, l, scale: np.exp(s * scale - M)),
        "maximum-forgotten": remade(lambda s, M, l, scale: np.exp(s * scale) / l),
        "scores-unscaled": remade(lambda s, M, l, scale: np.exp(s - M) / l),
        "last-tile": with_backward(forward, last_tile_only),
    },
    unusual={
        "log-sum-exp": by_log_sum_exp,
        "queries": query_by_query,
        "whole": with_backward(forward, right),
    },
)  # fmt: skip
