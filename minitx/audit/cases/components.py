"""Cases for what came after 2017: rotary and other relative positions, RMSNorm, gates, tiled and linear attention."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx import masks, ops
from minitx.audit.case import Case
from minitx.audit.cases.basic import gelu_of_smaller
from minitx.audit.cases.transformer import SameKey, attention, normal, one_blind_query, torch_attention
from minitx.audit.cases.transformer import torch_attention_weights as torch_weights
from minitx.op import Array
from minitx.ops.position_bias import alibi_slopes, relative_buckets, relative_positions
from minitx.ops.rotary_scaling import rotary_frequencies
from minitx.tensor import Tensor

Rng = np.random.Generator

# ---------------------------------------------------------------------- rotary


def rotary(
    x: Tensor, positions: Any, *, base: float = 10000.0, rotary_dim: int | None = None, interleaved: bool = False,
    scaling: Any = None,
) -> Tensor:
    """A product with one rotation matrix for each position."""
    p = np.atleast_2d(positions)  # (1 or B, T)
    d = x.shape[3]
    n = rotary_dim or d
    rates, m = rotary_frequencies(n, base, scaling, p.max(-1) + 1)
    theta = p[..., None] * np.atleast_2d(rates)[:, None]  # (1 or B, T, n/2)
    R = np.zeros((*p.shape, d, d))
    for i in range(n // 2):
        a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + n // 2)
        R[..., a, a] = R[..., b, b] = m * np.cos(theta[..., i])
        R[..., b, a] = m * np.sin(theta[..., i])
        R[..., a, b] = -R[..., b, a]
    for i in range(n, d):
        R[..., i, i] = 1
    R = np.broadcast_to(R, (len(x), *R.shape[1:]))
    return ops.einsum("bhtj,btij->bhti", x, R)


def torch_rotary(
    torch: Any, x: Any, positions: Any, *, base: float = 10000.0, rotary_dim: int | None = None,
    interleaved: bool = False,
) -> Any:
    """In the words in which model code has it: x cos + rotate_half(x) sin, or complex numbers for neighbours."""
    n = rotary_dim or x.shape[3]
    turned, rest = x[..., :n], x[..., n:]
    rates = 1.0 / base ** (torch.arange(0, n, 2, dtype=torch.float64) / n)
    theta = torch.as_tensor(positions)[..., None].double() * rates
    theta = theta[None, None] if theta.ndim == 2 else theta[:, None]
    if interleaved:
        pairs = torch.view_as_complex(turned.reshape(*turned.shape[:-1], n // 2, 2).contiguous())
        turn = torch.polar(torch.ones_like(theta), theta).to(pairs.dtype)
        turned = torch.view_as_real(pairs * turn).flatten(-2)
    else:
        cos, sin = (torch.cat([f(theta), f(theta)], -1).to(x.dtype) for f in (torch.cos, torch.sin))
        a, b = turned.chunk(2, -1)
        turned = turned * cos + torch.cat([-b, a], -1) * sin
    return torch.cat([turned, rest], -1)


def heads(rng: Rng, d: int = 6) -> Array:
    return normal(rng, (2, 3, 5, d))[0]


AT = [0, 1, 2, 3, 4]
PER_ROW = np.array([[3, 4, 0, 1, 2], [100_003, 7, 100_003, 0, 1_000_003]])


def _rotary(label: str, d: int = 6, positions: Any = AT, torch: Any = torch_rotary, **options: Any) -> Case:
    return Case("rotary", label, lambda rng: ((heads(rng, d), positions), options), rotary, torch)


# ---------------------------------------------------------------------- rms_norm, biases, gates


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, *, offset: float = 0.0) -> Tensor:
    y = x * ops.rsqrt((x * x).mean(-1, keepdims=True) + eps)
    y = y if weight is None else y * (weight + offset)
    return y


def torch_rms_norm(torch: Any, x: Any, weight: Any = None, eps: float = 1e-6, *, offset: float = 0.0) -> Any:
    return torch.nn.functional.rms_norm(x, x.shape[-1:], None if weight is None else weight + offset, eps)


def alibi_bias(relative: Any, slopes: Tensor) -> Tensor:
    distance = np.abs(relative).reshape(-1, 1, *relative.shape[-2:])
    y: Tensor = -slopes.reshape(len(slopes), 1, 1) * distance
    return y


def torch_alibi_bias(torch: Any, relative: Any, slopes: Any) -> Any:
    distance = torch.as_tensor(relative).abs().reshape(-1, 1, *relative.shape[-2:])
    return -slopes[:, None, None] * distance


def relative_bias(relative: Any, weight: Tensor, *, max_distance: int = 128, bidirectional: bool = True) -> Tensor:
    """One-hot buckets times the table."""
    one_hot = np.eye(len(weight))[relative_buckets(relative, len(weight), max_distance, bidirectional)]
    one_hot = one_hot.reshape(-1, *one_hot.shape[-3:])
    return ops.einsum("btsn,nh->bhts", one_hot, weight)


def torch_relative_bias(
    torch: Any, relative: Any, weight: Any, *, max_distance: int = 128, bidirectional: bool = True
) -> Any:
    """With the bucket by a logarithm, as T5's code has it."""
    relative = torch.as_tensor(relative).reshape(-1, *relative.shape[-2:])
    n, after = len(weight), 0
    if bidirectional:
        n //= 2
        after = (relative > 0).long() * n
        distance = relative.abs()
    else:
        distance = -torch.clamp(relative, max=0)
    a = n // 2
    far = a + (torch.log(distance.clamp(min=1).float() / a) / math.log(max_distance / a) * (n - a)).long()
    bucket = after + torch.where(distance < a, distance, far.clamp(max=n - 1))
    return torch.nn.functional.embedding(bucket, weight).permute(0, 3, 1, 2)


