"""Our side of a component: forward and backward."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitx.bench.components import Case
from minitx.op import Array, Forward, op
from minitx.ops import cross_entropy, gelu, layer_norm, rms_norm, softmax, swiglu
from minitx.tensor import Tensor


def build(what: Sequence[Any], threads: int) -> Callable[[], None]:
    case = Case(*what)
    array, dy, targets = case.arrays()
    gain, shift = np.full(case.n, 0.5, np.float32), np.ones(case.n, np.float32)
    x, up, weight, bias = (Tensor(a, requires_grad=True) for a in (array, dy, gain, shift))
    forward: dict[str, Callable[[], Tensor]] = {
        "layer_norm": lambda: layer_norm(x, weight, bias),
        "rms_norm": lambda: rms_norm(x, weight),
        "gelu": lambda: gelu(x),
        "swiglu": lambda: swiglu(x, up),
        "softmax": lambda: softmax(x),
        "cross_entropy": lambda: cross_entropy(x, targets),
    }

    @op
    def sent(y: Array) -> Forward:
        """What comes after: it sends dy back. (`y.backward(dy)` would copy dy, as dy is the caller's.)"""
        return y.dtype.type(0), lambda _: dy

    def call() -> None:
        for t in (x, up, weight, bias):
            t.grad = None
        y = forward[case.name]()
        (sent(y) if y.shape else y).backward()

    return call
