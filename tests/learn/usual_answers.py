"""Answers as most people write them, in no one's style but their own: none of them may be rejected."""

import math

import numpy as np


def sum_(x, axis, keepdims=False):
    y = np.sum(x, axis=axis, keepdims=keepdims)

    def backward(dy):
        if not keepdims:
            dy = np.expand_dims(dy, axis)
        return np.repeat(dy, x.shape[axis], axis=axis)

    return y, backward


def mean(x, axis, keepdims=False):
    y = x.mean(axis=axis, keepdims=keepdims)
    n = x.shape[axis]

    def backward(dy):
        if not keepdims:
            dy = np.expand_dims(dy, axis)
        return np.ones_like(x) * dy / n

    return y, backward


def max_(x, axis):
    y = np.max(x, axis=axis, keepdims=True)
    mask = x == y

    def backward(dy):
        return mask / mask.sum(axis=axis, keepdims=True) * np.expand_dims(dy, axis)

    return y.squeeze(axis), backward


def log_softmax(x):
    m = np.max(x, axis=-1, keepdims=True)
    lse = m + np.log(np.sum(np.exp(x - m), axis=-1, keepdims=True))
    y = x - lse
    return y, lambda dy: dy - np.exp(y) * dy.sum(axis=-1, keepdims=True)


def cross_entropy(logits, targets, ignore_index=-100):
    V = logits.shape[-1]
    flat = logits.reshape(-1, V)
    t = targets.reshape(-1)
    keep = t != ignore_index
    N = keep.sum()
    shifted = flat - flat.max(axis=1, keepdims=True)
    p = np.exp(shifted)
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(t))[keep]
    y = 0.0 if N == 0 else -np.mean((shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))[rows, t[keep]])

    def backward(dy):
        dx = p.copy()
        dx[rows, t[keep]] -= 1
        dx[~keep] = 0
        if N:
            dx *= dy / N
        return dx.reshape(logits.shape)

    return y, backward


def gelu(x, approximate="tanh"):
    c = np.sqrt(2 / np.pi)
    u = c * (x + 0.044715 * x**3)
    t = np.tanh(u)
    y = 0.5 * x * (1 + t)

    def backward(dy):
        dt = 1 - t**2
        return dy * (0.5 * (1 + t) + 0.5 * x * dt * c * (1 + 3 * 0.044715 * x**2))

    return y, backward


def layer_norm(x, weight, bias, eps=1e-5):
    mu = x.mean(-1, keepdims=True)
    var = x.var(-1, keepdims=True)
    std = np.sqrt(var + eps)
    xhat = (x - mu) / std
    y = xhat * weight + bias

    def backward(dy):
        D = x.shape[-1]
        dxhat = dy * weight
        dvar = np.sum(dxhat * (x - mu) * -0.5 * std**-3, axis=-1, keepdims=True)
        dmu = np.sum(-dxhat / std, axis=-1, keepdims=True) + dvar * np.mean(-2 * (x - mu), axis=-1, keepdims=True)
        dx = dxhat / std + dvar * 2 * (x - mu) / D + dmu / D
        ax = tuple(range(x.ndim - 1))
        return [dx, np.sum(dy * xhat, axis=ax), np.sum(dy, axis=ax)]

    return y, backward


def rms_norm(x, weight, eps=1e-6):
    ms = np.mean(x**2, axis=-1, keepdims=True)
    inv = (ms + eps) ** -0.5
    y = weight * (x * inv)

    def backward(dy):
        g = dy * weight
        n = x.shape[-1]
        dx = g * inv - x * inv**3 * np.sum(g * x, -1, keepdims=True) / n
        return dx, np.sum((dy * x * inv).reshape(-1, n), 0)

    return y, backward


def attention(q, k, v):
    scale = 1 / np.sqrt(q.shape[-1])
    s = np.matmul(q, np.transpose(k, (0, 1, 3, 2))) * scale
    e = np.exp(s - s.max(-1, keepdims=True))
    p = e / e.sum(-1, keepdims=True)
    o = p @ v

    def backward(do):
        dv = np.transpose(p, (0, 1, 3, 2)) @ do
        dp = do @ np.transpose(v, (0, 1, 3, 2))
        ds = p * (dp - np.sum(p * dp, -1, keepdims=True))
        return ds @ k * scale, np.transpose(ds, (0, 1, 3, 2)) @ q * scale, dv

    return o, backward