def distances(rng: Rng) -> Array:
    """(B, T, S) near and far, before and after."""
    return rng.permutation(np.arange(-35, 35) * 5).reshape(2, 5, 7)


def glu(gate: Tensor, up: Tensor) -> Tensor:
    return up / (1 + ops.exp(-gate))


def reglu(gate: Tensor, up: Tensor) -> Tensor:
    return ops.maximum(gate, 0.0) * up


def geglu(gate: Tensor, up: Tensor, approximate: str = "none") -> Tensor:
    y: Tensor = gelu_of_smaller(gate, approximate) * up
    return y


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return gate * up / (1 + ops.exp(-gate))


def torch_glu(torch: Any, gate: Any, up: Any) -> Any:
    return torch.nn.functional.glu(torch.cat([up, gate], -1))


def torch_reglu(torch: Any, gate: Any, up: Any) -> Any:
    return torch.relu(gate) * up


def torch_geglu(torch: Any, gate: Any, up: Any, approximate: str = "none") -> Any:
    return torch.nn.functional.gelu(gate, approximate=approximate) * up


def torch_swiglu(torch: Any, gate: Any, up: Any) -> Any:
    return torch.nn.functional.silu(gate) * up


def gate_and_up(rng: Rng) -> tuple[Any, ...]:
    gate = 0.1 * (rng.permutation(30) - 15).reshape(2, 3, 5) + 0.04  # away from ReLU's corner
    return gate, *normal(rng, (2, 3, 5))


# ---------------------------------------------------------------------- tiled and linear attention


def qkv(rng: Rng, H: int = 3, H_kv: int = 3, T: int = 3, S: int = 5) -> tuple[Any, ...]:
    return normal(rng, (2, H, T, 2), (2, H_kv, S, 2), (2, H_kv, S, 3))


def tiled_attention(q: Tensor, k: Tensor, v: Tensor, *, block_q: int = 0, block_k: int = 0, **options: Any) -> Tensor:
    return attention(q, k, v, **options)


