"""Multi-head attention: every position asks, every position answers, in several subspaces at once."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx import masks
from minitx.nn.init import Init, xavier_uniform
from minitx.nn.linear import Linear, plain
from minitx.nn.module import Module
from minitx.ops import (
    attention,
    attention_weights,
    key_value_projections,
    linear_attention,
    merge_heads,
    multi_head_attention,
    output_projection,
    self_attention_projections,
    split_heads,
    tiled_attention,
)
from minitx.ops.arithmetic import onto
from minitx.ops.checks import probability, whole
from minitx.settings import current, no_grad
from minitx.tensor import Array, Tensor


def _linear(q: Tensor, k: Tensor, v: Tensor, *, mask: Any, bias: Any, dropout: float, rng: Any) -> Tensor:
    if bias is not None:
        raise ValueError("linear attention never has the scores that a bias is added to; use rotary positions")
    return linear_attention(q, k, v, mask=mask)


KERNELS: dict[str, Callable[..., Tensor]] = {
    "textbook": attention,
    "tiled": tiled_attention,  # the same function without the T x S matrix
    "linear": _linear,  # another function, which approximates it
}
PARTS = frozenset({"of_itself", "keys_and_values", "mixed"})  # methods that one op may do the work of


class MultiHeadAttention(Module):
    """
    Q = X W_Qᵀ,  K = M W_Kᵀ,  V = M W_Vᵀ;  O_h = softmax(Q_h K_g(h)ᵀ / √d + mask) V_g(h);  Y = concat(O_h) W_Oᵀ

    X (B, T, d_model) asks. M, the memory (B, S, d_model), is asked: X itself in self-attention, the encoder's output in
    cross-attention. There are `heads` query heads and `kv_heads` key and value heads (equal: MHA; one: MQA; between:
    GQA); query head h reads key and value head g(h) = h // (heads / kv_heads). `head_dim` is d_model / heads if None.

    Called as `attention(x, memory=None, *, mask=None, bias=None, positions=None, cache=None, weights=False,
    residual=None)`:
    `mask` says which keys a query may see (minitx.masks, or booleans, True = may attend); `bias` (1 or B, H, T, S)
    is added to the scores; `positions` (T) or (B, T) are what `rotary` turns by (None: 0 ... T-1). `memory` may also be
    the pair that `keys_and_values(memory)` returns, made once for many queries. `cache` is an object with
    `append(keys, values, mask) -> (keys, values, mask, query_offset)`: takes the new ones, and returns all so far with
    what the new queries may see of them and where they stand among them (generation/cache.py; None: at the end). With
    `weights=True` the result is (Y, the weights as an array (B, H, T, S)). A `residual` is added to Y.

    What later models add, all of it absent by default:
        rotary         turns queries and keys by their positions (nn.Rotary); self-attention only, as the next
        position_bias  called with (T, S), makes a bias (nn.AlibiBias, nn.RelativeBias)
        qk_norm        head_dim → a norm: one for all query heads, one for all key heads, before they turn
        scale, softcap of the scores: see ops/attention.py
        window         a query sees itself and the window - 1 keys before it
        value_dim      width of a value head, head_dim if None
        out_bias       whether W_O has a bias, `bias` if None
        kernel         "textbook", "tiled" (the same function) or "linear" (an approximation)

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
        rotary: Module | None = None,
        position_bias: Module | None = None,
        qk_norm: Callable[[int], Module] | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | None = None,
        value_dim: int | None = None,
        out_bias: bool | None = None,
        kernel: str = "textbook",
    ) -> None:
        d_model, heads = whole(d_model, "d_model"), whole(heads, "heads", 0)
        kv_heads = heads if kv_heads is None else whole(kv_heads, "kv_heads", 0)
        if heads < 1 or kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"kv_heads divides heads, each serves as many queries: {heads} heads, {kv_heads} kv_heads")
        if head_dim is None and d_model % heads:
            raise ValueError(f"heads divides d_model unless head_dim is given: d_model {d_model}, {heads} heads")
        head_dim = d_model // heads if head_dim is None else whole(head_dim, "head_dim")
        value_dim = head_dim if value_dim is None else whole(value_dim, "value_dim")
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.widths = head_dim, value_dim  # of a key and of a value
        self.query = Linear(d_model, heads * head_dim, bias, rng=rng, init=init)
        self.key = Linear(d_model, kv_heads * head_dim, bias, rng=rng, init=init)
        self.value = Linear(d_model, kv_heads * value_dim, bias, rng=rng, init=init)
        out_bias = bias if out_bias is None else out_bias
        self.out = Linear(heads * value_dim, d_model, out_bias, rng=rng, init=residual_init or init)
        self.dropout, self.rng = probability(dropout, "dropout"), rng
        self.rotary, self.position_bias = rotary, position_bias
        self.query_norm = None if qk_norm is None else qk_norm(head_dim)
        self.key_norm = None if qk_norm is None else qk_norm(head_dim)
        self.window = None if window is None else masks.window(window)
        self.scores = {name: value for name, value in (("scale", scale), ("softcap", softcap)) if value is not None}
        if kernel not in KERNELS:
            raise ValueError(f"the attention kernel is one of {', '.join(KERNELS)}, not {kernel!r}")
        if kernel == "linear" and (self.scores or dropout or window is not None or position_bias is not None):
            raise ValueError("linear attention has no scores: no scale, softcap, position_bias, window, dropout")
        self.kernel, self.attend = kernel, KERNELS[kernel]

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What queries ask of (B, S, d_model): keys (B, H_kv, S, d), before they turn, and values (B, H_kv, S, d_v)."""
        key, value = self.key, self.value
        if plain(key, value):
            k, v = key_value_projections(memory, key.weight, key.bias, value.weight, value.bias, self.kv_heads)
        else:
            k, v = split_heads(key(memory), self.kv_heads), split_heads(value(memory), self.kv_heads)
        return (k if self.key_norm is None else self.key_norm(k)), v

    def by_one_op(self, memory: Any, bias: Any, cache: Any, weights: bool) -> bool:
        """Does nothing stand between the projections and the scores, and does nobody look at what is in between?"""
        return (
            type(self) is MultiHeadAttention  # whose own methods make q, k, v and y: others may do more
            and PARTS.isdisjoint(vars(self))
            and self.attend is attention
            and self.rotary is None
            and self.position_bias is None
            and self.query_norm is None
            and self.key_norm is None
            and bias is None
            and cache is None
            and not weights
            and not isinstance(memory, tuple)
            and current.get().observer is None
            and plain(self.query, self.key, self.value, self.out)
        )

    def of_itself(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of one x, by one op where the three layers are plain ones."""
        query, key, value = self.query, self.key, self.value
        if not plain(query, key, value):
            return split_heads(query(x), self.heads), *self.keys_and_values(x)
        q, k, v = self_attention_projections(
            x, query.weight, query.bias, key.weight, key.bias, value.weight, value.bias, self.heads, self.kv_heads
        )
        return q, (k if self.key_norm is None else self.key_norm(k)), v

    def mixed(self, o: Tensor, residual: Tensor | None) -> Tensor:
        """residual + concat(O_h) W_Oᵀ for o (B, H, T, d_v), by one op where `out` is a plain layer."""
        if plain(self.out):
            return output_projection(o, self.out.weight, self.out.bias, residual)
        return onto(residual, self.out(merge_heads(o)))

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor] | None = None,
        *,
        mask: Any = None,
        bias: Any = None,
        positions: Any = None,
        cache: Any = None,
        weights: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Array]:
        for name, tokens in (("x", x), ("memory", memory)):
            if isinstance(tokens, Tensor) and len(tokens.shape) != 3:
                raise ValueError(f"attention: {name} is (B, T, d_model), not {tokens.shape}; of one row: {name}[None]")
        if memory is not None and not (self.rotary is None and self.position_bias is None and self.window is None):
            raise ValueError("rotary, position_bias and window are for self-attention: memory has positions of its own")
        if self.window is not None:
            mask = self.window if mask is None else self.window & mask
        p = self.dropout if self.training else 0.0
        if self.by_one_op(memory, bias, cache, weights):
            query, key, value, out, scores = self.query, self.key, self.value, self.out, self.scores.get
            return multi_head_attention(
                x, memory, query.weight, query.bias, key.weight, key.bias, value.weight, value.bias, out.weight,
                out.bias, residual, self.heads, self.kv_heads, mask, scores("scale"), scores("softcap"), p, self.rng,
            )  # fmt: skip
        # q (B, H, T, d), k (B, H_kv, S, d), v (B, H_kv, S, d_v)
        if memory is None:
            q, k, v = self.of_itself(x)
        else:
            q = split_heads(self.query(x), self.heads)
            k, v = memory if isinstance(memory, tuple) else self.keys_and_values(memory)
        if self.query_norm is not None:
            q = self.query_norm(q)
        if self.rotary is not None:
            if positions is None and cache is not None:
                raise ValueError("with a cache rotary needs positions: the new tokens do not stand at the beginning")
            positions = np.arange(x.shape[1]) if positions is None else positions
            q, k = (self.rotary(heads, positions, cached=cache is not None) for heads in (q, k))
        query_offset = None  # the last query stands at the last key
        if cache is not None:
            k, v, mask, query_offset = cache.append(k, v, mask)
        if self.position_bias is not None:
            of_distance = self.position_bias(q.shape[2], k.shape[2], query_offset)  # (1 or B, H, T, S)
            bias = of_distance if bias is None else of_distance + bias
        o = self.attend(q, k, v, mask=mask, bias=bias, dropout=p, rng=self.rng, **self.scores)  # (B, H, T, d_v)
        y = self.mixed(o, residual)  # (B, T, d_model)
        if not weights:
            return y
        if self.kernel == "linear":
            raise ValueError("linear attention never makes its weights, so there are none to return")
        with no_grad():
            return y, attention_weights(q, k, mask=mask, bias=bias, **self.scores).numpy()

    def extra(self) -> str:
        kv = f", {self.kv_heads} kv heads" if self.kv_heads != self.heads else ""
        kernel = f", {self.kernel}" if self.kernel != "textbook" else ""
        return f"{self.heads} heads of {self.head_dim}{kv}{f', {self.window}' if self.window else ''}{kernel}"
