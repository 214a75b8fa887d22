"""Cases for the ops that a Transformer is made of, each with the same thing built from smaller ops."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx import masks, ops
from minitx.audit.case import Case
from minitx.kernels.hash import keep
from minitx.op import Array
from minitx.tensor import Tensor

Rng = np.random.Generator
KEY = 7_777_777


class SameKey:
    """A stand-in for a Generator from which every dropout draws the same key: a check calls the op many times."""

    def integers(self, *_: Any, **__: Any) -> int:
        return KEY


def normal(rng: Rng, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(rng.standard_normal(shape) for shape in shapes)


# ---------------------------------------------------------------------- linear, embedding, dropout


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y = ops.einsum("...i,oi->...o", x, weight)
    return y if bias is None else y + bias


def torch_linear(torch: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return torch.nn.functional.linear(x, weight, bias)


def embedding(ids: Any, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """One-hot rows times the table."""
    return ops.matmul(np.eye(len(weight))[ids], weight)


def torch_embedding(torch: Any, ids: Any, weight: Any, padding_idx: int | None = None) -> Any:
    return torch.nn.functional.embedding(torch.as_tensor(ids), weight, padding_idx)


def embedding_arguments(rng: Rng, without: int | None = None) -> tuple[Any, ...]:
    ids = rng.integers(0, 5, (2, 13))  # 26 ids among 5 rows: some of them more than once
    ids[ids == without] = 0
    return ids, *normal(rng, (5, 3))


def dropout(x: Tensor, p: float, rng: Any, training: bool = True) -> Tensor:
    return x * (keep(KEY, x.shape, p) / (1 - p)) if training and p < 1 else x * float(not training)


# ---------------------------------------------------------------------- softmax, layer_norm


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    e = ops.exp(x)
    return e / e.sum(axis, keepdims=True)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    return x - ops.logsumexp(x, axis, keepdims=True)


def torch_softmax(torch: Any, x: Any, axis: int = -1) -> Any:
    return torch.softmax(x, axis)


def torch_log_softmax(torch: Any, x: Any, axis: int = -1) -> Any:
    return torch.log_softmax(x, axis)


def some_minus_infinity(rng: Rng) -> tuple[Any, ...]:
    x = rng.standard_normal((3, 5))
    x[0, 1] = x[2, 0] = x[2, 4] = -np.inf
    return (x,)


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    c = x - x.mean(-1, keepdims=True)
    y = c * ops.rsqrt((c * c).mean(-1, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def torch_layer_norm(torch: Any, x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


# ---------------------------------------------------------------------- attention


def attention_weights(
    q: Tensor, k: Tensor, *, mask: Any = None, bias: Any = None, scale: float | None = None,
    softcap: float | None = None, query_offset: Any = None,
) -> Tensor:
    (B, H, T, d), (_, H_kv, S, _) = q.shape, k.shape
    k = k[:, np.arange(H) // (H // H_kv)]  # one key head per query head
    z = q @ k.swapaxes(2, 3) * (1 / math.sqrt(d) if scale is None else scale)
    if softcap is not None:
        z = ops.tanh(z / softcap) * softcap
    if bias is not None:
        z = z + bias
    if mask is not None:
        z = ops.where(masks.allowed(mask, B, H, T, S, query_offset), z, -np.inf)
    return ops.softmax(z)


def attention(q: Tensor, k: Tensor, v: Tensor, *, dropout: float = 0.0, rng: Any = None, **options: Any) -> Tensor:
    w = attention_weights(q, k, **options)
    if dropout:
        w = w * (keep(KEY, w.shape, dropout) / (1 - dropout) if dropout < 1 else 0.0)
    return w @ v[:, np.arange(q.shape[1]) // (q.shape[1] // v.shape[1])]


def torch_attention(
    torch: Any, q: Any, k: Any, v: Any, *, mask: Any = None, bias: Any = None, scale: float | None = None,
    query_offset: Any = None,
) -> Any:
    added = bias
    if mask is not None:
        (B, H, T, _), S = q.shape, k.shape[2]
        allowed = torch.tensor(masks.allowed(mask, B, H, T, S, query_offset))
        added = torch.zeros_like(allowed, dtype=q.dtype) if bias is None else bias
        added = torch.where(allowed, added, -torch.inf)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    return sdpa(q, k, v, attn_mask=added, scale=scale, enable_gqa=True)


def torch_attention_weights(
    torch: Any, q: Any, k: Any, *, mask: Any = None, bias: Any = 0.0, softcap: float | None = None
) -> Any:
    (B, H, T, d), S = q.shape, k.shape[2]
    z = q @ k.repeat_interleave(H // k.shape[1], 1).transpose(2, 3) / math.sqrt(d)
    z = bias + (z if softcap is None else softcap * torch.tanh(z / softcap))
    if mask is not None:
        z = torch.where(torch.tensor(masks.allowed(mask, B, H, T, S)), z, -torch.inf)
    return torch.softmax(z, -1)


def torch_softcapped(torch: Any, q: Any, k: Any, v: Any, *, softcap: float) -> Any:
    """PyTorch's fused attention has no cap."""
    return torch_attention_weights(torch, q, k, softcap=softcap) @ v


