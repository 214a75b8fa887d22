"""The parts of a TorchTransformer: minitx's layers again, in PyTorch, with PyTorch's gradients.

Attributes are called as in minitx.nn and minitx.models, so parameters have the same names on both sides. `c` is a
TransformerConfig. `see` is boolean (B or 1, 1, T, S), True = may attend, or None: all.
"""
# mypy: allow-subclassing-any
# (types are checked without PyTorch too, and nn.Module is then Any)
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from minitx.models.config import TransformerConfig
from minitx.ops.feedforward import GATES
from minitx.ops.position_bias import alibi_slopes, relative_buckets, relative_positions

PHI: dict[str, Any] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu,
    "glu": torch.sigmoid, "reglu": F.relu, "geglu": F.gelu, "geglu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "swiglu": F.silu,
}  # fmt: skip


class RMSNorm(nn.Module):
    """(offset + w) x / √(mean(x²) + ε)"""

    def __init__(self, d: int, eps: float, offset: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((d,), 1 - offset))
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.offset + self.weight, self.eps)


def norm(c: TransformerConfig, d: int) -> nn.Module:
    return RMSNorm(d, c.norm_eps, c.norm_offset) if c.norm == "rms" else nn.LayerNorm(
        d, c.norm_eps, bias=c.norm_bias is not False
    )


# ---------------------------------------------------------------------- attention


def turn(x: Tensor, angles: tuple[Tensor, Tensor], interleaved: bool) -> Tensor:
    """x (B, H, T, d), of which the first n features turn by the angles: cos and sin, (1, T, n/2) or (B, 1, T, n/2)."""
    cos, sin = angles
    n = 2 * cos.shape[-1]
    turned, rest = x[..., :n], x[..., n:]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if interleaved else turned.chunk(2, dim=-1)
    a, b = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack([a, b], dim=-1).flatten(-2) if interleaved else torch.cat([a, b], dim=-1)
    return torch.cat([turned, rest], dim=-1)


class AlibiBias(nn.Module):
    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes = alibi_slopes(heads)

    def forward(self, T: int, S: int, like: Tensor) -> Tensor:
        slopes, distance = (torch.from_numpy(a).to(like) for a in (self.slopes, relative_positions(T, S)))
        return -slopes[:, None, None] * distance[:, None].abs()  # (1, H, T, S)


class RelativeBias(nn.Module):
    def __init__(self, c: TransformerConfig, bidirectional: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(c.relative_buckets, c.heads))
        self.max_distance, self.bidirectional = c.relative_max_distance, bidirectional

    def forward(self, T: int, S: int, like: Tensor) -> Tensor:
        where = relative_buckets(relative_positions(T, S), len(self.weight), self.max_distance, self.bidirectional)
        return self.weight[torch.from_numpy(where).to(like.device)].permute(0, 3, 1, 2)  # (1, H, T, S)


