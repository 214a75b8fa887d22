"""Cases for heads, and for the ops that do several steps at once."""
from __future__ import annotations

from typing import Any

from minitx import ops
from minitx.audit.case import Case
from minitx.audit.cases.transformer import linear, normal, torch_linear
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


def relu(z: Tensor) -> Tensor:
    return ops.maximum(z, 0.0)


def gelu(z: Tensor) -> Tensor:
    return z * (1 + ops.erf(z * 0.5**0.5)) * 0.5


def gelu_tanh(z: Tensor) -> Tensor:
    return z * ops.sigmoid(1.5957691216057308 * (z + 0.044715 * z * z * z))


def silu(z: Tensor) -> Tensor:
    return z * ops.sigmoid(z)


PHI: dict[str, Any] = {
    "relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu, "glu": ops.sigmoid, "reglu": relu, "geglu": gelu,
    "geglu_tanh": gelu_tanh, "swiglu": silu,
}  # fmt: skip


def torch_phi(torch: Any, name: str) -> Any:
    F = torch.nn.functional
    if name.endswith("tanh"):
        return lambda z: F.gelu(z, approximate="tanh")
    return {"relu": F.relu, "reglu": F.relu, "glu": torch.sigmoid, "gelu": F.gelu, "geglu": F.gelu}.get(name, F.silu)


def feed_forward(
    x: Tensor, up: Tensor, up_bias: Tensor | None, down: Tensor, down_bias: Tensor | None, activation: str = "relu"
) -> Tensor:
    return linear(PHI[activation](linear(x, up, up_bias)), down, down_bias)


def gated_feed_forward(
    x: Tensor, gate: Tensor, gate_bias: Tensor | None, up: Tensor, up_bias: Tensor | None, down: Tensor,
    down_bias: Tensor | None, activation: str = "swiglu",
) -> Tensor:  # fmt: skip
    return linear(PHI[activation](linear(x, gate, gate_bias)) * linear(x, up, up_bias), down, down_bias)


def torch_feed_forward(torch: Any, x: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, activation: str) -> Any:
    z = torch_linear(torch, x, up, up_bias)
    return torch_linear(torch, torch_phi(torch, activation)(z), down, down_bias)


def torch_gated_feed_forward(
    torch: Any, x: Any, gate: Any, gate_bias: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, activation: str
) -> Any:
    g, u = torch_linear(torch, x, gate, gate_bias), torch_linear(torch, x, up, up_bias)
    return torch_linear(torch, torch_phi(torch, activation)(g) * u, down, down_bias)


def _plain(name: str) -> Case:
    return Case(
        "feed_forward", name, lambda r: (normal(r, (2, 3, 5), (7, 5), (7,), (5, 7), (5,)), {"activation": name}),
        feed_forward, torch_feed_forward,
    )  # fmt: skip


def _gated(name: str) -> Case:
    return Case(
        "gated_feed_forward", name,
        lambda r: (normal(r, (2, 3, 5), (7, 5), (7,), (7, 5), (7,), (5, 7), (5,)), {"activation": name}),
        gated_feed_forward, torch_gated_feed_forward,
    )  # fmt: skip


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
    *map(_plain, ("relu", "gelu", "gelu_tanh", "silu")),
    Case("feed_forward", "no biases",
         lambda r: (_without_biases(r, (3, 5), (7, 5), (5, 7)), {"activation": "gelu"}), feed_forward,
         torch_feed_forward),
    *map(_gated, ("glu", "reglu", "geglu", "geglu_tanh", "swiglu")),
    Case("gated_feed_forward", "no biases",
         lambda r: (_without_biases(r, (3, 5), (7, 5), (7, 5), (5, 7)), {"activation": "swiglu"}), gated_feed_forward,
         torch_gated_feed_forward),
]  # fmt: skip
