"""multi_head_attention, fast: the kernels of its parts, one after the other, without Tensors between them."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.kernels.attention import attention
from minitx.kernels.heads import output_projection, projections
from minitx.kernels.linear import adds, fits

Array = np.ndarray[Any, Any]


def multi_head_attention(
    x: Array, memory: Array | None, query: Array, query_bias: Array | None, key: Array, key_bias: Array | None,
    value: Array, value_bias: Array | None, out: Array, out_bias: Array | None, residual: Array | None = None,
    heads: int = 1, kv_heads: int = 1, mask: Any = None, scale: float | None = None, softcap: float | None = None,
    dropout: float = 0.0, rng: np.random.Generator | None = None,
) -> tuple[Array, Callable[..., Any]]:  # fmt: skip
    """y = concat(attention(q, k, v)) W_oᵀ + b_o + r"""
    parts = (query, query_bias, heads), (key, key_bias, kv_heads), (value, value_bias, kv_heads)
    made = [projections(x, parts)] if memory is None else [projections(x, parts[:1]), projections(memory, parts[1:])]
    if NotImplemented in made:
        return NotImplemented  # type: ignore[no-any-return]
    q, k, v = [head for outputs, _ in made for head in outputs]
    # (Asked before attention, which may draw from rng: once for a case.)
    fine = fits(out, out, out_bias) and out.shape[1] == heads * v.shape[3]
    if not (fine and adds(residual, (*x.shape[:2], len(out)), x.dtype)):
        return NotImplemented  # type: ignore[no-any-return]
    attended = attention(q, k, v, mask=mask, scale=scale, softcap=softcap, dropout=dropout, rng=rng)
    if attended is NotImplemented:
        return NotImplemented  # type: ignore[no-any-return]
    o, scored = attended
    y, mixed = output_projection(o, out, out_bias, residual)

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        do, dout, dout_bias, dr = mixed(dy, (any(need[:8]), need.out, need.out_bias))
        if do is None:
            return *[None] * 8, dout, dout_bias, dr
        dq, dk, dv, _ = scored(do, need)
        dmemory = None
        if memory is None:
            dx, *dweights = made[0][1]((dq, dk, dv), (need.x, *need[2:8]))
        else:
            dx, *dquery = made[0][1]((dq,), (need.x, *need[2:4]))
            dmemory, *dkey_value = made[1][1]((dk, dv), (need.memory, *need[4:8]))
            dweights = [*dquery, *dkey_value]
        return dx, dmemory, *dweights, dout, dout_bias, dr

    return y, backward
