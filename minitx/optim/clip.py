"""Clipping: one factor for all gradients, when together they are too long."""
from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from minitx.accumulate import owned
from minitx.ops.checks import number
from minitx.optim import fast
from minitx.optim.optimizer import Optimizer, named
from minitx.tensor import Tensor


def clip_grad_norm(parameters: Any, max_norm: float) -> float:
    """
    ‖g‖ = √(Σ_p Σ_i g_{p,i}²);    g ← g · min(1, max_norm / (‖g‖ + 1e-6));    returns ‖g‖ from before

    One factor for all: the step becomes shorter and keeps its direction, which clipping each array by itself would
    change. `parameters` is what an optimizer takes (a Module, Tensors, pairs; a generator too), or an optimizer; those
    without a gradient are left out and a tied one counts once. `max_norm=math.inf` only measures.

    The norm is summed in float64 after division by the largest entry: no square overflows.

    Raises ValueError for a negative max_norm, and FloatingPointError, which names the parameters, where a gradient (or
    the norm itself) is not finite; then nothing has been changed. A factor from such a norm would make every weight
    NaN, or stop them all, and hide where it began.

    source: Pascanu, Mikolov & Bengio 2013, "On the difficulty of training recurrent neural networks", algorithm 1.
    """
    if not number(max_norm, "max_norm") >= 0:
        raise ValueError(f"max_norm is not negative (that would turn the gradients round), not {max_norm}")
    pairs = list(parameters.named_parameters()) if isinstance(parameters, Optimizer) else named(parameters)
    if (done := _compiled([p for _, p in pairs if p._grad is not None and p._grad.size], max_norm)) is not None:
        return done
    with_gradient = [(name, p, g) for name, p in pairs if (g := p.grad) is not None and g.size]
    largest = [max(float(g.max()), -float(g.min())) for _, _, g in with_gradient]  # NaN if any is NaN
    if bad := [name for (name, _, _), top in zip(with_gradient, largest) if not math.isfinite(top)]:
        raise FloatingPointError(f"the gradient is not finite in {', '.join(bad)}; no gradient was changed")
    top = max(largest, default=0.0)
    if top == 0:
        return 0.0
    squares = [float(np.square(np.divide(g, top, dtype=np.float64)).sum()) for _, _, g in with_gradient]
    length = math.sqrt(sum(squares))
    norm = top * length
    if norm == math.inf:
        huge = ", ".join(name for (name, _, _), t in zip(with_gradient, largest) if t > top / 2)
        raise FloatingPointError(f"the norm is above 1.8e308, by the gradient of {huge}; none was changed")
    factor = float(max_norm) / (norm + 1e-6)
    if factor < 1:
        tiny = factor < 1e-30  # as float32 such a factor loses digits, or is 0
        for _, p, g in with_gradient:
            # a new array: whoever holds the old one keeps what it was
            p.grad = np.asarray(g / top * (float(max_norm) / length) if tiny else g * factor)
    return norm


def _compiled(parameters: list[Tensor], max_norm: float) -> float | None:
    """The same by kernels/optimizer.py; None where there is none, and for a norm that needs care or is an error."""
    kernel = fast.kernels()
    if kernel is None or not parameters:
        return None
    gradients: Any = [p._grad for p in parameters]
    squares = kernel.sum_of_squares(gradients)
    if not 1e-290 < squares < 1e290:
        return None
    norm = math.sqrt(squares)
    factor = float(max_norm) / (norm + 1e-6)
    if factor < 1e-30:
        return None
    if factor < 1:
        # Where nobody else holds the gradient, it need not become a new array. (3: the parameter, the list, the call)
        alone = [sys.getrefcount(p._grad) == 3 for p in parameters]
        scaled = [g if ours and owned(g) else np.empty_like(g) for g, ours in zip(gradients, alone)]
        kernel.scale(gradients, factor, scaled)
        for p, g in zip(parameters, scaled):
            p._grad = g
    return norm
