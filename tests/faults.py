"""Faults that people make, by name, each written out as an implementation that some witness has to reject.

Most change only the backward pass of a definition; those at the end change the forward pass as well, with a backward
that fits it: no gradient check can see these, a composition of smaller ops does.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx import masks, ops
from minitx.op import Op, _takes_need

DIFFERENCES, CORNERS, SMALLER_OPS = "differences", "corners", "smaller ops"


@dataclass(frozen=True)
class Fault:
    name: str
    op: Op
    rule: Callable[..., Any]
    witness: str = DIFFERENCES


class Everything:
    """`need` when every gradient is wanted."""

    def __getattr__(self, name: str) -> bool:
        return True


def backward_of(op: Op, *args: Any, **options: Any) -> tuple[Any, Callable[[Any], Any]]:
    value, backward = op.definition(*args, **options)
    return value, (lambda dy: backward(dy, Everything())) if _takes_need(backward) else backward


def altered(op: Op, change: Callable[..., Any]) -> Callable[..., Any]:
    """The definition with another backward: change(right answer, dy, y, *args, **options)."""

    def rule(*args: Any, **options: Any) -> Any:
        y, backward = backward_of(op, *args, **options)
        return y, lambda dy: change(backward(dy), dy, y, *args, **options)

    return rule


FAULTS: list[Fault] = []


def fault(name: str, op: Op, witness: str = DIFFERENCES) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrong gradient: the decorated function is `change` of `altered`."""

    def add(change: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS.append(Fault(name, op, altered(op, change), witness))
        return change

    return add


# ---------------------------------------------------------------------- softmax


@fault("softmax: only the diagonal of the Jacobian", ops.softmax)
def _(dx: Any, dy: Any, y: Any, x: Any, axis: int = -1) -> Any:
    return dy * y * (1 - y)


@fault("softmax: term 2 without dy, which y.sum() accepts", ops.softmax)
def _(dx: Any, dy: Any, y: Any, x: Any, axis: int = -1) -> Any:
    return y * (dy - dy.mean(axis, keepdims=True))


@fault("log_softmax: term 2 weighted as in softmax", ops.log_softmax)
def _(dx: Any, dy: Any, y: Any, x: Any, axis: int = -1) -> Any:
    return dy - np.exp(y) * (dy * np.exp(y)).sum(axis, keepdims=True)


# ---------------------------------------------------------------------- layer_norm


def statistics(x: Any, weight: Any, eps: float) -> tuple[Any, Any]:
    """x̂ and 1/√(σ² + ε)."""
    c = x - x.mean(-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(-1, keepdims=True) + eps)
    return c * r, r


@fault("layer_norm: mean and variance treated as constants", ops.layer_norm)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return (dy if weight is None else dy * weight) * statistics(x, weight, eps)[1], *grads[1:]


@fault("layer_norm: the variance treated as a constant", ops.layer_norm)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    h = dy if weight is None else dy * weight
    return (h - h.mean(-1, keepdims=True)) * statistics(x, weight, eps)[1], *grads[1:]


@fault("layer_norm: variance by n forward, by n - 1 backward", ops.layer_norm)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    h, (xhat, r), n = dy if weight is None else dy * weight, statistics(x, weight, eps), x.shape[-1]
    return (h - h.mean(-1, keepdims=True) - xhat * (h * xhat).sum(-1, keepdims=True) / (n - 1)) * r, *grads[1:]


@fault("layer_norm: the gain left out of dx, right when it is 1", ops.layer_norm)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return backward_of(ops.layer_norm, x, None, None, eps)[1](dy)[0], *grads[1:]


@fault("layer_norm: ε left out of the backward", ops.layer_norm)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return backward_of(ops.layer_norm, x, weight, bias, 0.0)[1](dy)[0], *grads[1:]


@fault("layer_norm: gradient of the gain averaged over the rows", ops.layer_norm)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return grads[0], grads[1] / math.prod(x.shape[:-1]), grads[2]


# ---------------------------------------------------------------------- elementwise


@fault("gelu: the derivative of the other form", ops.gelu)
def _(dx: Any, dy: Any, y: Any, x: Any, approximate: str = "none") -> Any:
    return backward_of(ops.gelu, x, "none" if approximate == "tanh" else "tanh")[1](dy)


@fault("gelu: Φ(x) without x φ(x)", ops.gelu)
def _(dx: Any, dy: Any, y: Any, x: Any, approximate: str = "none") -> Any:
    return dy * y / x


@fault("relu: the slope 1 at 0", ops.relu, CORNERS)
def _(dx: Any, dy: Any, y: Any, x: Any) -> Any:
    return dy * (x >= 0)


@fault("maximum: a tie gives all to both", ops.maximum, CORNERS)
def _(grads: Any, dz: Any, z: Any, x: Any, y: Any) -> Any:
    return dz * (x >= y), dz * (y >= x)


@fault("dropout: the backward does not make up for what was dropped", ops.dropout)
def _(dx: Any, dy: Any, y: Any, x: Any, p: float, rng: Any, training: bool = True) -> Any:
    return dx * (1 - p) if training else dx


@fault("dropout: backward without the mask", ops.dropout)
def _(dx: Any, dy: Any, y: Any, x: Any, p: float, rng: Any, training: bool = True) -> Any:
    return dy


@fault("var: divided by n, although the forward pass divides by n - 1", ops.var)
def _(dx: Any, dy: Any, y: Any, x: Any, axis: Any = None, keepdims: bool = False, correction: int = 0) -> Any:
    n = x.size // y.size
    return dx * (n - correction) / n


# ---------------------------------------------------------------------- picking and multiplying


@fault("embedding: dW[ids] += dy keeps one of several", ops.embedding)
def _(dweight: Any, dy: Any, y: Any, ids: Any, weight: Any, padding_idx: Any = None) -> Any:
    d = np.zeros_like(weight)
    d[ids] += dy
    return d


@fault("embedding: the padding row gets a gradient", ops.embedding, CORNERS)
def _(dweight: Any, dy: Any, y: Any, ids: Any, weight: Any, padding_idx: Any = None) -> Any:
    return backward_of(ops.embedding, ids, weight)[1](dy)


@fault("getitem: repeats are assigned, not added", ops.getitem)
def _(dx: Any, dy: Any, y: Any, x: Any, index: Any) -> Any:
    d = np.zeros_like(x)
    d[index] = dy
    return d


@fault("linear: db averaged over the rows", ops.linear)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return *grads[:2], grads[2] / max(math.prod(x.shape[:-1]), 1)


@fault("linear: dW of the first row only", ops.linear)
def _(grads: Any, dy: Any, y: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return grads[0], np.outer(dy.reshape(-1, dy.shape[-1])[0], x.reshape(-1, x.shape[-1])[0]), grads[2]


# ---------------------------------------------------------------------- attention


@fault("attention: of a group of query heads only the first reaches its key head", ops.attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, **options: Any) -> Any:
    group = q.shape[1] // k.shape[1]
    first = np.arange(q.shape[1]) % group == 0
    dk, dv = backward_of(ops.attention, q, k, v, **options)[1](do * first[:, None, None])[1:3]
    return grads[0], dk, dv, grads[3]


@fault("attention: the scale left out of the backward", ops.attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, *, scale: float | None = None, **options: Any) -> Any:
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    return grads[0] / scale, grads[1] / scale, *grads[2:]


@fault("attention: the mask forgotten in the backward", ops.attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, *, mask: Any = None, **options: Any) -> Any:
    return backward_of(ops.attention, q, k, v, **options)[1](do)


@fault("attention: the cap's derivative forgotten", ops.attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, *, softcap: float | None = None, **options: Any) -> Any:
    return grads if softcap is None else backward_of(ops.attention, q, k, v, softcap=1e9, **options)[1](do)


@fault("attention: dropout's factors forgotten in the backward", ops.attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, *, dropout: float = 0.0, **options: Any) -> Any:
    return backward_of(ops.attention, q, k, v, **options)[1](do)


@fault("attention: dbias of one batch row only", ops.attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, *, bias: Any = None, **options: Any) -> Any:
    if bias is None or (bias.ndim == 4 and len(bias) > 1):
        return grads
    one = np.arange(len(do)) == 0
    return *grads[:3], backward_of(ops.attention, q, k, v, bias=bias, **options)[1](do * one[:, None, None, None])[3]


# ---------------------------------------------------------------------- losses


@fault("cross_entropy: divided by all positions, ignored ones too", ops.cross_entropy)
def _(dx: Any, dy: Any, y: Any, logits: Any, targets: Any, *, ignore_index: int = -100, **options: Any) -> Any:
    return dx * np.mean(targets != ignore_index)


@fault("cross_entropy: ignored rows get a gradient", ops.cross_entropy)
def _(dx: Any, dy: Any, y: Any, logits: Any, targets: Any, *, ignore_index: int = -100, **options: Any) -> Any:
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return np.where((targets == ignore_index)[..., None], p * np.mean(dy) / targets.size, dx)


@fault("cross_entropy: smoothing forgotten in the backward", ops.cross_entropy)
def _(dx: Any, dy: Any, y: Any, logits: Any, targets: Any, *, label_smoothing: float = 0.0, **options: Any) -> Any:
    return backward_of(ops.cross_entropy, logits, targets, **options)[1](dy)


@fault("mse: without the 2", ops.mse)
def _(grads: Any, dy: Any, loss: Any, x: Any, y: Any, reduction: str = "mean") -> Any:
    return grads[0] / 2, grads[1] / 2


# ---------------------------------------------------------------------- wrong forward passes


def whole(name: str, op: Op, rule: Callable[..., Any]) -> None:
    FAULTS.append(Fault(name, op, rule, SMALLER_OPS))


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


def upper_left(q: Any, k: Any, v: Any, *, query_offset: Any = None, **options: Any) -> Any:
    return backward_of(ops.attention, q, k, v, query_offset=0 if query_offset is None else query_offset, **options)


def opposite(q: Any, k: Any, v: Any, *, mask: Any = None, **options: Any) -> Any:
    (B, H, T, _), S = q.shape, k.shape[2]
    allowed = masks.allowed(mask, B, H, T, S, options.get("query_offset"))
    return backward_of(ops.attention, q, k, v, mask=None if allowed is None else ~allowed, **options)


def no_mask(q: Any, k: Any, v: Any, *, mask: Any = None, **options: Any) -> Any:
    return backward_of(ops.attention, q, k, v, **options)


def no_scale(q: Any, k: Any, v: Any, *, scale: Any = None, **options: Any) -> Any:
    return backward_of(ops.attention, q, k, v, scale=1.0, **options)


def unbiased(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    narrower = math.sqrt((x.shape[-1] - 1) / x.shape[-1])  # σ² (n - 1) / n, so that with 1 / √ it comes out
    y, backward = backward_of(ops.layer_norm, x, weight, bias, eps)
    centred = y if bias is None else y - bias

    def scaled(dy: Any) -> Any:
        dx, dweight, dbias = backward(dy)
        return dx * narrower, dweight * narrower, dbias

    return centred * narrower + (0 if bias is None else bias), scaled


def other_gelu(x: Any, approximate: str = "none") -> Any:
    return backward_of(ops.gelu, x, "none" if approximate == "tanh" else "tanh")


whole("attention: query head i on key head i % H_kv", ops.attention, other_key_head)
whole("attention: causal aligned at the first key", ops.attention, upper_left)
whole("attention: True means hidden", ops.attention, opposite)
whole("attention: the mask forgotten", ops.attention, no_mask)
whole("attention: the scale forgotten", ops.attention, no_scale)
whole("layer_norm: the unbiased variance", ops.layer_norm, unbiased)
whole("gelu: the other form", ops.gelu, other_gelu)
