"""Faults that people make in rotary positions, biases by distance, RMSNorm, gates, tiled and linear attention."""
from __future__ import annotations

from typing import Any

import numpy as np
from faults import backward_of, fault, whole

from minitx import ops
from minitx.ops.position_bias import relative_buckets

# ---------------------------------------------------------------------- wrong backward passes


@fault("rotary: turned forward once more on the way back", ops.rotary)
def _(dx: Any, dy: Any, y: Any, x: Any, positions: Any, **options: Any) -> Any:
    return backward_of(ops.rotary, dy, positions, **options)[0]


@fault("rotary: what does not turn gets no gradient", ops.rotary)
def _(dx: Any, dy: Any, y: Any, x: Any, positions: Any, *, rotary_dim: Any = None, **options: Any) -> Any:
    return np.where(np.arange(x.shape[3]) < (rotary_dim or x.shape[3]), dx, 0)


@fault("rms_norm: the root mean square treated as a constant", ops.rms_norm)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any = None, eps: float = 1e-6, *, offset: float = 0.0) -> Any:
    dxhat = dy if weight is None else dy * (offset + weight)
    return dxhat / np.sqrt((x * x).mean(-1, keepdims=True) + eps), *grads[1:]


@fault("rms_norm: 1 + w forward, w backward", ops.rms_norm)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any = None, eps: float = 1e-6, *, offset: float = 0.0) -> Any:
    return backward_of(ops.rms_norm, x, weight, eps)[1](dy)


@fault("relative_bias: dW[bucket] += dy keeps one of several", ops.relative_bias)
def _(dweight: Any, dy: Any, y: Any, relative: Any, weight: Any, **options: Any) -> Any:
    d = np.zeros_like(weight)
    bucket = relative_buckets(relative, len(weight), **options).reshape(-1, *relative.shape[-2:])
    d[bucket] += np.moveaxis(dy, 1, -1)
    return d


@fault("swiglu: the slope of σ alone", ops.swiglu)
def _(grads: Any, dy: Any, y: Any, gate: Any, up: Any) -> Any:
    return dy * up / (1 + np.exp(-gate)), grads[1]


@fault("tiled_attention: the scores made again without the cap", ops.tiled_attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, *, softcap: Any = None, **options: Any) -> Any:
    return grads if softcap is None else backward_of(ops.tiled_attention, q, k, v, **options)[1](do)


@fault("tiled_attention: other weights dropped in the backward", ops.tiled_attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, **options: Any) -> Any:
    return backward_of(ops.tiled_attention, q, k, v, **options | {"rng": np.random.default_rng(0)})[1](do)


@fault("linear_attention: the slope of φ left out", ops.linear_attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, **options: Any) -> Any:
    return *(g / np.minimum(np.exp(x), 1) for g, x in zip(grads, (q, k))), grads[2]


# ---------------------------------------------------------------------- wrong forward passes


def other_pairs(x: Any, positions: Any, *, interleaved: bool = False, **options: Any) -> Any:
    return backward_of(ops.rotary, x, positions, interleaved=not interleaved, **options)


def scaling_not_applied(x: Any, positions: Any, *, scaling: Any = None, **options: Any) -> Any:
    return backward_of(ops.rotary, x, positions, **options)


def no_temperature(x: Any, positions: Any, *, scaling: Any = None, **options: Any) -> Any:
    if scaling is not None and scaling["type"] == "yarn":
        scaling = {**scaling, "attention_factor": 1.0}
    return backward_of(ops.rotary, x, positions, scaling=scaling, **options)


def from_the_chunk(x: Any, positions: Any, **options: Any) -> Any:
    return backward_of(ops.rotary, x, np.arange(x.shape[2]), **options)


def plain_gain(x: Any, weight: Any = None, eps: float = 1e-6, *, offset: float = 0.0) -> Any:
    return backward_of(ops.rms_norm, x, weight, eps)


def before_and_after(relative: Any, weight: Any, **options: Any) -> Any:
    return backward_of(ops.relative_bias, -relative, weight, **options)


def gate_for_up(gate: Any, up: Any) -> Any:
    y, backward = backward_of(ops.swiglu, up, gate)
    return y, lambda dy: backward(dy)[::-1]


def other_geglu(gate: Any, up: Any, approximate: str = "none") -> Any:
    return backward_of(ops.geglu, gate, up, "none" if approximate == "tanh" else "tanh")


def upper_left_tiles(q: Any, k: Any, v: Any, **options: Any) -> Any:
    return backward_of(ops.tiled_attention, q, k, v, **{"query_offset": 0} | options)


def whole_chunks(q: Any, k: Any, v: Any, *, mask: Any = None, chunk: int = 64) -> Any:
    return backward_of(ops.linear_attention, q, k, v)


whole("rotary: halves for neighbours", ops.rotary, other_pairs)
whole("rotary: the scaling read and not applied", ops.rotary, scaling_not_applied)
whole("rotary: yarn without its temperature", ops.rotary, no_temperature)
whole("rotary: positions counted from the start of the chunk", ops.rotary, from_the_chunk)
whole("rms_norm: w for 1 + w", ops.rms_norm, plain_gain)
whole("relative_bias: before for after", ops.relative_bias, before_and_after)
whole("swiglu: gate and up exchanged", ops.swiglu, gate_for_up)
whole("geglu: the other GELU", ops.geglu, other_geglu)
whole("tiled_attention: causal aligned at the first key", ops.tiled_attention, upper_left_tiles)
whole("linear_attention: the mask forgotten", ops.linear_attention, whole_chunks)
