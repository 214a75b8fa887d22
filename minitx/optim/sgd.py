"""Stochastic gradient descent, with momentum."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.ops.checks import number
from minitx.optim.optimizer import Group, Optimizer
from minitx.tensor import Array


class SGD(Optimizer):
    """
    g_t = ∂L/∂p + λ p
    b_t = μ b_{t-1} + g_t      (b_1 = g_1)
    p  ← p - η b_t

    where:
        η  `lr`            the learning rate
        μ  `momentum`      how much of the last step is repeated; with 0 there is no b, and the step is η g_t
        λ  `weight_decay`  pulls p towards 0 as the gradient of λ/2 |p|² would, momentum included

    A constant gradient is followed 1 / (1 - μ) times as fast: with μ = 0.9, ten times. Lower η when raising μ.

    differs from: the classical form b_t = μ b_{t-1} + η g_t, p ← p - b_t, which is the same while η is constant.
        Here, as in PyTorch, a changed η acts on the whole step at once.

    source: Polyak 1964, "Some methods of speeding up the convergence of iteration methods"; Sutskever et al. 2013.
    """

    def __init__(self, params: Any, lr: float, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay)

    remembers = ("b",)

    def check(self, group: Group) -> None:
        super().check(group)
        group["momentum"] = number(group["momentum"], "momentum")
        if not 0 <= group["momentum"] < 1:
            raise ValueError(f"momentum is at least 0 and below 1 (at 1 it never forgets), not {group['momentum']}")

    def update(self, value: Array, g: Array, state: dict[str, Any], group: Group, decay: float) -> None:
        momentum = group["momentum"]
        if decay:
            g = g + decay * value
        if momentum:
            if "b" in state:
                state["b"] *= momentum
                state["b"] += g
            else:
                state["b"] = np.array(g, value.dtype)
            g = state["b"]
        value -= group["lr"] * g
