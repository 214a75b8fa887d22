"""PyTorch's side of a component: forward and backward, eager."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minitx.bench.components import Case


def build(what: Sequence[Any], threads: int) -> Callable[[], None]:
    import torch
    from torch.nn import functional as F

    case = Case(*what)
    torch.set_num_threads(threads)
    n = case.n
    array, dy, targets = (torch.from_numpy(a) for a in case.arrays())
    x, up, weight, bias = (t.clone().requires_grad_() for t in (array, dy, torch.full((n,), 0.5), torch.ones(n)))
    forward: Any = {
        "layer_norm": lambda: F.layer_norm(x, (n,), weight, bias),
        "rms_norm": lambda: F.rms_norm(x, (n,), weight, 1e-6),
        "gelu": lambda: F.gelu(x),
        "swiglu": lambda: F.silu(x) * up,
        "softmax": lambda: F.softmax(x, -1),
        "cross_entropy": lambda: F.cross_entropy(x, targets),
    }[case.name]

    def call() -> None:
        for t in (x, up, weight, bias):
            t.grad = None
        y = forward()
        y.backward(dy if y.shape else None)

    return call