def masked_attention(q, k, v, lengths):
    B, _, T, d = q.shape
    S = k.shape[2]
    m = np.zeros((B, 1, T, S), bool)
    for b in range(B):
        for i in range(T):
            for j in range(S):
                m[b, 0, i, j] = j <= i + S - T and j < lengths[b]
    s = np.where(m, q @ k.swapaxes(-1, -2) / math.sqrt(d), -np.inf)
    mx = s.max(-1, keepdims=True)
    mx[~np.isfinite(mx)] = 0
    e = np.exp(s - mx)
    z = e.sum(-1, keepdims=True)
    w = np.divide(e, z, out=np.zeros_like(e), where=z > 0)

    def backward(do):
        dw = do @ v.swapaxes(-1, -2)
        ds = w * (dw - (dw * w).sum(-1, keepdims=True)) / math.sqrt(d)
        return ds @ k, ds.swapaxes(-1, -2) @ q, w.swapaxes(-1, -2) @ do

    return w @ v, backward


def grouped_query(q, k, v):
    r = q.shape[1] // k.shape[1]
    K = np.repeat(k, r, axis=1)
    V = np.repeat(v, r, axis=1)
    o, back = attention(q, K, V)

    def backward(do):
        dq, dK, dV = back(do)
        B, Hk, S, d = k.shape
        return dq, dK.reshape(B, Hk, r, S, d).sum(2), dV.reshape(B, Hk, r, S, -1).sum(axis=2)

    return o, backward


