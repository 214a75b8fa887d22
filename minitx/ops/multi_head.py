"""The whole attention layer as one op: projections, attention and the projection back."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.op import composite
from minitx.ops.attention import attention
from minitx.ops.heads import key_value_projections, output_projection, self_attention_projections, split_heads
from minitx.ops.linear import linear
from minitx.tensor import Tensor


@composite(
    "x", "memory", "query", "query_bias", "key", "key_bias", "value", "value_bias", "out", "out_bias", "residual"
)
def multi_head_attention(
    x: Tensor, memory: Tensor | None, query: Tensor, query_bias: Tensor | None, key: Tensor, key_bias: Tensor | None,
    value: Tensor, value_bias: Tensor | None, out: Tensor, out_bias: Tensor | None, residual: Tensor | None = None,
    heads: int = 1, kv_heads: int = 1, mask: Any = None, scale: float | None = None, softcap: float | None = None,
    dropout: float = 0.0, rng: np.random.Generator | None = None,
) -> Tensor:  # fmt: skip
    """
    for: a layer of attention with nothing between its projections and its scores; together, for speed.

    equation:
        q = x W_qᵀ + b_q,  k = M W_kᵀ + b_k,  v = M W_vᵀ + b_v
        y = r + concat_h(attention(q_h, k_g(h), v_g(h))) W_oᵀ + b_o,  g(h) = h // (heads / kv_heads)

    where:
        x           (B, T, d_model)
        memory      (B, S, d_memory)   M, or None: x itself
        query       (heads * d, d_model)       W_q;  query_bias b_q or None
        key, value  (kv_heads * d or d_v, d_memory)  W_k, W_v, and their biases or None
        out         (d_model, heads * d_v)     W_o;  out_bias b_o or None
        residual    r: what passes the layer by, of y's shape; or None
        mask, scale, softcap, dropout, rng  as in attention

    backward: that of its parts. In self-attention the gradient of x is the sum of three.

    saved: what its parts save: x, M, q, k, v, the heads' results, two numbers a query, and the weights.

    source: Vaswani et al. 2017, "Attention is all you need", section 3.2.2.
    """
    if memory is None:
        q, k, v = self_attention_projections(x, query, query_bias, key, key_bias, value, value_bias, heads, kv_heads)
    else:
        q = split_heads(linear(x, query, query_bias), heads)
        k, v = key_value_projections(memory, key, key_bias, value, value_bias, kv_heads)
    o = attention(q, k, v, mask=mask, scale=scale, softcap=softcap, dropout=dropout, rng=rng)  # (B, heads, T, d_v)
    return output_projection(o, out, out_bias, residual)
