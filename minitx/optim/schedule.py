"""Schedules: the learning rate as a function of the step.

A schedule is a pure function of the step's number, counted from 1, and returns a factor for the base rate. Nothing is
computed from the step before: a run that is resumed at step 45 has at step 46 the same rate, bit for bit, as one that
was never stopped.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from minitx.ops.checks import number
from minitx.optim.optimizer import Optimizer

Factor = Callable[[int], float]


def constant(warmup: int = 0) -> Factor:
    """f(t) = min(1, t / warmup): a linear rise in `warmup` steps, then 1."""
    if not number(warmup, "warmup") >= 0:
        raise ValueError(f"warmup is a number of steps, not {warmup}")
    return lambda t: _rise(t, warmup)


def warmup_linear(total: int, warmup: int = 0, minimum: float = 0.0) -> Factor:
    """
    f(t) = t / warmup                                        t <= warmup
    f(t) = minimum + (1 - minimum) (1 - s)                   s = (t - warmup) / (total - warmup), at most 1

    1 at the end of the warm-up, `minimum` at the last step and after it.
    """
    return _warmup_then(lambda s: 1 - s, total, warmup, minimum)


def warmup_cosine(total: int, warmup: int = 0, minimum: float = 0.0) -> Factor:
    """
    f(t) = t / warmup                                        t <= warmup
    f(t) = minimum + (1 - minimum) (1 + cos(π s)) / 2        s = (t - warmup) / (total - warmup), at most 1

    1 at the end of the warm-up, `minimum` at the last step; held there (the cosine itself would rise again).

    by hand: half of the way down the factor is halfway; without warm-up, of 100 steps:
        >>> round(warmup_cosine(100)(50), 12)
        0.5

    source: Loshchilov & Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", equation 5, no restart.
    """
    return _warmup_then(lambda s: (1 + math.cos(math.pi * s)) / 2, total, warmup, minimum)


def noam(d_model: int, warmup: int, factor: float = 1.0) -> Factor:
    """
    f(t) = factor · d_model^(-1/2) · min(t^(-1/2), t · warmup^(-3/2))

    Rises linearly for `warmup` steps to (d_model · warmup)^(-1/2), then falls as 1/√t. It is the rate itself: use it
    with a base rate of 1 (or `factor` as the base rate).

    source: Vaswani et al. 2017, section 5.3, equation 3 (there warmup is 4,000).
    """
    if not (number(d_model, "d_model") >= 1 and number(warmup, "warmup") >= 1):
        raise ValueError(f"noam wants d_model and warmup of at least 1, not {d_model} and {warmup}")
    if not 0 <= number(factor, "factor") < math.inf:
        raise ValueError(f"noam: factor is finite and not negative, not {factor}")
    return lambda t: factor * d_model**-0.5 * min(_step(t) ** -0.5, t * warmup**-1.5)


class Schedule:
    """
    Gives every group of an optimizer the rate base_lr · f(t), t = 1, 2, ...

        schedule = Schedule(optimizer, warmup_cosine(total=1000, warmup=50))
        for batch in batches:
            ...                # forward, backward
            schedule.step()    # to the rate of the update that comes
            optimizer.step()

    `number` is the step reached (0 before the first). Until the first call the rate is already that of step 1, so
    that an update is never made at the full rate by mistake.
    """

    def __init__(self, optimizer: Optimizer, function: Factor) -> None:
        if not hasattr(optimizer, "groups"):
            raise TypeError(f"Schedule(optimizer, function): first an optimizer, not a {type(optimizer).__name__}")
        if not callable(function):
            raise TypeError(f"Schedule(optimizer, function): a function of the step, constant() say, not {function!r}")
        self.optimizer, self.function = optimizer, function
        self.number = 0
        self._apply()

    def step(self) -> None:
        self.number += 1
        self._apply()

    def _apply(self) -> None:
        step = max(self.number, 1)
        f = number(self.function(step), f"the factor at step {step}")
        if not 0 <= f < math.inf:
            raise ValueError(f"the factor at step {step} is finite and not negative, not {f}")
        for group in self.optimizer.groups:
            group["lr"] = group["base_lr"] * f

    def state_dict(self) -> dict[str, Any]:
        """The number of the step; everything else follows from it (base rates are in the optimizer's state)."""
        return {"number": self.number}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        number = saved["number"]
        if not isinstance(number, int) or number < 0:
            raise ValueError(f"the number of a step is a whole number from 0, not {number!r}")
        self.number = number
        self._apply()


def _step(t: int) -> int:
    if t < 1:
        raise ValueError(f"steps count from 1, so there is no step {t}")
    return t


def _rise(t: int, warmup: int) -> float:
    return min(1.0, _step(t) / max(warmup, 1))


def _warmup_then(fall: Callable[[float], float], total: int, warmup: int, minimum: float) -> Factor:
    """A rise to 1 in `warmup` steps, then `fall`, a function of the share s of what is left, down to `minimum`."""
    if not 0 <= number(warmup, "warmup") < number(total, "total"):
        raise ValueError(f"warm-up is a part of the run: 0 <= warmup < total, not warmup {warmup} and total {total}")
    if not 0 <= number(minimum, "minimum") <= 1:
        raise ValueError(f"minimum is a share of the highest rate, between 0 and 1, not {minimum}")

    def f(t: int) -> float:
        if t <= warmup:
            return _rise(t, warmup)
        s = min(1.0, (_step(t) - warmup) / (total - warmup))
        return minimum + (1 - minimum) * fall(s)

    return f
