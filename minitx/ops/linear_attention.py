"""Linear attention: an approximation of attention whose cost grows with the length, not with its square."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx import masks
from minitx.op import Array, Forward, op
from minitx.ops.attention import check_shapes, readable


@op("q", "k", "v")
def linear_attention(q: Array, k: Array, v: Array, *, mask: Any = None, chunk: int = 64) -> Forward:
    """
    for: very long texts, where a query cannot look at every key: it reads one sum over all of them. An approximation:
        the weights are not softmax's, and a model has to be trained with it.

    equation:
        w_ij = φ(q_i)·φ(k_j) / Σ_s φ(q_i)·φ(k_s),   φ(x) = elu(x) + 1: e^x for x <= 0, x + 1 for x > 0
        o_i  = Σ_j w_ij v_j = φ(q_i) (Σ_j φ(k_j) v_jᵀ) / φ(q_i)·(Σ_j φ(k_j))

    where:
        q     (B, H, T, d)        queries
        k     (B, H_kv, S, d)     keys; query head i uses head i // (H / H_kv) of them
        v     (B, H_kv, S, d_v)   values
        mask  None, causal(), padding(...) of minitx.masks, or both: sums run over keys j <= i (the last query stands at
              the last key), and leave out padding. No other mask can be had from running sums
        chunk positions that a causal sum takes at a time; changes the rounding only
        o     (B, H, T, d_v)      a query that sees nothing gets 0

    by hand: φ(0) = 1, φ(2) = 3
        >>> q, k = np.zeros((1, 1, 2, 1)), np.array([0.0, 2.0]).reshape(1, 1, 2, 1)
        >>> linear_attention(q, k, np.array([1.0, 5.0]).reshape(1, 1, 2, 1)).numpy().ravel()
        array([4., 4.])

    backward:
        n_i     = φ(q_i) Σ_j φ(k_j) u_jᵀ,   u = [v, 1]     (the numerator and, last, the denominator: o = n / n_last)
        dn      = [do, -do·o] / n_last
        dφ(q_i) = (Σ_j φ(k_j) u_jᵀ) dn_i
        dφ(k_j) = (Σ_i φ(q_i) dn_iᵀ) u_j
        dv_j    = φ(k_j) (Σ_i φ(q_i) dn_iᵀ)                (without its last column)
        dx      = dφ(x) * min(φ(x), 1)                     (x: q or k)

    why:
        All rests on the order of the product: (φ(q) φ(k)ᵀ) v costs T S, φ(q) (φ(k)ᵀ v) does not. A column of ones
        beside v makes the denominator by the same sum. Key j reaches the queries i >= j, so where the forward pass sums
        over the keys from the beginning, the backward pass sums over the queries from the end. φ' is e^x = φ for
        x <= 0 and 1 for x > 0: min(φ, 1), without a kink.

    saved: φ(q), φ(k), v, n, o.

    cost: 4 B H T d d_v FLOPs forward, about three times that back; a state of d (d_v + 1) numbers a head, whatever T.
        (Under a causal mask every chunk by itself is done as attention does it: 2 B H T chunk (d + d_v) more.)

    differs from: attention, on purpose. With normal q, k, v (d = 16, causal, the last quarter of the queries) the
        relative error is 0.65 at T = 16, 0.73 at 64, 0.77 at 256 and 1024. φ(q)·φ(k) cannot single out one of many
        keys: the weight of a key that equals its query falls like 1/T, where softmax keeps it near 1 as long as
        |q|²/√d is well above ln T.

    goes wrong: weights trained with softmax give nonsense here. Causal sums over whole chunks let a query see the rest
        of its chunk: a leak. In float32 a query counts as one that sees nothing where, with its largest feature and the
        largest φ(k) of the head as 1, its keys together weigh less than 1e-31.

    source: Katharopoulos et al. 2020, "Transformers are RNNs: fast autoregressive Transformers with linear attention".
    """
    B, H, T, S = check_shapes(q, k, None, None, v)
    if chunk < 1:
        raise ValueError(f"linear_attention: a chunk has at least one position, not {chunk}")
    H_kv, d_v = k.shape[1], v.shape[3]
    is_causal, real = _simple(mask, B, S)
    if real is not None:
        k, v = readable(k, real[:, None, None]), readable(v, real[:, None, None])

    def in_groups(x: Array) -> Array:  # (B, H, T, e) → (B, H_kv, H / H_kv, T, e): query heads that share a key head
        return x.reshape(B, H_kv, H // H_kv, *x.shape[2:])

    # A factor in φ(q_i) cancels in o: with the largest feature as 1, what it meets in φ(k) is not made smaller still.
    top = np.clip(q.max(-1, keepdims=True, initial=-np.inf), np.finfo(q.dtype).min, 0)  # (B, H, T, 1)
    a, b = in_groups(_phi(q, top)), _phi(k, 0)[:, :, None]  # (B, H_kv, G or 1, T or S, d)
    if real is not None:
        b = b * real[:, None, None, :, None]
    # So does one in all φ(k) of a head; a power of two changes no digits.
    smaller = np.minimum(np.frexp(b.max((3, 4), keepdims=True, initial=0))[1], 0)
    b = np.ldexp(b, -smaller)
    u = np.concatenate([v, np.ones((*v.shape[:3], 1), v.dtype)], -1)[:, :, None]  # (B, H_kv, 1, S, d_v + 1)
    n = _causal_sums(a, b, u, S - T, chunk) if is_causal else a @ (b.swapaxes(3, 4) @ u)  # (B, H_kv, G, T, d_v + 1)
    total = n[..., -1:]  # φ(q_i)·Σ φ(k_s)
    least = np.finfo(q.dtype).tiny / np.finfo(q.dtype).eps
    total = np.where(total <= least, np.inf, total)  # a query that sees nothing, or what is as good as nothing: o = 0
    o = n[..., :-1] / total

    def backward(do: Array, need: Any) -> tuple[Array | None, ...]:
        # o = n / n_last
        do = in_groups(do)
        dn = np.concatenate([do, -(do * o).sum(-1, keepdims=True)], -1) / total  # (B, H_kv, G, T, d_v + 1)
        # n_i = φ(q_i) Σ_j φ(k_j) u_jᵀ
        if is_causal:
            da = _causal_sums(dn, u, b, S - T, chunk)  # (B, H_kv, G, T, d)
            db = _sums_from_the_end(u, dn, a, chunk)  # (B, H_kv, G, S, d)
            du = _sums_from_the_end(b, a, dn, chunk)  # (B, H_kv, G, S, d_v + 1)
        else:
            da = dn @ (u.swapaxes(3, 4) @ b)
            db = u @ (dn.swapaxes(3, 4) @ a)
            du = b @ (a.swapaxes(3, 4) @ dn)
        db, du = db.sum(2), du.sum(2)  # the heads of a group share keys and values
        # φ' = min(φ, 1), for a and b too: where they have a factor, none of them is above 1
        dq = (da * np.minimum(a, 1)).reshape(q.shape) if need.q else None
        dk = db * np.minimum(b, 1).reshape(k.shape) if need.k else None  # (b is 0 at padding)
        dv = du[..., :-1] if need.v else None
        return dq, dk, dv

    return o.reshape(B, H, T, d_v), backward


def _phi(x: Array, top: Any) -> Array:
    """elu(x) + 1, positive; times e^-top, where no x is above top <= 0."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0) - top))


