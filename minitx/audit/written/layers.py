"""The layers of minitx.nn, written out: heads one after the other, every expert for every token."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx import nn
from minitx.audit.written.twin import of, write
from minitx.models import parts
from minitx.op import Array
from minitx.ops.feedforward import GATES
from minitx.ops.position_bias import relative_positions

# ---------------------------------------------------------------------- inputs


@of(nn.Embedding)
def _(F: Any, m: Any, ids: Any) -> Any:
    return F.embedding(ids, m.weight, m.padding_idx) * m.scale


@of(nn.SegmentEmbedding)
def _(F: Any, m: Any, x: Any, segments: Any = None) -> Any:
    return x + F.embedding(np.zeros(x.shape[1], int) if segments is None else segments, m.weight)


@of(nn.PatchEmbedding)
def _(F: Any, m: Any, patches: Any) -> Any:
    x = patches if hasattr(patches, "requires_grad") else F.array(patches)
    first = m.first.reshape(1, 1, -1) + F.array(np.zeros((x.shape[0], 1, 1)))
    return F.concatenate([first, write(F, m.projection, x)], 1)


@of(nn.sinusoidal)
def table(F: Any, positions: Any, d_model: int) -> Any:
    positions = np.asarray(positions)
    out = np.zeros((*positions.shape, d_model))
    for p in np.ndindex(positions.shape):
        for i in range(d_model):
            angle = positions[p] / 10000 ** (2 * (i // 2) / d_model)
            out[(*p, i)] = math.cos(angle) if i % 2 else math.sin(angle)
    return out


@of(nn.SinusoidalPositions)
def _(F: Any, m: Any, x: Any, positions: Any) -> Any:
    return x + F.array(table(F, positions, x.shape[-1]))


@of(nn.LearnedPositions)
def _(F: Any, m: Any, x: Any, positions: Any) -> Any:
    return x + F.embedding(positions, m.weight)


@of(nn.NoPositions, parts.Identity, parts.NoSegments)
def _(F: Any, m: Any, x: Any, *_: Any) -> Any:
    return x


@of(nn.Rotary)
def _(F: Any, m: Any, x: Any, positions: Any) -> Any:
    options = {"base": m.base, "rotary_dim": m.rotary_dim, "interleaved": m.interleaved, "scaling": m.scaling}
    return F.rotary(x, positions, **{name: value for name, value in options.items() if value is not None})


@of(nn.AlibiBias)
def _(F: Any, m: Any, T: int, S: int) -> Any:
    H = len(m.slopes)
    n = 2 ** math.floor(math.log2(H))
    slopes = [2 ** (-8 * (i + 1) / n) for i in range(n)]
    slopes += [2 ** (-4 * (2 * i + 1) / n) for i in range(H - n)]  # between those, where H is no power of 2
    return F.alibi_bias(relative_positions(T, S), np.array(slopes))


@of(nn.RelativeBias)
def _(F: Any, m: Any, T: int, S: int) -> Any:
    relative = relative_positions(T, S)
    return F.relative_bias(relative, m.weight, max_distance=m.max_distance, bidirectional=m.bidirectional)


# ---------------------------------------------------------------------- layers


@of(nn.Linear)
def _(F: Any, m: Any, x: Any) -> Any:
    return F.linear(x, m.weight, m.bias)


@of(nn.LayerNorm)
def _(F: Any, m: Any, x: Any) -> Any:
    return F.layer_norm(x, m.weight, m.bias, m.eps)


@of(nn.RMSNorm)
def _(F: Any, m: Any, x: Any) -> Any:
    return F.rms_norm(x, m.weight, m.eps, offset=m.offset)


@of(nn.Dropout)
def _(F: Any, m: Any, x: Any) -> Any:
    return F.dropout(x, m.p, m.rng, m.training)


@of(nn.FeedForward)
def _(F: Any, m: Any, x: Any) -> Any:
    return write(F, m.down, getattr(F, m.activation)(write(F, m.up, x)))


@of(nn.GatedFeedForward)
def _(F: Any, m: Any, x: Any) -> Any:
    return write(F, m.down, getattr(F, m.activation)(write(F, m.gate, x), write(F, m.up, x)))


def expert(F: Any, m: Any, e: int, x: Any) -> Any:
    return F.linear(x, m.weight[e], None if m.bias is None else m.bias[e])


@of(nn.ExpertLinear)
def _(F: Any, m: Any, x: Any, counts: Any) -> Any:
    ends = np.cumsum(counts)
    return F.concatenate([expert(F, m, e, x[end - n : end]) for e, (n, end) in enumerate(zip(counts, ends)) if n], 0)


def real_tokens(mask: Any, B: int, T: int) -> Array:
    """Booleans (B, T) of a mask of minitx.masks that is about padding."""
    return np.ones((B, T), np.bool_) if mask is None else np.asarray(mask.dense(B, 1, T)[:, 0])


@of(nn.MixtureOfExperts)
def mixture(F: Any, m: Any, x: Any, *, mask: Any = None, aux: Any = None) -> Any:
    places = math.prod(x.shape[:-1])
    real = np.flatnonzero(real_tokens(mask, *x.shape[:2])) if x.ndim == 3 else np.arange(places)
    rows = x.reshape(places, x.shape[-1])[real]  # (N, d)
    scores = write(F, m.router, rows)  # (N, E)
    chosen = np.argsort(-F.values(scores), axis=1, kind="stable")[:, : m.k]
    weights = F.expert_weights(scores, chosen)  # (N, k)
    y = write(F, m.shared, rows) if m.shared is not None else 0
    for e in range(m.experts):
        h = expert(F, m.up, e, rows)
        act = getattr(F, m.activation)
        h = act(expert(F, m.gate, e, rows), h) if m.activation in GATES else act(h)
        share = (weights * F.array((chosen == e).astype(float))).sum(1)  # (N,)
        y = y + expert(F, m.down, e, h) * share[:, None]
    if aux is not None:
        aux["balance"], aux["router_z"] = F.balance_loss(scores, chosen), F.router_z_loss(scores)
    back = F.array(np.eye(places)[:, real])  # (places, N)
    return (back @ y).reshape(x.shape)


@of(nn.MultiHeadAttention)
def _(
    F: Any, m: Any, x: Any, memory: Any = None, *, mask: Any = None, bias: Any = None, positions: Any = None
) -> Any:
    """y = W_O o + b_O as a sum over heads: each makes its own q, k, v, and adds its own columns of W_O times o_h."""
    memory = x if memory is None else memory
    T, S, d, group = x.shape[1], memory.shape[1], m.head_dim, m.heads // m.kv_heads
    d_v = m.value.weight.shape[0] // m.kv_heads
    positions = np.arange(T) if positions is None else positions
    mask = mask if m.window is None else m.window if mask is None else m.window & mask
    if m.position_bias is not None:
        bias = write(F, m.position_bias, T, S) + (0 if bias is None else bias)  # (1, H, T, S)
    y: Any = 0
    for h in range(m.heads):
        q = project(F, m.query, h, d, x)  # (B, 1, T, d)
        k = project(F, m.key, h // group, d, memory)
        v = project(F, m.value, h // group, d_v, memory)
        if m.query_norm is not None:
            q, k = write(F, m.query_norm, q), write(F, m.key_norm, k)
        if m.rotary is not None:
            q, k = write(F, m.rotary, q, positions), write(F, m.rotary, k, positions)
        if m.kernel == "linear":
            o = F.linear_attention(q, k, v, mask=mask)
        else:
            given = {"mask": mask, "bias": None if bias is None else bias[:, h : h + 1], **m.scores}
            o = F.attention(q, k, v, **{name: value for name, value in given.items() if value is not None})
        y = y + F.linear(o[:, 0], m.out.weight[:, h * d_v : (h + 1) * d_v])
    return y if m.out.bias is None else y + m.out.bias


def project(F: Any, m: Any, h: int, d: int, x: Any) -> Any:
    rows = slice(h * d, (h + 1) * d)
    return F.linear(x, m.weight[rows], None if m.bias is None else m.bias[rows])[:, None]
