"""Heads: one vector of features, read as several smaller ones that attend each for itself."""
from __future__ import annotations

from minitx.op import Array, Forward, composite, op
from minitx.ops.arithmetic import onto
from minitx.ops.linear import linear
from minitx.tensor import Tensor


@op
def split_heads(x: Array, heads: int = 1) -> Forward:
    """
    for: several attentions side by side, each in its own part of the features.

    equation:
        y[b, h, t, i] = x[b, t, h * d + i]

    where:
        x  (B, T, heads * d)
        y  (B, heads, T, d)   head h owns the features h*d ... (h+1)*d - 1 of every position

    by hand:
        >>> split_heads(np.array([[[0, 1, 2, 3], [4, 5, 6, 7]]]), 2).numpy()[0].astype(int).tolist()
        [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]

    backward:
        dx = merge_heads(dy)

    why: every number goes to one place, so its gradient comes back from there.

    saved: nothing.

    goes wrong: reshaping straight to (B, heads, T, d) gives the same shape and mixes positions: head 0 gets the first
        positions, whole. The toy models still learn.

    exercise: heads

    source: Vaswani et al. 2017, "Attention is all you need", section 3.2.2.
    """
    if x.ndim != 3 or heads < 1 or x.shape[2] % heads:
        raise ValueError(f"split_heads: x is (B, T, heads * d); {x.shape} does not divide into {heads} heads")
    B, T, width = x.shape
    y = x.reshape(B, T, heads, width // heads).swapaxes(1, 2)  # (B, H, T, d)
    return y, lambda dy: dy.swapaxes(1, 2).reshape(B, T, width)


@op
def merge_heads(x: Array) -> Forward:
    """
    for: what the heads have found, as one vector of features again: the inverse of split_heads.

    equation:
        y[b, t, h * d + i] = x[b, h, t, i]

    where:
        x  (B, heads, T, d)
        y  (B, T, heads * d)

    by hand:
        >>> merge_heads(np.array([[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]])).numpy()[0].astype(int).tolist()
        [[0, 1, 2, 3], [4, 5, 6, 7]]

    backward:
        dx = split_heads(dy)

    why: as split_heads.

    saved: nothing.

    source: Vaswani et al. 2017, section 3.2.2.
    """
    if x.ndim != 4:
        raise ValueError(f"merge_heads: x is (B, heads, T, d), not {x.shape}")
    B, H, T, d = x.shape
    y = x.swapaxes(1, 2).reshape(B, T, H * d)
    return y, lambda dy: dy.reshape(B, T, H, d).swapaxes(1, 2)


@composite("x", "query", "query_bias", "key", "key_bias", "value", "value_bias")
def self_attention_projections(
    x: Tensor, query: Tensor, query_bias: Tensor | None, key: Tensor, key_bias: Tensor | None, value: Tensor,
    value_bias: Tensor | None, heads: int = 1, kv_heads: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """
    for: what every position asks, what it answers to and what it says, made of one x; together, for speed.

    equation:
        q, k, v = the heads of  x W_qᵀ + b_q,  x W_kᵀ + b_k,  x W_vᵀ + b_v

    where:
        x            (B, T, d_model)
        query, ...   (heads * d, d_model), key and value (kv_heads * d, d_model); their biases or None
        q            (B, heads, T, d);  k, v  (B, kv_heads, T, d)

    backward: that of its parts: the gradient of x is the sum of three.

    saved: x and the weights, once.

    differs from: PyTorch's MultiheadAttention, which stacks the three weights in one matrix; here each has its name.
    """
    q = split_heads(linear(x, query, query_bias), heads)
    k = split_heads(linear(x, key, key_bias), kv_heads)
    v = split_heads(linear(x, value, value_bias), kv_heads)
    return q, k, v


@composite("memory", "key", "key_bias", "value", "value_bias")
def key_value_projections(
    memory: Tensor, key: Tensor, key_bias: Tensor | None, value: Tensor, value_bias: Tensor | None, kv_heads: int = 1
) -> tuple[Tensor, Tensor]:
    """
    for: what a sequence that others ask answers to, and what it says: keys and values for cross-attention.

    equation:
        k, v = the heads of  M W_kᵀ + b_k,  M W_vᵀ + b_v

    where:
        memory      (B, S, d_model)   M
        key, value  (kv_heads * d, d_model), and their biases or None
        k, v        (B, kv_heads, S, d)

    backward: that of its parts: the gradient of M is the sum of two.

    saved: M and the weights, once.
    """
    k = split_heads(linear(memory, key, key_bias), kv_heads)
    v = split_heads(linear(memory, value, value_bias), kv_heads)
    return k, v


@composite("x", "weight", "bias", "residual")
def output_projection(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    """
    for: what all heads have found, mixed, and added to what passes the attention by; together, for speed.

    equation:
        y = r + merge_heads(x) Wᵀ + b

    where:
        x         (B, heads, T, d)
        weight    (d_model, heads * d)   W;  bias (d_model,)   b, or None
        residual  r: of y's shape, or None
        y         (B, T, d_model)

    backward: that of its parts: dr = dy.

    saved: x and the weight.

    source: Vaswani et al. 2017, sections 3.1 and 3.2.2.
    """
    return onto(residual, linear(merge_heads(x), weight, bias))