class Attention(nn.Module):
    def __init__(self, c: TransformerConfig, window: int | None = None, position_bias: nn.Module | None = None) -> None:
        super().__init__()
        self.heads, self.kv_heads, d = c.heads, c.kv_heads or c.heads, c.head_width
        d_v = c.value_dim or d
        bias = c.bias if c.attention_bias is None else c.attention_bias
        out_bias = bias if c.attention_out_bias is None else c.attention_out_bias
        self.query = nn.Linear(c.d_model, self.heads * d, bias)
        self.key = nn.Linear(c.d_model, self.kv_heads * d, bias)
        self.value = nn.Linear(c.d_model, self.kv_heads * d_v, bias)
        self.out = nn.Linear(self.heads * d_v, c.d_model, out_bias)
        self.position_bias = position_bias
        self.query_norm, self.key_norm = (norm(c, d) if c.qk_norm else nn.Identity() for _ in range(2))
        self.scale = d**-0.5 if c.attention_scale is None else c.attention_scale
        self.softcap, self.window, self.interleaved = c.attention_softcap, window, c.rope_interleaved
        self.p = c.dropout if c.attention_dropout is None else c.attention_dropout
        self.linear = c.attention_kernel == "linear"

    def forward(self, x: Tensor, memory: Tensor, see: Tensor | None, angles: Any = None) -> Tensor:
        (B, T, _), S = x.shape, memory.shape[1]
        q = self.query_norm(self.query(x).view(B, T, self.heads, -1).transpose(1, 2))  # (B, H, T, d)
        k = self.key_norm(self.key(memory).view(B, S, self.kv_heads, -1).transpose(1, 2))  # (B, H_kv, S, d)
        v = self.value(memory).view(B, S, self.kv_heads, -1).transpose(1, 2)
        if angles is not None:
            q, k = turn(q, angles, self.interleaved), turn(k, angles, self.interleaved)
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (k, v))  # (B, H, S, d)
        bias = None if self.position_bias is None else self.position_bias(T, S, q)
        if self.window is not None:
            back = torch.from_numpy(-relative_positions(T, S)).to(q.device)  # how far behind the query a key stands
            see = both(see, (back >= 0) & (back < self.window))
        o = linear_attention(q, k, v, see) if self.linear else self.softmax_attention(q, k, v, see, bias)
        y: Tensor = self.out(o.transpose(1, 2).reshape(B, T, -1))
        return y

    def softmax_attention(self, q: Tensor, k: Tensor, v: Tensor, see: Tensor | None, bias: Tensor | None) -> Tensor:
        p = self.p if self.training else 0.0
        if self.softcap is None and bias is None:
            return F.scaled_dot_product_attention(q, k, v, see, p, scale=self.scale)
        z = self.scale * q @ k.transpose(2, 3)  # (B, H, T, S)
        z = z if self.softcap is None else self.softcap * torch.tanh(z / self.softcap)
        z = z if bias is None else z + bias
        if see is None:
            w = z.softmax(-1)
        else:
            nothing = ~see.any(-1, keepdim=True)  # such a query gets 0, and not NaN
            w = z.masked_fill(~(see | nothing), -math.inf).softmax(-1).masked_fill(nothing, 0)
        return F.dropout(w, p) @ v


def linear_attention(q: Tensor, k: Tensor, v: Tensor, see: Tensor | None) -> Tensor:
    """o_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j), φ = elu + 1; written out in T x S pairs."""
    w = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(2, 3)
    w = w if see is None else w * see
    total = w.sum(-1, keepdim=True)
    return w @ v / torch.where(total == 0, 1.0, total)


