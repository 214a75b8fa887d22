"""Faults that people make, by name: wrong backward passes, each of which some witness has to reject.

(Wrong forward passes: forward_faults.py.)
"""
from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx import ops
from minitx.op import Op
from minitx.ops.position_bias import relative_buckets
from minitx.pullback import takes_need

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
    return value, (lambda dy: backward(dy, Everything())) if takes_need(backward) else backward


def altered(op: Op, change: Callable[..., Any]) -> Callable[..., Any]:
    """The definition with another backward: change(right answer, dy, y, *args, **options)."""

    def rule(*args: Any, **options: Any) -> Any:
        y, backward = backward_of(op, *args, **options)
        return y, lambda dy: change(backward(dy), dy, y, *args, **options)

    return rule


def otherwise(op: Op, **changes: Any) -> Callable[..., Any]:
    """The definition at other arguments: each change is a value, or a function of the argument."""

    def rule(*args: Any, **options: Any) -> Any:
        given = op.signature.bind(*args, **options)
        given.apply_defaults()
        for name, change in changes.items():
            given.arguments[name] = change(given.arguments[name]) if inspect.isfunction(change) else change
        return backward_of(op, *given.args, **given.kwargs)

    return rule


FAULTS: list[Fault] = []


def fault(name: str, op: Op, witness: str = DIFFERENCES) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrong gradient: the decorated function is `change` of `altered`."""

    def add(change: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS.append(Fault(name, op, altered(op, change), witness))
        return change

    return add


def backward_at(name: str, op: Op, witness: str = DIFFERENCES, **changes: Any) -> None:
    """The right value, with the backward pass that belongs to other arguments."""
    elsewhere = otherwise(op, **changes)

    def change(grads: Any, dy: Any, y: Any, *args: Any, **options: Any) -> Any:
        return elsewhere(*args, **options)[1](dy)

    fault(name, op, witness)(change)


def other_form(approximate: str) -> str:
    """Of GELU."""
    return "none" if approximate == "tanh" else "tanh"


# ---------------------------------------------------------------------- the backward pass of other arguments

backward_at("gelu: the derivative of the other form", ops.gelu, approximate=other_form)
backward_at("embedding: the padding row gets a gradient", ops.embedding, CORNERS, padding_idx=None)
backward_at("attention: the mask forgotten in the backward", ops.attention, mask=None)
backward_at("attention: the cap's derivative forgotten", ops.attention, softcap=lambda cap: cap and 1e9)
backward_at("attention: dropout's factors forgotten in the backward", ops.attention, dropout=0.0)
backward_at("cross_entropy: smoothing forgotten in the backward", ops.cross_entropy, label_smoothing=0.0)
backward_at("rms_norm: 1 + w forward, w backward", ops.rms_norm, offset=0.0)
backward_at("tiled_attention: the scores made again without the cap", ops.tiled_attention, softcap=None)
backward_at(
    "tiled_attention: other weights dropped in the backward", ops.tiled_attention,
    rng=lambda rng: np.random.default_rng(0),
)  # fmt: skip


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


@fault("mse: without the 2", ops.mse)
def _(grads: Any, dy: Any, loss: Any, x: Any, y: Any, reduction: str = "mean") -> Any:
    return grads[0] / 2, grads[1] / 2


# ---------------------------------------------------------------------- positions, gates, linear attention


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


@fault("relative_bias: dW[bucket] += dy keeps one of several", ops.relative_bias)
def _(dweight: Any, dy: Any, y: Any, relative: Any, weight: Any, **options: Any) -> Any:
    d = np.zeros_like(weight)
    bucket = relative_buckets(relative, len(weight), **options).reshape(-1, *relative.shape[-2:])
    d[bucket] += np.moveaxis(dy, 1, -1)
    return d


@fault("swiglu: the slope of σ alone", ops.swiglu)
def _(grads: Any, dy: Any, y: Any, gate: Any, up: Any) -> Any:
    return dy * up / (1 + np.exp(-gate)), grads[1]


@fault("linear_attention: the slope of φ left out", ops.linear_attention)
def _(grads: Any, do: Any, o: Any, q: Any, k: Any, v: Any, **options: Any) -> Any:
    return *(g / np.minimum(np.exp(x), 1) for g, x in zip(grads, (q, k))), grads[2]
