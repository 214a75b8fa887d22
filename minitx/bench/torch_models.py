"""The models of the training benchmark, written for PyTorch as its users write them: fused projections, SDPA."""
# mypy: disable-error-code="misc,no-untyped-def,unused-ignore"
from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Queries of x, keys and values of memory (x itself: one product for all three)."""

    def __init__(self, d: int, heads: int, kv_heads: int, bias: bool, cross: bool = False) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, d // heads
        self.sizes = [d, kv_heads * self.width, kv_heads * self.width]
        self.cross = cross
        self.query = nn.Linear(d, d, bias) if cross else None
        self.qkv = nn.Linear(d, sum(self.sizes[1:] if cross else self.sizes), bias)
        self.out = nn.Linear(d, d, bias)

    def forward(self, x: Any, memory: Any = None, mask: Any = None, causal: bool = False, turn: Any = None) -> Any:
        B, T, d = x.shape
        if self.query is not None:
            parts = [self.query(x), *self.qkv(memory).split(self.sizes[1:], dim=2)]
        else:
            parts = self.qkv(x).split(self.sizes, dim=2)
        q, k, v = (part.view(B, part.shape[1], -1, self.width).transpose(1, 2) for part in parts)
        if turn is not None:
            q, k = turn(q), turn(k)
        gqa = self.kv_heads != self.heads
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=gqa)
        return self.out(o.transpose(1, 2).reshape(B, T, d))


class Block(nn.Module):
    """Pre-norm: GPT-2's with LayerNorm and GELU, or Llama's with RMSNorm and SwiGLU."""

    def __init__(self, c: Any) -> None:
        super().__init__()
        d, bias, self.gated = c.d_model, c.bias, c.activation == "swiglu"
        norm = nn.RMSNorm if c.norm == "rms" else nn.LayerNorm
        self.norm1, self.norm2 = norm(d, eps=c.norm_eps), norm(d, eps=c.norm_eps)
        self.attention = Attention(d, c.heads, c.kv_heads or c.heads, bias)
        d_ff = c.d_ff or 4 * d
        self.up, self.down = nn.Linear(d, d_ff * (1 + self.gated), bias), nn.Linear(d_ff, d, bias)

    def forward(self, x: Any, turn: Any = None) -> Any:
        x = x + self.attention(self.norm1(x), causal=True, turn=turn)
        h = self.up(self.norm2(x))
        if self.gated:
            gate, up = h.chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * up)
        return x + self.down(F.gelu(h))


class Decoder(nn.Module):
    def __init__(self, c: Any) -> None:
        super().__init__()
        d = c.d_model
        self.tokens, self.places = nn.Embedding(c.vocab_size, d), nn.Embedding(c.max_length, d)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm, self.head = nn.LayerNorm(d, eps=c.norm_eps), nn.Linear(d, c.vocab_size, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Llama(nn.Module):
    def __init__(self, c: Any) -> None:
        super().__init__()
        d, width = c.d_model, c.d_model // c.heads
        self.tokens = nn.Embedding(c.vocab_size, d)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm, self.head = nn.RMSNorm(d, eps=c.norm_eps), nn.Linear(d, c.vocab_size, bias=False)
        rates = c.rope_base ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.arange(c.max_length)[:, None] * rates
        self.cos, self.sin = (torch.cat([f(angles)] * 2, -1).float() for f in (torch.cos, torch.sin))  # (T, d)

    def turn(self, x: Any) -> Any:
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-second, first), -1) * self.sin

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.turn)
        return self.head(self.norm(x))


class PostNorm(nn.Module):
    """Attention, in a decoder attention to the source, feed-forward; each added to x, and the sum normalised."""

    def __init__(self, c: Any, cross: bool) -> None:
        super().__init__()
        d = c.d_model
        self.attention = Attention(d, c.heads, c.heads, c.bias)
        self.cross = Attention(d, c.heads, c.heads, c.bias, cross=True) if cross else None
        self.norms = nn.ModuleList(nn.LayerNorm(d, eps=c.norm_eps) for _ in range(2 + cross))
        self.up, self.down = nn.Linear(d, c.d_ff or 4 * d, c.bias), nn.Linear(c.d_ff or 4 * d, d, c.bias)

    def forward(self, x: Any, mask: Any, memory: Any = None) -> Any:
        x = self.norms[0](x + self.attention(x, mask=None if self.cross else mask, causal=self.cross is not None))
        if self.cross is not None:
            x = self.norms[1](x + self.cross(x, memory, mask))
        return self.norms[-1](x + self.down(F.relu(self.up(x))))


class EncoderDecoder(nn.Module):
    """As of 2017: sinusoidal positions, one table for both embeddings and the head."""

    def __init__(self, c: Any) -> None:
        super().__init__()
        d = c.d_model
        self.tokens, self.scale = nn.Embedding(c.vocab_size, d), math.sqrt(d)
        angles = torch.arange(c.max_length)[:, None] * 10000 ** -(torch.arange(0, d, 2, dtype=torch.float64) / d)
        self.places = torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()
        self.encoder = nn.ModuleList(PostNorm(c, cross=False) for _ in range(c.layers))
        self.decoder = nn.ModuleList(PostNorm(c, cross=True) for _ in range(c.layers))

    def embed(self, ids: Any) -> Any:
        return self.tokens(ids) * self.scale + self.places[: ids.shape[1]]

    def forward(self, ids: Any, target_ids: Any, mask: Any) -> Any:
        mask = mask[:, None]  # (B, 1, 1, S)
        memory = self.embed(ids)
        for block in self.encoder:
            memory = block(memory, mask)
        x = self.embed(target_ids)
        for block in self.decoder:
            x = block(x, mask, memory)
        return x @ self.tokens.weight.T