def qkv(rng: Rng, H: int = 3, H_kv: int = 3, T: int = 3, S: int = 5) -> tuple[Any, ...]:
    return normal(rng, (2, H, T, 7), (2, H_kv, S, 7), (2, H_kv, S, 11))


def one_blind_query(rng: Rng) -> Array:
    """A boolean mask (B, T, S) in which query 1 of row 0 sees nothing."""
    mask = rng.random((2, 3, 5)) < 0.5
    mask[..., 2] = True
    mask[0, 1] = False
    return mask


# ---------------------------------------------------------------------- losses


def cross_entropy(
    logits: Tensor, targets: Any, *, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    targets = np.asarray(targets)
    V = logits.shape[-1]
    counted = targets != ignore_index
    wanted = np.eye(V)[np.where(counted, targets, 0)] * (1 - label_smoothing) + label_smoothing / V
    losses = -(ops.log_softmax(logits) * (wanted * counted[..., None])).sum(-1)
    loss: Tensor = losses if reduction == "none" else losses.sum()
    return loss / max(counted.sum(), 1) if reduction == "mean" else loss


def torch_cross_entropy(torch: Any, logits: Any, targets: Any, **options: Any) -> Any:
    targets = torch.as_tensor(targets)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten(), **options)
    return loss.reshape(targets.shape) if options.get("reduction") == "none" else loss


def logits_and_targets(rng: Rng, ignore: int | None = None) -> tuple[Any, ...]:
    targets = rng.integers(0, 5, (2, 7))
    if ignore is not None:
        targets[0, 3:] = targets[1, 0] = ignore
    return *normal(rng, (2, 7, 5)), targets


