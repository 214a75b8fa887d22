"""Figures per layer, read off one ordinary training step by an observer; all other steps run without it.

The observer is told of every op (see settings.py). It knows which layer it is in by the parameters that go by: an op
that reads `decoder.1.norm.weight` begins layer `decoder.1`, and whatever follows belongs to it until a parameter of
another layer (or of none: embedding, final norm, head) is read. It only looks: the step computes the same bits.

    residual_rms     root mean square of the last value the layer makes: what it hands on
    attention_logit  the largest score before the softmax, over the pairs that may attend
    activation       the largest absolute value that any op of the layer makes (a feed-forward network is one op)
    grad_norm        norm of the gradient of the layer's parameters, before clipping
"""
from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from minitx import masks
from minitx.tensor import Array

OTHER = "other"  # embedding, final norm, head: they have a gradient norm, and no stream


def layer_name(parameter: str) -> str:
    """`decoder.1.attention.query.weight` → `decoder.1`; what stands in no list → `other`."""
    found = re.match(r"([^.\d]+(?:\.[^.\d]+)*\.\d+)\.", parameter)
    return found.group(1) if found else OTHER


def largest_logit(
    q: Array,
    k: Array,
    v: Array,
    *,
    mask: Any = None,
    bias: Array | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    query_offset: Any = None,
    **rest: Any,
) -> float:
    """The largest score that the attention op, called like this, hands to its softmax; -inf if nothing may attend."""
    B, H, T, d = q.shape
    H_kv, S = k.shape[1:3]
    z = (q.reshape(B, H_kv, -1, d) @ k.swapaxes(2, 3)).reshape(B, H, T, S)
    z = z * (1 / math.sqrt(d) if scale is None else scale)
    if softcap is not None:
        z = np.tanh(z / softcap) * softcap
    if bias is not None:
        z = z + bias
    allowed = masks.allowed(mask, B, H, T, S, query_offset)
    return float(z.max(initial=-math.inf, where=True if allowed is None else allowed))


class Monitor:
    """The observer of one step: `with watching(monitor):` around its passes, and afterwards `figures()`."""

    whole = True  # ops that do several steps stay so: a watched step has the bits of any other

    def __init__(self, model: Any) -> None:
        self.model = model
        self.layer_of = {id(p): layer_name(name) for name, p in model.named_parameters()}
        self.here = OTHER
        self.last: dict[str, Any] = {}  # the latest value of each layer in this forward pass
        self.squares: dict[str, float] = {}
        self.counts: dict[str, int] = {}
        self.logit: dict[str, float] = {}
        self.activation: dict[str, float] = {}

    def forward(self, op: Any, arrays: Any, options: Any, out: Any, node: Any) -> None:
        for tensor in node.inputs if node is not None else ():
            self.here = self.layer_of.get(id(tensor), self.here)
        if self.here != OTHER:
            for value in out if isinstance(out, tuple) else (out,):
                if value.size:
                    largest = float(np.abs(value.data).max())
                    self.activation[self.here] = max(self.activation.get(self.here, 0.0), largest)
            if op.name == "attention":
                logit = largest_logit(*arrays, **options)
                self.logit[self.here] = max(self.logit.get(self.here, -math.inf), logit)
            if not isinstance(out, tuple):
                self.last[self.here] = out

    def backward(self, node: Any, dy: Any, grads: Any) -> None:
        """Gradients are read off the parameters at the end."""

    def end_of_pass(self) -> None:
        """After each forward pass (a step has several when it accumulates)."""
        for layer, value in self.last.items():
            x = np.asarray(value.data, np.float64)
            self.squares[layer] = self.squares.get(layer, 0.0) + float((x * x).sum())
            self.counts[layer] = self.counts.get(layer, 0) + x.size
        self.last, self.here = {}, OTHER

    def figures(self) -> dict[str, dict[str, float]]:
        """After backward, before clipping: {layer: {figure: value}}."""
        squares: dict[str, float] = {}
        for name, p in self.model.named_parameters():
            layer = layer_name(name)
            if p.grad is not None:
                squares[layer] = squares.get(layer, 0.0) + float(np.square(p.grad, dtype=np.float64).sum())
        result: dict[str, dict[str, float]] = {}
        for layer, square in squares.items():
            row = {"grad_norm": math.sqrt(square)}
            if self.counts.get(layer):
                row["residual_rms"] = math.sqrt(self.squares[layer] / self.counts[layer])
                row["activation"] = self.activation[layer]
            if layer in self.logit:
                row["attention_logit"] = self.logit[layer]
            result[layer] = row
        return result
