"""Attention without the T x S matrix: the same function, computed tile by tile with an online softmax."""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minitx import masks
from minitx.op import Array, Forward, op
from minitx.ops.attention import allowed_pairs, check_shapes, readable, sum_to
from minitx.ops.checks import probability
from minitx.ops.dropout import dropout_factors_at, dropout_key


@op("q", "k", "v", "bias")
def tiled_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Any = None,
    bias: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    query_offset: Any = None,
    dropout: float = 0.0,
    rng: np.random.Generator | None = None,
    block_q: int = 128,
    block_k: int = 128,
) -> Forward:
    """
    for: attention over long texts: its memory grows with the length, not with the square of the length.

    equation:
        M = -∞, l = 0, a = 0, and then for every tile of the keys, with the scores z as in attention_weights:
        M' = max(M, max_s z_s)
        e  = exp(z - M')
        l' = exp(M - M') l + Σ_s e_s
        a' = exp(M - M') a + (m * e) v
        o  = a / l                                  after the last

    where:
        q, k, v, mask, bias, scale, softcap, query_offset, dropout, rng: as in attention, and so is o
        block_q, block_k  queries and keys of a tile
        M, l, a  (B, H, block_q, 1 or d_v)  the maximum so far, the sum and the output so far, measured against it

    by hand:
        >>> q = k = np.zeros((1, 1, 3, 1))
        >>> v = np.array([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
        >>> tiled_attention(q, k, v, mask=masks.causal(), block_k=1).numpy().ravel()
        array([1. , 1.5, 3. ])

    backward:
        w  = exp(z - M) / l           the scores z of each tile are made again, M and l are the last ones
        dv = Σ (m * w)ᵀ do
        dw = m * (do vᵀ)
        dz = w * dw                   (term 1)
           - w * D,   D = do·o        (term 2)
        dbias, dq, dk from dz, as in attention_weights

    why:
        exp(z - M) / Σ exp(z - M) does not depend on M. So when a tile brings a larger score, what was summed so far is
        brought to the new maximum by the one factor exp(M - M'), and nothing else need be kept. Backward needs the
        weights, and M and l give them back tile by tile. It also needs Σ_j dw_j w_j over all keys of a query before
        the first tile is done: that is Σ_j m_j (do·v_j) w_j = do·Σ_j m_j w_j v_j = do·o.

    saved: q, k, v, o, M, l: nothing of size T S (unless the mask is a boolean array, or the bias has -inf).

    cost: as attention forward; backward one product more, 2 B H T S d FLOPs, for the scores made again. Tiles that the
        mask empties are skipped: about half of them under a causal mask. Memory of a tile: B H block_q block_k.

    differs from: attention in rounding only. Masks that are one interval of keys per query are never built; a boolean
        array is cut into tiles.

    goes wrong: in a tile where a query sees no key, the maximum so far is -∞ and exp(-∞ - (-∞)) is NaN; without the
        factor exp(M - M') everything is right as long as the largest score comes first. Saving only the log-sum-exp
        M + log l, as is usual, loses log l where |M| is large (a bias of -1e9 in float32): the weights then sum to S.

    exercise: tiled-attention

    source: Dao et al. 2022, "FlashAttention", algorithms 1 and 4; the online softmax: Milakov and Gimelshein 2018.
    """
    p = probability(dropout, "tiled_attention: dropout")
    B, H, T, S = check_shapes(q, k, bias, softcap, v)
    if block_q < 1 or block_k < 1:
        raise ValueError(f"tiled_attention: a tile has at least one query and key, not {block_q} and {block_k}")
    H_kv, d, d_v = k.shape[1], k.shape[3], v.shape[3]
    scale = 1 / math.sqrt(max(d, 1)) if scale is None else float(scale)
    rows = [slice(i, min(i + block_q, T)) for i in range(0, T, block_q)]
    columns = [slice(j, min(j + block_k, S)) for j in range(0, S, block_k)]
    allowed = _allowed_in_tiles(mask, bias, (B, H, T, S), query_offset)
    factors = _factors_of_tiles(p, rng, (B, H, T, S), q.dtype)

    def in_groups(x: Array) -> Array:  # (B, H, t, e) → (B, H_kv, H / H_kv * t, e): query heads that share a key head
        return x.reshape(B, H_kv, H // H_kv * x.shape[2], x.shape[3])

    def in_heads(x: Array) -> Array:  # and back
        return x.reshape(B, H, x.shape[2] * H_kv // H, x.shape[3])

    def tile(i: slice, j: slice) -> tuple[Array, Array | None, Array, Array] | None:
        """Scores z, tanh of the cap, and the keys and values to read; None where no query of the tile sees a key."""
        may = allowed(i, j)
        if may is not None and not may.any():
            return None
        k_j, v_j = readable(k[:, :, j], may), readable(v[:, :, j], may)
        z = in_heads(in_groups(q[:, :, i]) @ k_j.swapaxes(2, 3))  # (B, H, block_q, block_k)
        z *= scale
        t = None
        if softcap is not None:
            t = np.tanh(z / float(softcap))
            z = t * float(softcap)
        if bias is not None:
            z = z + _part(bias, i, j)
        return (z if may is None else np.where(may, z, -np.inf)), t, k_j, v_j

    o = np.zeros((B, H, T, d_v), q.dtype)
    top, total = np.zeros((2, B, H, T, 1), q.dtype)  # the last M and l of every query
    for i in rows:
        M = np.full((B, H, i.stop - i.start, 1), -np.inf, q.dtype)
        l, a = np.zeros_like(M), o[:, :, i]  # a is written in place
        for j in columns:
            if (made := tile(i, j)) is None:
                continue
            z, _, _, v_j = made
            new = np.maximum(M, z.max(-1, keepdims=True))
            finite = np.where(np.isneginf(new), 0, new)  # nothing seen yet: exp(-inf - 0) = 0
            e = np.exp(z - finite)
            shrink = np.exp(M - finite)
            l *= shrink
            l += e.sum(-1, keepdims=True)
            m = factors(i, j)
            a *= shrink
            a += in_heads(in_groups(e if m is None else m * e) @ v_j)
            M = new
        l[l == 0] = 1  # a query that sees nothing
        a /= l
        top[:, :, i], total[:, :, i] = np.where(np.isneginf(M), 0, M), l

    def backward(do: Array, need: Any) -> tuple[Array | None, ...]:
        dq, dk, dv = np.zeros(q.shape, q.dtype), np.zeros(k.shape, k.dtype), np.zeros(v.shape, v.dtype)
        dbias = None if bias is None else np.zeros(bias.shape, bias.dtype)
        D = (do * o).sum(-1, keepdims=True)  # Σ_j dw_j w_j, (B, H, T, 1)
        for i in rows:
            do_i = in_groups(do[:, :, i])
            for j in columns:
                if (made := tile(i, j)) is None:
                    continue
                z, t, k_j, v_j = made
                m = factors(i, j)
                w = np.exp(z - top[:, :, i]) / total[:, :, i]  # (B, H, block_q, block_k)
                # o = (m * w) v
                dv[:, :, j] += in_groups(w if m is None else m * w).swapaxes(2, 3) @ do_i
                dw = in_heads(do_i @ v_j.swapaxes(2, 3))
                if m is not None:
                    dw *= m
                # w = softmax(z)
                dz = w * (dw - D[:, :, i])  # term 1 - term 2
                # z = c + bias
                if dbias is not None:
                    part = _part(dbias, i, j)
                    part += sum_to(dz, part.shape)
                # c = cap tanh(s / cap),  s = scale q kᵀ
                ds = in_groups((dz if t is None else dz * (1 - t * t)) * scale)
                dq[:, :, i] += in_heads(ds @ k_j)
                dk[:, :, j] += ds.swapaxes(2, 3) @ in_groups(q[:, :, i])
        return dq if need.q else None, dk if need.k else None, dv if need.v else None, dbias

    return o, backward


def _part(bias: Array, i: slice, j: slice) -> Array:
    """The view of a bias (..., T or 1, S or 1) that belongs to a tile."""
    every = slice(None)
    return bias[..., every if bias.shape[-2] == 1 else i, every if bias.shape[-1] == 1 else j]


def _allowed_in_tiles(
    mask: Any, bias: Array | None, shape: tuple[int, ...], query_offset: Any
) -> Callable[[slice, slice], Array | None]:
    """Which pairs of a tile count, mask and bias together: a function of the tile → booleans, or None: all."""
    B, _, T, S = shape
    spans = None
    if mask is not None and (bias is None or not np.isneginf(bias).any()):
        spans = masks.as_mask(mask).intervals(B, T, S, query_offset)
    if spans is None:
        whole = allowed_pairs(mask, bias, shape, query_offset)
        if whole is not None:
            whole = np.broadcast_to(whole, (*whole.shape[:2], T, S))  # every tile has its rows and columns
        return lambda i, j: None if whole is None else whole[:, :, i, j]
    lo, hi = (bound[:, None, :, None] for bound in spans)  # (B or 1, 1, T, 1)
    keys = np.arange(S)
    return lambda i, j: (lo[:, :, i] <= keys[j]) & (keys[j] < hi[:, :, i])


def _factors_of_tiles(
    p: float, rng: np.random.Generator | None, shape: tuple[int, ...], dtype: Any
) -> Callable[[slice, slice], Array | None]:
    """Dropout's factors m of a tile: by the place of each weight in the whole matrix, so the same ones in backward."""
    B, H, T, S = shape
    key = dropout_key(p, rng)
    first = np.arange(B * H, dtype=np.uint64).reshape(B, H, 1, 1) * np.uint64(T * S)

    def factors(i: slice, j: slice) -> Array | None:
        if not p:
            return None
        inside = np.arange(i.start, i.stop)[:, None] * S + np.arange(j.start, j.stop)  # (block_q, block_k)
        return dropout_factors_at(first + inside.astype(np.uint64), p, key, dtype)

    return factors