def both(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a & b


# ---------------------------------------------------------------------- feed-forward


class FeedForward(nn.Module):
    """down(φ(up x)), or down(φ(gate x) * up x)"""

    def __init__(self, c: TransformerConfig, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.gate = nn.Linear(c.d_model, d_ff, bias) if c.activation in GATES else None
        self.up, self.down = nn.Linear(c.d_model, d_ff, bias), nn.Linear(d_ff, c.d_model, bias)
        self.phi = PHI[c.activation]
        self.dropout = nn.Dropout(c.dropout if c.ff_dropout is None else c.ff_dropout)

    def forward(self, x: Tensor, real: Tensor | None = None, aux: Any = None) -> Tensor:
        h = self.phi(self.up(x)) if self.gate is None else self.phi(self.gate(x)) * self.up(x)
        y: Tensor = self.down(self.dropout(h))
        return y


class ExpertLinear(nn.Module):
    def __init__(self, experts: int, d_in: int, d_out: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, d_out, d_in).uniform_(-1, 1) * d_in**-0.5)
        self.bias = nn.Parameter(torch.zeros(experts, d_out)) if bias else None

    def forward(self, x: Tensor, e: int) -> Tensor:
        return F.linear(x, self.weight[e], None if self.bias is None else self.bias[e])


class MixtureOfExperts(nn.Module):
    """Σ_(j of k) w_j FFN_(c_j)(x) + FFN_shared(x), the k largest of the router's scores; padding takes no part."""

    def __init__(self, c: TransformerConfig, d_ff: int, bias: bool) -> None:
        super().__init__()
        self.k, gated = c.experts_per_token, c.activation in GATES
        self.router = nn.Linear(c.d_model, c.experts, bias=False)
        self.gate = ExpertLinear(c.experts, c.d_model, d_ff, bias) if gated else None
        self.up = ExpertLinear(c.experts, c.d_model, d_ff, bias)
        self.down = ExpertLinear(c.experts, d_ff, c.d_model, bias)
        self.phi = PHI[c.activation]
        self.dropout = nn.Dropout(c.dropout if c.ff_dropout is None else c.ff_dropout)
        self.shared = FeedForward(c, c.shared_experts * d_ff, bias) if c.shared_experts else None

    def forward(self, x: Tensor, real: Tensor | None = None, aux: dict[str, Tensor] | None = None) -> Tensor:
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if real is None else real.expand(x.shape[:2])
        rows = x[real]  # (N, d_model)
        s = self.router(rows)  # (N, E)
        top, chosen = s.topk(self.k)  # (N, k)
        p = s.softmax(-1)
        w = top.softmax(-1) if self.k > 1 else p.gather(1, chosen)
        y = torch.zeros_like(rows)
        for e in range(s.shape[1]):
            token, j = torch.nonzero(chosen == e, as_tuple=True)
            h = self.up(rows[token], e)
            h = self.phi(h) if self.gate is None else self.phi(self.gate(rows[token], e)) * h
            y = y.index_add(0, token, w[token, j, None] * self.down(self.dropout(h), e))
        y = y if self.shared is None else y + self.shared(rows)
        if aux is not None:
            n, E = max(len(s), 1), s.shape[1]
            f = torch.bincount(chosen.flatten(), minlength=E).to(s) / max(chosen.numel(), 1)
            aux["balance"] = E * (f * p.sum(0)).sum() / n
            aux["router_z"] = s.logsumexp(-1).square().sum() / n
        return torch.zeros_like(x).masked_scatter(real[..., None].expand_as(x), y)


def feedforward(c: TransformerConfig) -> nn.Module:
    bias = c.bias if c.ff_bias is None else c.ff_bias
    return (MixtureOfExperts if c.experts else FeedForward)(c, c.d_ff or 4 * c.d_model, bias)


# ---------------------------------------------------------------------- blocks


class Residual(nn.Module):
    """post: norm(x + f(x));  pre: x + f(norm(x));  both: x + norm_after(f(norm(x)))"""

    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.norm = norm(c, c.d_model)
        self.norm_after = norm(c, c.d_model) if c.norm_placement == "both" else nn.Identity()
        self.post, self.dropout = c.norm_placement == "post", nn.Dropout(c.dropout)

    def forward(self, x: Tensor, f: Any) -> Tensor:
        y: Tensor = (
            self.norm(x + self.dropout(f(x))) if self.post else x + self.dropout(self.norm_after(f(self.norm(x))))
        )
        return y


class Block(nn.Module):
    """An encoder's or a decoder's block: who may see whom, `see`, comes from outside."""

    def __init__(self, c: TransformerConfig, layer: int, position_bias: nn.Module | None, crosses: bool) -> None:
        super().__init__()
        window = c.window if layer % c.window_every == 0 else None
        self.attention, self.attention_residual = Attention(c, window, position_bias), Residual(c)
        if crosses:
            self.cross_attention, self.cross_attention_residual = Attention(c), Residual(c)
        self.feedforward, self.feedforward_residual = feedforward(c), Residual(c)

    def forward(
        self, x: Tensor, see: Tensor | None, angles: Any, real: Tensor | None, aux: dict[str, Tensor],
        memory: Tensor | None = None, see_memory: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        x = self.attention_residual(x, lambda h: self.attention(h, h, see, angles))
        if memory is not None:
            x = self.cross_attention_residual(x, lambda h: self.cross_attention(h, memory, see_memory))
        y: Tensor = self.feedforward_residual(x, lambda h: self.feedforward(h, real, aux))
        return y
