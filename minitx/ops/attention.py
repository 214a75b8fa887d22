"""Attention: every query takes a weighted mean of the values, and the weights say how well the keys answer it."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx import masks
from minitx.op import Array, Forward, op
from minitx.ops.checks import probability
from minitx.ops.dropout import dropout_factors


@op("q", "k", "bias")
def attention_weights(
    q: Array,
    k: Array,
    *,
    mask: Any = None,
    bias: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    query_offset: Any = None,
) -> Forward:
    """
    for: how much of each key's value a query takes: the first half of attention, and the picture people draw of it.

    equation:
        s = scale q kᵀ,   c = cap tanh(s / cap),   z = c + bias, or -inf where the mask says no,   w = softmax(z)

    where:
        q     (B, H, T, d)     queries
        k     (B, H_kv, S, d)  keys; query head i uses head i // (H / H_kv) of them
        mask  an object of minitx.masks, or booleans (True = may see) of shape (T, S), (B, T, S) or (B, H, T, S), where
              any axis but the last may be 1; of three axes the first is the batch
        bias  (T, S) or (B, H, T, S), any axis may be 1; added to the scores; -inf counts as masked
        scale     1/√d if None
        softcap   cap, or None: c = s
        query_offset  the position of the first query among the keys, which masks count from: None is S - T (the last
              query stands at the last key), an integer, or one per batch row
        w     (B, H, T, S)     each row sums to 1; the row of a query that sees nothing is 0

    by hand:
        >>> q, k = np.ones((1, 1, 2, 1)), np.log([1.0, 3.0]).reshape(1, 1, 2, 1)
        >>> attention_weights(q, k, mask=masks.causal()).numpy()[0, 0]
        array([[1.  , 0.  ],
               [0.25, 0.75]])

    backward:
        dz = w * dw               (term 1)
           - w * Σ_j dw_j w_j     (term 2)
        dbias = dz, summed over the axes along which bias was repeated
        ds = dz * (1 - (c / cap)²)
        dq = scale ds k
        dk = scale Σ_group dsᵀ q

    why:
        dz is softmax's backward, row by row; a masked pair has w = 0, and so dz = 0: the mask needs no backward of its
        own. s_ij = scale Σ_e q_ie k_je, so query i collects the keys weighted by ds_ij, and key j the queries. The
        query heads of a group share a key head: for it they are one longer list of queries, and the sum over the
        group is the sum over that list, inside the matrix product.

    saved: q, k, w, and c / cap where there is a cap.

    cost: 2 B H T S d FLOPs forward, twice that back; memory B H T S.

    differs from: torch.softmax: a query that sees nothing has weights 0, not NaN; from PyTorch's attention: causal
        with T ≠ S is aligned at the end, not at the beginning; a key that no query of its batch row may see is not
        read, so it may be NaN.

    goes wrong: without the scale the softmax saturates as d grows, and its gradients vanish; a mask of the wrong
        polarity still trains, and leaks.

    exercise: attention-weights

    source: Vaswani et al. 2017, "Attention is all you need", 3.2.1; groups: Ainslie et al. 2023, "GQA"; the cap: Gemma
        Team 2024, "Gemma 2".
    """
    B, H, T, S = check_shapes(q, k, bias, softcap)
    H_kv, d = k.shape[1], q.shape[3]
    scale = 1 / math.sqrt(max(d, 1)) if scale is None else float(scale)
    allowed = allowed_pairs(mask, bias, (B, H, T, S), query_offset)
    k = readable(k, allowed)
    q_group = q.reshape(B, H_kv, H // H_kv * T, d)  # the queries of a group, one after the other, share one key head

    z = (q_group @ k.swapaxes(2, 3)).reshape(B, H, T, S)
    z *= scale
    if softcap is not None:
        t = np.tanh(z / float(softcap))  # c / cap
        z = t * float(softcap)
    if bias is not None:
        z = z + bias
    if allowed is not None:
        z = np.where(allowed, z, -np.inf)
    top = z.max(-1, keepdims=True, initial=-np.inf)  # (B, H, T, 1)
    top = np.where(np.isfinite(top), top, 0)  # a query that sees nothing: exp(-inf - 0) = 0
    w = np.exp(z - top)
    total = w.sum(-1, keepdims=True)
    w /= np.where(total == 0, 1, total)  # (B, H, T, S)

    def backward(dw: Array, need: Any) -> tuple[Array | None, ...]:
        dq = dk = dbias = None
        # w = softmax(z)
        dz = w * (dw - (dw * w).sum(-1, keepdims=True))  # term 1 - term 2
        # z = c + bias
        if need.bias and bias is not None:
            dbias = sum_to(dz, bias.shape)
        # c = cap tanh(s / cap),  s = scale q kᵀ
        ds = dz if softcap is None else dz * (1 - t * t)
        ds = (ds * scale).reshape(B, H_kv, H // H_kv * T, S)
        if need.q:
            dq = (ds @ k).reshape(q.shape)
        if need.k:
            dk = ds.swapaxes(2, 3) @ q_group  # (B, H_kv, S, d); the sum over the group is in the product
        return dq, dk, dbias

    return w, backward


@op("q", "k", "v", "bias")
def attention(
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
) -> Forward:
    """
    for: moving information between positions: each query reads the values of the keys that match it.

    equation:
        o = (m * w) v,   w = attention_weights(q, k, ...)

    where:
        q, k, mask, bias, scale, softcap, query_offset: see attention_weights
        v  (B, H_kv, S, d_v)   values
        m  (B, H, T, S)        dropout's factors, 0 or 1 / (1 - dropout); drawn from rng, as ops/dropout.py does
        o  (B, H, T, d_v)      a query that sees nothing gets 0

    by hand:
        >>> q = k = np.zeros((1, 1, 3, 1))
        >>> attention(q, k, np.array([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1), mask=masks.causal()).numpy().ravel()
        array([1. , 1.5, 3. ])

    backward:
        dv = Σ_group (m * w)ᵀ do
        dw = m * (do vᵀ)
        dq, dk, dbias = the backward of attention_weights, given dw

    why:
        For fixed weights o is linear in v: value j goes to every query i with the weight m_ij w_ij, so it collects do_i
        with the same weights. And weight ij brings v_j into o_i, so dw_ij = m_ij do_i · v_j. What a weight does to the
        queries and keys is the other op's business.

    saved: what attention_weights saves, v, and m where there is dropout.

    cost: 2 B H T S (d + d_v) FLOPs forward, twice that back (causal: half of the pairs would do); memory B H T S,
        which is what tiled kernels avoid.

    differs from: PyTorch's scaled_dot_product_attention: see attention_weights; grouped heads need no flag. Its boolean
        mask has the same meaning as here; in nn.MultiheadAttention True means the opposite.

    goes wrong: key head i % H_kv in place of i // (H / H_kv) runs and trains, on the wrong heads; dropout stays on in
        evaluation; a query that sees nothing becomes NaN and takes the gradients of the whole batch with it.

    exercise: attention

    source: Vaswani et al. 2017, "Attention is all you need", 3.2.
    """
    p = probability(dropout, "attention: dropout")
    B, H, T, S = check_shapes(q, k, bias, softcap, v)
    H_kv, d_v = v.shape[1], v.shape[3]
    allowed = allowed_pairs(mask, bias, (B, H, T, S), query_offset)
    v = readable(v, allowed)
    w, weights_backward = attention_weights.definition(q, k, mask=allowed, bias=bias, scale=scale, softcap=softcap)
    m = dropout_factors(w.shape, p, rng, w.dtype) if p else None
    mw = (w if m is None else m * w).reshape(B, H_kv, H // H_kv * T, S)  # one value head for the group, as with k
    o = (mw @ v).reshape(B, H, T, d_v)

    def backward(do: Array, need: Any) -> tuple[Array | None, ...]:
        dq = dk = dv = dbias = None
        do = do.reshape(B, H_kv, H // H_kv * T, d_v)
        # o = (m * w) v
        if need.v:
            dv = mw.swapaxes(2, 3) @ do  # (B, H_kv, S, d_v)
        if need.q or need.k or need.bias:
            dw = (do @ v.swapaxes(2, 3)).reshape(B, H, T, S)
            if m is not None:
                dw *= m
            dq, dk, dbias = weights_backward(dw, need)
        return dq, dk, dv, dbias

    return o, backward


def allowed_pairs(mask: Any, bias: Array | None, shape: tuple[int, ...], query_offset: Any) -> Array | None:
    """Mask and bias together: which pairs count, (B or 1, H or 1, T, S) or broadcasting to it; None: all."""
    B, H, T, S = shape
    allowed = masks.allowed(mask, B, H, T, S, query_offset)
    if bias is None or not np.isneginf(bias).any():
        return allowed
    finite = ~np.isneginf(bias)
    finite = np.broadcast_to(finite, np.broadcast_shapes(finite.shape, (1, 1, 1, S)))
    return finite if allowed is None else allowed & finite


def readable(x: Array, allowed: Array | None) -> Array:
    """Keys or values with zeros where no query of the batch row may look: 0 times whatever stood there is then 0."""
    if allowed is None:
        return x
    seen = masks.visible_keys(allowed)  # (B or 1, S)
    return x if seen.all() else np.where(seen[:, None, :, None], x, 0)


def sum_to(g: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of an array of this shape that was broadcast to g's."""
    full = (1,) * (g.ndim - len(shape)) + shape
    repeated = tuple(i for i, (n, m) in enumerate(zip(full, g.shape)) if n != m)
    return g.sum(repeated, keepdims=True).reshape(shape)  # type: ignore[no-any-return]


def check_shapes(
    q: Array, k: Array, bias: Array | None, softcap: float | None, v: Array | None = None
) -> tuple[int, int, int, int]:
    """Shapes that fit, or an error; returns B, H, T, S."""
    if q.ndim != 4 or k.ndim != 4 or (v is not None and v.ndim != 4):
        given = ", ".join(str(a.shape) for a in (q, k, v) if a is not None)
        raise ValueError(f"attention: q is (B, H, T, d), k (B, H_kv, S, d), v (B, H_kv, S, d_v), not {given}")
    (B, H, T, d), (H_kv, S) = q.shape, k.shape[1:3]
    if len(k) != B or k.shape[3] != d:
        raise ValueError(f"attention: q and k have one batch and one last axis; q is {q.shape}, k is {k.shape}")
    if H_kv == 0 or H % H_kv:
        raise ValueError(f"attention: {H_kv} key heads do not divide {H} query heads; q is {q.shape}, k is {k.shape}")
    if v is not None and v.shape[:3] != k.shape[:3]:
        raise ValueError(f"attention: there is one value for every key; k is {k.shape}, v is {v.shape}")
    # (In float32, 1e-50 is 0 and 1e50 infinite, and c tanh(s / c) would be NaN.)
    if softcap is not None and not (q.dtype.type(min(softcap, 1)) > 0 and softcap <= float(np.finfo(q.dtype).max)):
        raise ValueError(
            "attention: softcap bounds the scores, so it is above 0 and finite, also as a number of their dtype "
            f"(None: no cap), not {softcap}"
        )
    shape = (S, T, H, B)
    if bias is not None and (bias.ndim not in (2, 4) or any(n not in (1, m) for n, m in zip(bias.shape[::-1], shape))):
        raise ValueError(
            f"attention: bias is (T, S) or (B, H, T, S), any axis may be 1, here with B {B}, H {H}, T {T}, S {S}, "
            f"not {bias.shape}; one matrix per head is bias[None]"
        )
    return B, H, T, S