def torch_tiled_attention(
    torch: Any, q: Any, k: Any, v: Any, *, block_q: int = 0, block_k: int = 0, softcap: float | None = None,
    **options: Any,
) -> Any:
    if softcap is None:
        return torch_attention(torch, q, k, v, **options)
    w = torch_weights(torch, q, k, softcap=softcap, **options)
    return w @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)


def linear_attention(q: Tensor, k: Tensor, v: Tensor, *, mask: Any = None, chunk: int = 0) -> Tensor:
    """With the T x S matrix that the op does without."""
    (B, H, T, _), S = q.shape, k.shape[2]
    group = np.arange(H) // (H // k.shape[1])
    k, v = k[:, group], v[:, group]

    def phi(x: Tensor) -> Tensor:
        return ops.where(x.data > 0, x + 1, ops.exp(ops.minimum(x, 0.0)))

    w = phi(q) @ phi(k).swapaxes(2, 3)
    w = ops.where(masks.allowed(masks.full() if mask is None else mask, B, H, T, S), w, 0.0)
    total = w.sum(-1, keepdims=True)
    return (w @ v) / ops.where(total.data == 0, 1.0, total)


def torch_linear_attention(torch: Any, q: Any, k: Any, v: Any, *, mask: Any = None, chunk: int = 0) -> Any:
    (B, H, T, _), S = q.shape, k.shape[2]
    k, v = (x.repeat_interleave(H // k.shape[1], 1) for x in (k, v))
    w = (torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1).transpose(2, 3)
    if mask is not None:
        w = w * torch.tensor(masks.allowed(mask, B, H, T, S))
    total = w.sum(-1, keepdim=True)
    return (w @ v) / torch.where(total == 0, 1, total)


# ---------------------------------------------------------------------- the list

P, C, W, D = masks.padding, masks.causal, masks.window, masks.documents


def _tiled(label: str, arguments: Any, torch: Any = torch_tiled_attention, **blocks: int) -> Case:
    def make(rng: Rng) -> Any:
        args, options = arguments(rng)
        return args, options | blocks

    return Case("tiled_attention", label, make, tiled_attention, torch)


def _linear(label: str, arguments: Any) -> Case:
    return Case("linear_attention", label, arguments, linear_attention, torch_linear_attention)


CASES = [
    _rotary(""),
    _rotary("positions per row, far out", positions=PER_ROW),
    _rotary("interleaved, base=500", interleaved=True, base=500.0),
    _rotary("rotary_dim=4 of 7", d=7, rotary_dim=4),
    _rotary("interleaved, rotary_dim=2", rotary_dim=2, interleaved=True),
    _rotary("linear", torch=None, scaling={"type": "linear", "factor": 3.0}),  # the rates have tests of their own
    _rotary(
        "dynamic", positions=PER_ROW, torch=None, scaling={"type": "dynamic", "factor": 2.0, "original_length": 4}
    ),
    _rotary("yarn", torch=None, scaling={"type": "yarn", "factor": 4.0, "original_length": 64}),
    _rotary("llama3", torch=None, scaling={"type": "llama3", "factor": 8.0, "original_length": 64}),
    Case("rms_norm", "", lambda r: (normal(r, (2, 3, 5), (5,)), {}), rms_norm, torch_rms_norm),
    Case("rms_norm", "no gain", lambda r: (normal(r, (3, 5)), {}), rms_norm, torch_rms_norm),
    Case(
        "rms_norm", "offset=1, eps=0.3",
        lambda r: (normal(r, (7, 5), (5,)), {"eps": 0.3, "offset": 1.0}), rms_norm, torch_rms_norm,
    ),
    Case(
        "alibi_bias", "", lambda r: ((relative_positions(3, 5), *normal(r, (7,))), {}), alibi_bias, torch_alibi_bias,
    ),
    Case(
        "alibi_bias", "an offset per row",
        lambda r: ((relative_positions(3, 5, np.array([0, 2])), alibi_slopes(3)), {}), alibi_bias, torch_alibi_bias,
    ),
    Case(
        "relative_bias", "",
        lambda r: ((distances(r), *normal(r, (12, 3))), {}), relative_bias, torch_relative_bias,
    ),
    Case(
        "relative_bias", "one direction",
        lambda r: ((relative_positions(5, 7), *normal(r, (5, 3))), {"max_distance": 5, "bidirectional": False}),
        relative_bias, torch_relative_bias,
    ),
    Case("glu", "", lambda r: (normal(r, (2, 3, 5), (2, 3, 5)), {}), glu, torch_glu),
    Case("reglu", "", lambda r: (gate_and_up(r), {}), reglu, torch_reglu),
    Case("geglu", "", lambda r: (normal(r, (2, 3, 5), (2, 3, 5)), {}), geglu, torch_geglu),
    Case(
        "geglu", "tanh",
        lambda r: (normal(r, (2, 3, 5), (2, 3, 5)), {"approximate": "tanh"}), geglu, torch_geglu,
    ),
    Case("swiglu", "", lambda r: (normal(r, (2, 3, 5), (2, 3, 5)), {}), swiglu, torch_swiglu),
    _tiled("", lambda r: (qkv(r, T=5, S=7), {}), block_q=2, block_k=3),
    _tiled("one tile", lambda r: (qkv(r), {})),
    _tiled("causal, tiles of one", lambda r: (qkv(r), {"mask": C()}), block_q=1, block_k=1),
    _tiled("more queries than keys", lambda r: (qkv(r, T=5, S=3), {"mask": C()}), block_q=2, block_k=2),
    _tiled("groups of heads", lambda r: (qkv(r, 6, 3), {"mask": C() & P([3, 5])}), block_q=2, block_k=2),
    _tiled("one key head", lambda r: (qkv(r, 5, 1), {"mask": P([4, 2], "left")}), block_q=2, block_k=3),
    _tiled(
        "window, an offset per row", lambda r: (qkv(r), {"mask": W(2), "query_offset": np.array([0, 2])}), block_k=2,
    ),
    _tiled("documents across tiles", lambda r: (qkv(r, T=5), {"mask": D([4, 4, 1, 1, 1]) & C()}), block_q=3, block_k=3),
    _tiled("a query that sees nothing", lambda r: (qkv(r), {"mask": one_blind_query(r)}), block_q=2, block_k=1),
    _tiled("bias", lambda r: (qkv(r), {"bias": normal(r, (2, 3, 3, 5))[0]}), block_q=2, block_k=3),
    _tiled("bias for all", lambda r: (qkv(r), {"bias": normal(r, (3, 5))[0]}), block_q=2, block_k=3),
    _tiled(
        "bias per head and key, softcap, scale",
        lambda r: (qkv(r, 6, 3), {"bias": normal(r, (1, 6, 1, 5))[0], "mask": C(), "softcap": 0.9}),
        block_q=2, block_k=2,
    ),
    _tiled("bias for all heads", lambda r: (qkv(r), {"bias": normal(r, (2, 1, 3, 5))[0], "scale": 0.7}), block_q=2),
    _tiled("drops everything", lambda r: (qkv(r), {"dropout": 1.0}), None, block_k=3),
    _tiled("dropout", lambda r: (qkv(r, 6, 3), {"dropout": 0.3, "rng": SameKey()}), None, block_q=2, block_k=3),
    _linear("", lambda r: (qkv(r), {})),
    _linear("groups of heads, padding", lambda r: (qkv(r, 6, 3), {"mask": P([2, 5])})),
    _linear("causal", lambda r: (qkv(r, T=5), {"mask": C(), "chunk": 2})),
    _linear("causal, fewer queries", lambda r: (qkv(r, T=3, S=7), {"mask": C() & P([7, 4], "left"), "chunk": 2})),
    _linear("causal, more queries", lambda r: (qkv(r, 6, 3, T=7, S=3), {"mask": C(), "chunk": 2})),
]  # fmt: skip
