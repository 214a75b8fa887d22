"""Cases for heads, and for the ops that do several steps at once."""
from __future__ import annotations

from functools import partial
from typing import Any

from minitx import ops
from minitx.audit.case import Case
from minitx.audit.cases.basic import gelu_of_smaller, torch_gelu
from minitx.audit.cases.components import (
    geglu,
    glu,
    reglu,
    swiglu,
    torch_geglu,
    torch_glu,
    torch_reglu,
    torch_swiglu,
)
from minitx.audit.cases.transformer import linear, normal, torch_linear
from minitx.masks import causal
from minitx.tensor import Tensor


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Head by head: its features, cut out."""
    d = x.shape[2] // heads
    return ops.stack([x[:, :, h * d : (h + 1) * d] for h in range(heads)], axis=1)


def merge_heads(x: Tensor) -> Tensor:
    return ops.concatenate([x[:, h] for h in range(x.shape[1])], axis=-1)


def torch_split_heads(torch: Any, x: Any, heads: int) -> Any:
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def projections(x: Tensor, *weights: Any, heads: int, kv_heads: int) -> tuple[Tensor, ...]:
    pairs = zip(weights[::2], weights[1::2], (heads, kv_heads, kv_heads))
    return tuple(split_heads(linear(x, weight, bias), n) for weight, bias, n in pairs)


def torch_projections(torch: Any, x: Any, *weights: Any, heads: int, kv_heads: int) -> Any:
    pairs = zip(weights[::2], weights[1::2], (heads, kv_heads, kv_heads))
    return tuple(torch_split_heads(torch, torch_linear(torch, x, weight, bias), n) for weight, bias, n in pairs)


def key_values(memory: Tensor, *weights: Any, kv_heads: int) -> tuple[Tensor, ...]:
    return tuple(split_heads(linear(memory, *pair), kv_heads) for pair in zip(weights[::2], weights[1::2]))


def torch_key_values(torch: Any, memory: Any, *weights: Any, kv_heads: int) -> Any:
    pairs = zip(weights[::2], weights[1::2])
    return tuple(torch_split_heads(torch, torch_linear(torch, memory, *pair), kv_heads) for pair in pairs)


ACTIVATIONS: dict[str, tuple[Any, Any]] = {  # from smaller ops, and PyTorch's
    "relu": (lambda z: ops.maximum(z, 0.0), lambda torch, z: torch.relu(z)),
    "gelu": (gelu_of_smaller, torch_gelu),
    "gelu_tanh": (partial(gelu_of_smaller, approximate="tanh"), partial(torch_gelu, approximate="tanh")),
    "silu": (lambda z: z * ops.sigmoid(z), lambda torch, z: torch.nn.functional.silu(z)),
}
GATES: dict[str, tuple[Any, Any]] = {
    "glu": (glu, torch_glu),
    "reglu": (reglu, torch_reglu),
    "geglu": (geglu, torch_geglu),
    "geglu_tanh": (partial(geglu, approximate="tanh"), partial(torch_geglu, approximate="tanh")),
    "swiglu": (swiglu, torch_swiglu),
}


def feed_forward(
    x: Tensor, up: Tensor, up_bias: Tensor | None, down: Tensor, down_bias: Tensor | None, activation: str = "relu",
    residual: Tensor | float = 0.0,
) -> Tensor:  # fmt: skip
    return residual + linear(ACTIVATIONS[activation][0](linear(x, up, up_bias)), down, down_bias)


def gated_feed_forward(
    x: Tensor, gate: Tensor, gate_bias: Tensor | None, up: Tensor, up_bias: Tensor | None, down: Tensor,
    down_bias: Tensor | None, activation: str = "swiglu", residual: Tensor | float = 0.0,
) -> Tensor:  # fmt: skip
    return residual + linear(GATES[activation][0](linear(x, gate, gate_bias), linear(x, up, up_bias)), down, down_bias)


def torch_feed_forward(
    torch: Any, x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, activation: str, residual: Any = 0.0
) -> Any:
    z = torch_linear(torch, x, up, up_bias)
    return residual + torch_linear(torch, ACTIVATIONS[activation][1](torch, z), down, down_bias)


def torch_gated_feed_forward(
    torch: Any, x: Any, gate: Any, gate_bias: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, activation: str,
    residual: Any = 0.0,
) -> Any:  # fmt: skip
    g, u = torch_linear(torch, x, gate, gate_bias), torch_linear(torch, x, up, up_bias)
    return residual + torch_linear(torch, GATES[activation][1](torch, g, u), down, down_bias)


def output(x: Tensor, weight: Tensor, bias: Tensor | None = None, residual: Tensor | float = 0.0) -> Tensor:
    return residual + linear(merge_heads(x), weight, bias)


def torch_output(torch: Any, x: Any, weight: Any, bias: Any = None, residual: Any = 0.0) -> Any:
    return residual + torch_linear(torch, x.transpose(1, 2).flatten(2), weight, bias)


def heads_together(
    x: Tensor, memory: Tensor | None, *rest: Any, heads: int, kv_heads: int, mask: Any = None, softcap: Any = None
) -> Tensor:
    """multi_head_attention, from attention by itself and the cases above."""
    (*weights, weight, bias), residual = rest[:8], rest[8]
    source = x if memory is None else memory
    q = split_heads(linear(x, *weights[:2]), heads)
    k, v = key_values(source, *weights[2:], kv_heads=kv_heads)
    return output(ops.attention(q, k, v, mask=mask, softcap=softcap), weight, bias, residual)


def torch_heads_together(
    torch: Any, x: Any, memory: Any, *rest: Any, heads: int, kv_heads: int, mask: Any = None, softcap: Any = None
) -> Any:
    (*weights, weight, bias), residual = rest[:8], rest[8]
    q = torch_split_heads(torch, torch_linear(torch, x, *weights[:2]), heads)
    k, v = torch_key_values(torch, x if memory is None else memory, *weights[2:], kv_heads=kv_heads)
    k, v = (a.repeat_interleave(heads // kv_heads, 1) for a in (k, v))
    z = q @ k.transpose(2, 3) / q.shape[3] ** 0.5
    z = z if softcap is None else softcap * torch.tanh(z / softcap)
    if mask is not None:  # causal, in these cases
        z = z.masked_fill(torch.ones(z.shape[2:], dtype=torch.bool).triu(1), -torch.inf)
    return torch_output(torch, torch.softmax(z, -1) @ v, weight, bias, residual)


def _plain(name: str) -> Case:
    def draw(r: Any) -> Any:
        *arrays, residual = normal(r, (2, 3, 5), (7, 5), (7,), (5, 7), (5,), (2, 3, 5))
        return (*arrays, name, residual), {}

    return Case("feed_forward", name, draw, feed_forward, torch_feed_forward)


def _gated(name: str) -> Case:
    def draw(r: Any) -> Any:
        *arrays, residual = normal(r, (2, 3, 5), (7, 5), (7,), (7, 5), (7,), (5, 7), (5,), (2, 3, 5))
        return (*arrays, name, residual), {}

    return Case("gated_feed_forward", name, draw, gated_feed_forward, torch_gated_feed_forward)


def _attending(
    r: Any, x: tuple[int, ...], memory: tuple[int, ...] | None, heads: int, kv_heads: int, d: int, d_v: int,
    biased: bool = True,
) -> tuple[Any, ...]:  # fmt: skip
    """Arguments of multi_head_attention, a residual too. (Without a cap the gradient of the keys' bias is 0.)"""
    sizes = heads * d, kv_heads * d, kv_heads * d_v, x[-1]
    read = x[-1], *[(memory or x)[-1]] * 2, heads * d_v
    found = [memory and normal(r, memory)[0]]
    for out, n_in in zip(sizes, read):
        found += [normal(r, (out, n_in))[0] / n_in**0.5, normal(r, (out,))[0] if biased else None]
    first, residual = normal(r, x, x)
    return first, *found, residual


def _without_biases(r: Any, *shapes: Any) -> tuple[Any, ...]:
    x, *weights = normal(r, *shapes)
    return (x, *[a for weight in weights for a in (weight, None)])


CASES = [
    Case("split_heads", "", lambda r: ((*normal(r, (2, 5, 21)), 3), {}), split_heads, torch_split_heads),
    Case("merge_heads", "", lambda r: (normal(r, (2, 3, 5, 7)), {}), merge_heads,
         lambda torch, x: x.transpose(1, 2).flatten(2)),
    Case("self_attention_projections", "two key heads",
         lambda r: (normal(r, (3, 5, 7), (12, 7), (12,), (4, 7), (4,), (10, 7), (10,)), {"heads": 6, "kv_heads": 2}),
         projections, torch_projections),
    Case("self_attention_projections", "no biases",
         lambda r: (_without_biases(r, (2, 3, 5), (6, 5), (6, 5), (6, 5)), {"heads": 2, "kv_heads": 2}),
         projections, torch_projections),
    Case("key_value_projections", "", lambda r: (normal(r, (3, 5, 7), (4, 7), (4,), (10, 7), (10,)), {"kv_heads": 2}),
         key_values, torch_key_values),
    Case("output_projection", "", lambda r: (normal(r, (2, 3, 5, 7), (11, 21), (11,), (2, 5, 11)), {}), output,
         torch_output),
    Case("output_projection", "alone", lambda r: (normal(r, (2, 3, 5, 7), (11, 21)), {}), output, torch_output),
    Case("multi_head_attention", "of itself, two key heads",
         lambda r: (_attending(r, (2, 5, 7), None, 4, 2, 3, 5),
                    {"heads": 4, "kv_heads": 2, "mask": causal(), "softcap": 2.0}),
         heads_together, torch_heads_together),
    Case("multi_head_attention", "of another, no biases",
         lambda r: (_attending(r, (2, 3, 5), (2, 7, 11), 2, 2, 3, 3, biased=False), {"heads": 2, "kv_heads": 2}),
         heads_together, torch_heads_together),
    *map(_plain, ACTIVATIONS),
    Case("feed_forward", "alone",
         lambda r: (_without_biases(r, (3, 5), (7, 5), (5, 7)), {"activation": "gelu"}), feed_forward,
         torch_feed_forward),
    *map(_gated, GATES),
    Case("gated_feed_forward", "alone",
         lambda r: (_without_biases(r, (3, 5), (7, 5), (7, 5), (5, 7)), {"activation": "swiglu"}), gated_feed_forward,
         torch_gated_feed_forward),
]  # fmt: skip
