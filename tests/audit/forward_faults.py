"""Faults that people make: wrong forward passes, with a backward pass that fits them.

No gradient check can see these; a composition of smaller ops does.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from faults import FAULTS, SMALLER_OPS, Fault, backward_of, other_form, otherwise

from minitx import masks, ops
from minitx.op import Op


def whole(name: str, op: Op, rule: Callable[..., Any] | None = None, **changes: Any) -> None:
    FAULTS.append(Fault(name, op, rule or otherwise(op, **changes), SMALLER_OPS))


# ---------------------------------------------------------------------- the value of other arguments

first_key = {"query_offset": lambda offset: 0 if offset is None else offset}
whole("attention: causal aligned at the first key", ops.attention, **first_key)
whole("attention: the mask forgotten", ops.attention, mask=None)
whole("attention: the scale forgotten", ops.attention, scale=1.0)
whole("gelu: the other form", ops.gelu, approximate=other_form)
whole("geglu: the other GELU", ops.geglu, approximate=other_form)
whole("rotary: halves for neighbours", ops.rotary, interleaved=lambda neighbours: not neighbours)
whole("rotary: the scaling read and not applied", ops.rotary, scaling=None)
whole(
    "rotary: yarn without its temperature", ops.rotary,
    scaling=lambda s: {**s, "attention_factor": 1.0} if s and s["type"] == "yarn" else s,
)  # fmt: skip
whole("rms_norm: w for 1 + w", ops.rms_norm, offset=0.0)
whole("relative_bias: before for after", ops.relative_bias, relative=lambda relative: -relative)
whole("tiled_attention: causal aligned at the first key", ops.tiled_attention, **first_key)
whole("linear_attention: the mask forgotten", ops.linear_attention, mask=None)


# ---------------------------------------------------------------------- other values


def other_key_head(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """Query head i reads key head i % H_kv: what np.tile gives, or repeating in the wrong order."""
    H, H_kv = q.shape[1], k.shape[1]
    order = np.arange(H).reshape(H // H_kv, H_kv).T.ravel()
    bias = options.pop("bias", None)
    bias = bias[:, order] if bias is not None and bias.ndim == 4 and bias.shape[1] > 1 else bias
    o, backward = backward_of(ops.attention, q[:, order], k, v, bias=bias, **options)
    back = np.argsort(order)

    def undo(do: Any) -> Any:
        dq, dk, dv, dbias = backward(do[:, order])
        return dq[:, back], dk, dv, dbias if dbias is None or dbias.ndim < 4 else dbias[:, back]

    return o[:, back], undo


def opposite(q: Any, k: Any, v: Any, *, mask: Any = None, **options: Any) -> Any:
    (B, H, T, _), S = q.shape, k.shape[2]
    allowed = masks.allowed(mask, B, H, T, S, options.get("query_offset"))
    return backward_of(ops.attention, q, k, v, mask=None if allowed is None else ~allowed, **options)


def unbiased(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    narrower = math.sqrt((x.shape[-1] - 1) / x.shape[-1])  # σ² (n - 1) / n, so that with 1 / √ it comes out
    y, backward = backward_of(ops.layer_norm, x, weight, bias, eps)
    centred = y if bias is None else y - bias

    def scaled(dy: Any) -> Any:
        dx, dweight, dbias = backward(dy)
        return dx * narrower, dweight * narrower, dbias

    return centred * narrower + (0 if bias is None else bias), scaled


def from_the_chunk(x: Any, positions: Any, **options: Any) -> Any:
    return backward_of(ops.rotary, x, np.arange(x.shape[2]), **options)


def gate_for_up(gate: Any, up: Any) -> Any:
    y, backward = backward_of(ops.swiglu, up, gate)
    return y, lambda dy: backward(dy)[::-1]


whole("attention: query head i on key head i % H_kv", ops.attention, other_key_head)
whole("attention: True means hidden", ops.attention, opposite)
whole("layer_norm: the unbiased variance", ops.layer_norm, unbiased)
whole("rotary: positions counted from the start of the chunk", ops.rotary, from_the_chunk)
whole("swiglu: gate and up exchanged", ops.swiglu, gate_for_up)