def mse(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    squares = ops.power(x - y, 2.0)
    return {"none": squares, "sum": squares.sum(), "mean": squares.mean()}[reduction]


def torch_mse(torch: Any, x: Any, y: Any, reduction: str = "mean") -> Any:
    return torch.nn.functional.mse_loss(x, y, reduction=reduction)


# ---------------------------------------------------------------------- the list

P, C, W, D = masks.padding, masks.causal, masks.window, masks.documents


def _attention(label: str, arguments: Any) -> Case:
    return Case("attention", label, arguments, attention, torch_attention)


def _cross_entropy(label: str, arguments: Any) -> Case:
    return Case("cross_entropy", label, arguments, cross_entropy, torch_cross_entropy)


CASES = [
    Case("linear", "", lambda r: (normal(r, (2, 3, 5), (7, 5), (7,)), {}), linear, torch_linear),
    Case("linear", "one row, no bias", lambda r: (normal(r, (5,), (7, 5)), {}), linear, torch_linear),
    Case("embedding", "", lambda r: (embedding_arguments(r), {}), embedding, torch_embedding),
    Case(
        "embedding", "padding_idx=2",  # that row is not asked for: differences would see the gradient it does not get
        lambda r: (embedding_arguments(r, without=2), {"padding_idx": 2}), embedding, torch_embedding,
    ),
    Case("dropout", "p=0.3", lambda r: ((*normal(r, (3, 5, 7)), 0.3, SameKey()), {}), dropout),
    Case("dropout", "p=1", lambda r: ((*normal(r, (3, 5)), 1.0, None), {}), dropout),
    Case("dropout", "evaluation", lambda r: ((*normal(r, (3, 5)), 0.3, None), {"training": False}), dropout),
    Case("softmax", "", lambda r: (normal(r, (3, 5)), {}), softmax, torch_softmax),
    Case("softmax", "axis=1", lambda r: (normal(r, (2, 5, 3)), {"axis": 1}), softmax, torch_softmax),
    Case("softmax", "-inf", lambda r: (some_minus_infinity(r), {}), softmax, torch_softmax),
    Case("log_softmax", "", lambda r: (normal(r, (3, 5)), {}), log_softmax, torch_log_softmax),
    Case("log_softmax", "axis=0", lambda r: (normal(r, (5, 2, 3)), {"axis": 0}), log_softmax, torch_log_softmax),
    Case("layer_norm", "", lambda r: (normal(r, (2, 3, 5), (5,), (5,)), {}), layer_norm, torch_layer_norm),
    Case("layer_norm", "no gain, no bias", lambda r: (normal(r, (2, 3, 5)), {}), layer_norm, torch_layer_norm),
    Case("layer_norm", "eps=0.3", lambda r: (normal(r, (7, 5), (5,)), {"eps": 0.3}), layer_norm, torch_layer_norm),
    Case("attention_weights", "", lambda r: (qkv(r)[:2], {}), attention_weights, torch_attention_weights),
    Case(
        "attention_weights", "causal, groups, bias, softcap",
        lambda r: (qkv(r, 6, 3)[:2], {"mask": C(), "bias": normal(r, (1, 6, 3, 5))[0], "softcap": 1.7}),
        attention_weights, torch_attention_weights,
    ),
    Case(
        "attention_weights", "bias for all, T = B and S = H",  # equal sizes show axes counted from the wrong end
        lambda r: (qkv(r, T=2, S=3)[:2], {"bias": normal(r, (2, 3))[0]}), attention_weights, torch_attention_weights,
    ),
    Case(
        "attention_weights", "bias per head and key",
        lambda r: (qkv(r, 5, 1)[:2], {"bias": normal(r, (1, 5, 1, 5))[0]}), attention_weights, torch_attention_weights,
    ),
    _attention("", lambda r: (qkv(r), {})),
    _attention("causal", lambda r: (qkv(r), {"mask": C()})),
    _attention("causal, more queries than keys", lambda r: (qkv(r, T=5, S=3), {"mask": C()})),
    _attention("groups of heads", lambda r: (qkv(r, 6, 3), {"mask": C() & P([3, 5])})),
    _attention("one key head", lambda r: (qkv(r, 5, 1), {"mask": P([4, 2], "left")})),
    _attention("window, an offset per row", lambda r: (qkv(r), {"mask": W(2), "query_offset": np.array([0, 2])})),
    _attention("documents", lambda r: (qkv(r, T=5), {"mask": D([4, 4, 1, 1, 1]) & C()})),
    _attention("a query that sees nothing", lambda r: (qkv(r), {"mask": one_blind_query(r)})),
    _attention("bias", lambda r: (qkv(r), {"bias": normal(r, (2, 3, 3, 5))[0]})),
    _attention("bias for all", lambda r: (qkv(r), {"bias": normal(r, (3, 5))[0]})),
    _attention("bias per head and key", lambda r: (qkv(r, 6, 3), {"bias": normal(r, (1, 6, 1, 5))[0], "mask": C()})),
    _attention("scale", lambda r: (qkv(r), {"scale": 0.7})),
    Case("attention", "softcap", lambda r: (qkv(r), {"softcap": 0.9}), attention, torch_softcapped),
    Case("attention", "dropout", lambda r: (qkv(r, 6, 3), {"dropout": 0.3, "rng": SameKey()}), attention),
    _cross_entropy("", lambda r: (logits_and_targets(r), {})),
    _cross_entropy("ignored", lambda r: (logits_and_targets(r, -100), {})),
    _cross_entropy("none", lambda r: (logits_and_targets(r, 1), {"ignore_index": 1, "reduction": "none"})),
    _cross_entropy("sum", lambda r: (logits_and_targets(r, -100), {"label_smoothing": 0.2, "reduction": "sum"})),
    _cross_entropy("smoothing", lambda r: (logits_and_targets(r, -100), {"label_smoothing": 0.1})),
    Case("mse", "", lambda r: (normal(r, (3, 5), (3, 5)), {}), mse, torch_mse),
    Case("mse", "sum", lambda r: (normal(r, (3, 5), (3, 5)), {"reduction": "sum"}), mse, torch_mse),
    Case("mse", "none", lambda r: (normal(r, (3, 5), (3, 5)), {"reduction": "none"}), mse, torch_mse),
]
