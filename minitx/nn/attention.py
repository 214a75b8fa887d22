"""Multi-head attention: every position asks, every position answers, in several subspaces at once."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.nn.init import Init, xavier_uniform
from minitx.nn.linear import Linear
from minitx.nn.module import Module
from minitx.ops import attention, attention_weights, reshape, swapaxes
from minitx.settings import no_grad
from minitx.tensor import Array, Tensor


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, H * d) → (B, H, T, d): head h owns the features h*d ... (h+1)*d - 1 of every position.

    The reshape goes by features first; reshaping straight to (B, H, T, d) would mix positions, and a toy model would
    still learn.
    """
    B, T, width = x.shape
    return swapaxes(reshape(x, (B, T, heads, width // heads)), 1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, d) → (B, T, H * d): the inverse of `split_heads`."""
    B, H, T, d = x.shape
    return reshape(swapaxes(x, 1, 2), (B, T, H * d))


class MultiHeadAttention(Module):
    """
    Q = X W_Qᵀ,  K = M W_Kᵀ,  V = M W_Vᵀ;  O_h = softmax(Q_h K_g(h)ᵀ / √d + mask) V_g(h);  Y = concat(O_h) W_Oᵀ

    X (B, T, d_model) asks. M, the memory (B, S, d_model), is asked: X itself in self-attention, the encoder's output in
    cross-attention. There are `heads` query heads and `kv_heads` key and value heads (equal: MHA; one: MQA; between:
    GQA); query head h reads key and value head g(h) = h // (heads / kv_heads). `head_dim` is d_model / heads if None.

    Called as `attention(x, memory=None, *, mask=None, bias=None, positions=None, cache=None, weights=False)`:
    `mask` says which keys a query may see (minitx.masks, or booleans, True = may attend); `bias` (1 or B, H, T, S)
    is added to the scores; `positions` (T) or (B, T) are for methods that turn queries and keys; `cache` is an object
    whose `append(key, value)` returns all keys and values so far, (B, H_kv, S, d) each. With `weights=True` the result
    is (Y, the weights as an array (B, H, T, S)).

    Raises ValueError where heads, kv_heads and d_model do not divide.
    source: Vaswani et al. 2017, section 3.2; GQA: Ainslie et al. 2023, section 2.2.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        *,
        rng: np.random.Generator,
        init: Init = xavier_uniform,
        residual_init: Init | None = None,
    ) -> None:
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"kv_heads divides heads, each serves as many queries: {heads} heads, {kv_heads} kv_heads")
        if head_dim is None and d_model % heads:
            raise ValueError(f"heads divides d_model unless head_dim is given: d_model {d_model}, {heads} heads")
        head_dim = d_model // heads if head_dim is None else head_dim
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.query = Linear(d_model, heads * head_dim, bias, rng=rng, init=init)
        self.key = Linear(d_model, kv_heads * head_dim, bias, rng=rng, init=init)
        self.value = Linear(d_model, kv_heads * head_dim, bias, rng=rng, init=init)
        self.out = Linear(heads * head_dim, d_model, bias, rng=rng, init=residual_init or init)
        self.dropout, self.rng = dropout, rng

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        *,
        mask: Any = None,
        bias: Any = None,
        positions: Any = None,
        cache: Any = None,
        weights: bool = False,
    ) -> Tensor | tuple[Tensor, Array]:
        memory = x if memory is None else memory
        q = split_heads(self.query(x), self.heads)  # (B, H, T, d)
        k = split_heads(self.key(memory), self.kv_heads)  # (B, H_kv, S, d)
        v = split_heads(self.value(memory), self.kv_heads)  # (B, H_kv, S, d)
        if cache is not None:
            k, v = cache.append(k, v)
        p = self.dropout if self.training else 0.0
        o = attention(q, k, v, mask=mask, bias=bias, dropout=p, rng=self.rng)  # (B, H, T, d)
        y: Tensor = self.out(merge_heads(o))  # (B, T, d_model)
        if not weights:
            return y
        with no_grad():
            return y, attention_weights(q, k, mask=mask, bias=bias).numpy()

    def extra(self) -> str:
        kv = f", {self.kv_heads} kv heads" if self.kv_heads != self.heads else ""
        return f"{self.heads} heads of {self.head_dim}{kv}"