def rotary(x, positions, base=10000.0):
    d = x.shape[-1]
    inv = 1.0 / base ** (np.arange(0, d, 2) / d)
    ang = np.outer(positions, inv)
    c, s = np.cos(ang), np.sin(ang)
    x1, x2 = np.split(x, 2, axis=-1)
    y = np.concatenate((x1 * c - x2 * s, x2 * c + x1 * s), axis=-1)

    def backward(dy):
        a, b = dy[..., : d // 2], dy[..., d // 2 :]
        dx = np.empty_like(x)
        dx[..., : d // 2] = a * c + b * s
        dx[..., d // 2 :] = b * c - a * s
        return dx

    return y, backward


def embed(x, positions):
    d = x.shape[-1]
    T = len(positions)
    pe = np.zeros((T, d))
    div = np.exp(np.arange(0, d, 2) * (-math.log(10000.0) / d))
    pe[:, 0::2] = np.sin(positions[:, None] * div)
    pe[:, 1::2] = np.cos(positions[:, None] * div[: d // 2])
    return x * np.sqrt(d) + pe, lambda dy: dy * np.sqrt(d)


def swiglu(gate, up):
    s = 1 / (1 + np.exp(-gate))
    a = gate * s
    y = a * up
    return y, lambda dy: (dy * up * (s * (1 + gate * (1 - s))), dy * a)


def adamw(p, g, m, v, t, lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    mh = m / (1 - beta1**t)
    vh = v / (1 - beta2**t)
    p = p - lr * mh / (np.sqrt(vh) + eps) - lr * weight_decay * p
    return p, m, v


def clip(g1, g2, max_norm):
    s = max(np.max(np.abs(g1)), np.max(np.abs(g2)))
    if s == 0:
        return g1, g2, 0.0
    n = s * np.sqrt(np.sum((g1 / s) ** 2) + np.sum((g2 / s) ** 2))
    f = min(1, max_norm / (n + 1e-6))
    return g1 * f, g2 * f, n


def tiled_attention(q, k, v, mask, block_k=128):
    B, H, T, d = q.shape
    S = k.shape[2]
    sc = d**-0.5
    M = np.full((B, H, T), -np.inf)
    L = np.zeros((B, H, T))
    O = np.zeros((B, H, T, v.shape[-1]))
    for j in range(0, S, block_k):
        z = q @ k[:, :, j : j + block_k].swapaxes(-1, -2) * sc
        z = np.where(mask[:, j : j + block_k], z, -np.inf)
        Mn = np.maximum(M, z.max(-1))
        Ms = np.where(np.isinf(Mn), 0, Mn)
        al = np.exp(M - Ms)
        e = np.exp(z - Ms[..., None])
        L = al * L + e.sum(-1)
        O = al[..., None] * O + e @ v[:, :, j : j + block_k]
        M = Mn
    Ls = np.where(L == 0, 1, L)
    o = O / Ls[..., None]
    lse = np.where(L == 0, 0, np.where(np.isinf(M), 0, M) + np.log(Ls))

    def backward(do):
        dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)
        D = (do * o).sum(-1)
        for j in range(0, S, block_k):
            sl = slice(j, j + block_k)
            z = np.where(mask[:, sl], q @ k[:, :, sl].swapaxes(-1, -2) * sc, -np.inf)
            p = np.exp(z - lse[..., None])
            dv[:, :, sl] += p.swapaxes(-1, -2) @ do
            ds = p * (do @ v[:, :, sl].swapaxes(-1, -2) - D[..., None]) * sc
            dq += ds @ k[:, :, sl]
            dk[:, :, sl] += ds.swapaxes(-1, -2) @ q
        return dq, dk, dv

    return o, backward


def expert_weights(scores, chosen):
    N, E = scores.shape
    k = chosen.shape[1]
    r = np.arange(N)[:, None]
    if k == 1:
        e = np.exp(scores - scores.max(1, keepdims=True))
        p = e / e.sum(1, keepdims=True)
        w = p[r, chosen]

        def backward(dw):
            dp = np.zeros_like(p)
            dp[r, chosen] = dw
            return p * (dp - (dp * p).sum(1, keepdims=True))

        return w, backward
    s = scores[r, chosen]
    e = np.exp(s - s.max(1, keepdims=True))
    w = e / e.sum(1, keepdims=True)

    def backward(dw):
        ds = np.zeros((N, E))
        ds[r, chosen] = w * (dw - (dw * w).sum(1, keepdims=True))
        return ds

    return w, backward


def balance_loss(scores, chosen):
    N, E = scores.shape
    e = np.exp(scores - scores.max(1, keepdims=True))
    p = e / e.sum(1, keepdims=True)
    f = np.zeros(E)
    for c in chosen.ravel():
        f[c] += 1
    f /= chosen.size
    y = E * np.dot(f, p.mean(axis=0))

    def backward(dy):
        dp = np.tile(E * f / N, (N, 1)) * dy
        return p * (dp - (dp * p).sum(-1, keepdims=True))

    return y, backward


def step(x, k_cache, v_cache, w_q, w_k, w_v):
    q, k, v = x @ w_q.T, np.concatenate((k_cache, x @ w_k.T), axis=1), np.concatenate((v_cache, x @ w_v.T), axis=1)
    P, T = k_cache.shape[1], x.shape[1]
    s = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])
    for i in range(T):
        s[:, i, P + i + 1 :] = -np.inf
    e = np.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v, k, v


def tied(ids, weight):
    e = weight[ids]
    h = np.tanh(e)
    y = h @ weight.T

    def backward(dy):
        dh = dy @ weight
        dE = np.einsum("btv,btd->vd", dy, h)
        np.add.at(dE, ids.reshape(-1), (dh * (1 - h**2)).reshape(-1, weight.shape[1]))
        return dE

    return y, backward


def cross_attention(x, memory, w_q, w_k, w_v):
    q, k, v = x @ w_q.T, memory @ w_k.T, memory @ w_v.T
    o, back = attention(q[:, None], k[:, None], v[:, None])

    def backward(do):
        dq, dk, dv = (g[:, 0] for g in back(do[:, None]))

        def f(a, b):
            return np.tensordot(a, b, axes=([0, 1], [0, 1]))

        return dq @ w_q, dk @ w_k + dv @ w_v, f(dq, x), f(dk, memory), f(dv, memory)

    return o[:, 0], backward


USUAL = {
    "sum": sum_,
    "mean": mean,
    "max": max_,
    "log-softmax": log_softmax,
    "cross-entropy": cross_entropy,
    "gelu": gelu,
    "layer-norm": layer_norm,
    "rms-norm": rms_norm,
    "attention": attention,
    "causal-padding": masked_attention,
    "grouped-query": grouped_query,
    "rotary": rotary,
    "positions": embed,
    "swiglu": swiglu,
    "adamw": adamw,
    "clipping": clip,
    "tiled-attention": tiled_attention,
    "expert-weights": expert_weights,
    "balance-loss": balance_loss,
    "kv-cache": step,
    "tied-embedding": tied,
    "cross-attention": cross_attention,
}