def _causal_sums(a: Array, b: Array, u: Array, offset: int, chunk: int) -> Array:
    """y_i = a_i Σ_{j <= i + offset} b_j u_jᵀ along the last axis but one: in chunks, with a running sum of the past."""
    T, S = a.shape[-2], b.shape[-2]
    y = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), T, u.shape[-1]), a.dtype)
    past = np.zeros((*b.shape[:-2], b.shape[-1], u.shape[-1]), a.dtype)  # Σ b_j u_jᵀ over the chunks before
    for j in range(0, max(S, T + offset), chunk):
        b_c, u_c = b[..., j : j + chunk, :], u[..., j : j + chunk, :]
        i = slice(max(j - offset, 0), max(j + chunk - offset, 0))  # the queries that stand in this chunk
        a_c = a[..., i, :]
        near = np.arange(S)[j : j + chunk] <= np.arange(T)[i, None] + offset
        y[..., i, :] = a_c @ past + np.where(near, a_c @ b_c.swapaxes(-1, -2), 0) @ u_c
        past = past + b_c.swapaxes(-1, -2) @ u_c
    return y


def _sums_from_the_end(a: Array, b: Array, u: Array, chunk: int) -> Array:
    """y_j = a_j Σ_{i >= j - (S - T)} b_i u_iᵀ: turned round, the last key and the last query come first."""
    return _causal_sums(a[..., ::-1, :], b[..., ::-1, :], u[..., ::-1, :], 0, chunk)[..., ::-1, :]


def _simple(mask: Any, B: int, S: int) -> tuple[bool, Array | None]:
    """What a mask says that running sums can do: is it causal, and which keys are real, (B or 1, S) or None."""
    is_causal, real = False, None
    for part in [] if mask is None else getattr(mask, "parts", (mask,)):
        if isinstance(part, masks.padding):
            keys = part.dense(B, 1, S)[:, 0]  # (B, S)
            real = keys if real is None else real & keys
        elif isinstance(part, masks.causal):
            is_causal = True
        elif not isinstance(part, masks.full):
            raise ValueError(
                "linear attention reads one running sum of the keys: its mask is causal(), padding(...), or both, "
                f"not {part!r}"
            )
    return is_causal, real
