"""Adam and AdamW: a step per element, scaled by how large its gradients usually are."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.leaf import claim
from minitx.ops.checks import number
from minitx.optim import fast
from minitx.optim.optimizer import NOTHING, Group, Job, Optimizer
from minitx.tensor import Array


class Adam(Optimizer):
    """
    m_t = β₁ m_{t-1} + (1 - β₁) g_t              mean of the gradients, older ones fading
    v_t = β₂ v_{t-1} + (1 - β₂) g_t²             mean of their squares
    m̂_t = m_t / (1 - β₁ᵗ),  v̂_t = v_t / (1 - β₂ᵗ)
    p  ← p - η m̂_t / (√v̂_t + ε)

    where:
        g_t  the gradient, plus λ p with `weight_decay` λ (as an L2 penalty; AdamW is usually what is wanted)
        η    `lr`;  β₁, β₂  `betas`;  ε  `eps`, outside the root
        t    how often this very parameter has been stepped, from 1

    m and v start at 0, so the first averages are too small, by exactly the factor 1 - βᵗ: of the weights β^k (1 - β),
    k < t, that is the sum. The hats divide it out. At t = 1 the step is η g / (|g| + ε): η in size whatever the
    gradient's scale, and that is why warm-up exists. An element whose gradient is only rounding noise is scaled up to a
    full step as well, wherever the noise is larger than ε.

    saved: two arrays the size of the parameter.
    goes wrong: without the hats the first steps are (1 - β₁) / √(1 - β₂) times as long: 3.2 times at the usual betas.
    source: Kingma & Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    remembers = ("step", "m", "v")
    decoupled = False  # is the decay a step of its own, or a part of the gradient?

    def check(self, group: Group) -> None:
        super().check(group)
        betas = group["betas"]
        if not isinstance(betas, tuple | list):
            raise TypeError(f"betas are two numbers, (0.9, 0.999), not {betas!r}")
        betas = group["betas"] = tuple(number(beta, "each of betas") for beta in betas)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas are two numbers, at least 0 and below 1, not {betas}")
        group["eps"] = number(group["eps"], "eps")
        if not all(p.dtype.type(group["eps"]) > 0 for p in group["params"]) or not group["eps"] > 0:
            raise ValueError(
                "eps is positive, also as a number of the parameters' dtype (it keeps a gradient of zero from giving "
                f"0/0), not {group['eps']}"
            )

    def update(self, value: Array, g: Array, state: dict[str, Any], group: Group, decay: float) -> None:
        if decay:
            g = g + decay * value
        _move(value, g, state, group)

    def at_once(self, group: Group, jobs: list[Job]) -> bool:
        """`update` of all in one call of kernels/optimizer.py, if all have been stepped equally often."""
        kernel = fast.kernels()
        if kernel is None or not jobs or type(self).update not in (Adam.update, AdamW.update):
            return False
        names, ps, gs, decays = zip(*jobs)
        states = [self.state.get(name) or NOTHING for name in names]
        steps = [state.get("step", 0) for state in states]
        if steps.count(steps[0]) < len(steps):
            return False
        if steps[0] == 0:
            states = [_start(p._data) for p in ps]
        elif [state["m"].dtype for state in states] != [p._data.dtype for p in ps]:
            return False
        t, lr, (beta1, beta2) = steps[0] + 1, group["lr"], group["betas"]
        done: bool = kernel.adam(
            claim(ps), gs, [state["m"] for state in states], [state["v"] for state in states],
            [1 - lr * decay for decay in decays] if self.decoupled else [1.0] * len(ps),
            [0.0] * len(ps) if self.decoupled else decays,
            lr / (1 - beta1**t), beta1, beta2, math.sqrt(1 - beta2**t), group["eps"],
        )  # fmt: skip
        if done:
            for name, state in zip(names, states):
                state["step"] = t
                self.state[name] = state
        return done

    def together(self, group: Group, jobs: list[Job]) -> list[Job]:
        """`at_once` for those that have been stepped equally often."""
        alike: dict[int, list[Job]] = {}
        for job in jobs:
            alike.setdefault(self.state.get(job[0], {}).get("step", 0), []).append(job)
        return [job for some in alike.values() if not self.at_once(group, some) for job in some]


class AdamW(Adam):
    """
    p ← p - η (m̂_t / (√v̂_t + ε) + λ p)          m̂ and v̂ as in Adam, of the gradient alone

    where:
        λ  `weight_decay`, multiplied by the learning rate; p is the value before the step

    An L2 penalty inside Adam passes through the division by √v̂: weights with large gradients are hardly decayed at all.
    Decoupled, every weight shrinks by the same share η λ a step, whatever its gradients. Biases, gains of norms and
    embeddings are better not decayed: a layer says so with `Parameter(..., decay=False)`.

    differs from: the paper, whose decay is multiplied by the schedule but not by the base rate; PyTorch does as here.
    source: Loshchilov & Hutter 2019, "Decoupled Weight Decay Regularization", algorithm 2.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    decoupled = True

    def update(self, value: Array, g: Array, state: dict[str, Any], group: Group, decay: float) -> None:
        if decay:
            value *= 1 - group["lr"] * decay  # the step that follows does not depend on p, so the order is free
        _move(value, g, state, group)


def _move(value: Array, g: Array, state: dict[str, Any], group: Group) -> None:
    """p ← p - η m̂ / (√v̂ + ε), in place; m and v have the parameter's dtype."""
    beta1, beta2 = group["betas"]
    if not state:
        state.update(_start(value))
    state["step"] += 1
    t, m, v = state["step"], state["m"], state["v"]
    m *= beta1
    m += (1 - beta1) * g
    v *= beta2
    v += (1 - beta2) * (g * g)
    # η m̂ / (√v̂ + ε) with the two corrections taken out of the arrays
    root = np.sqrt(v, out=np.empty_like(v))
    root /= math.sqrt(1 - beta2**t)
    root += group["eps"]
    np.divide(m, root, out=root)
    root *= group["lr"] / (1 - beta1**t)
    value -= root


def _start(value: Array) -> dict[str, Any]:
    return {"step": 0, "m": np.zeros_like(value), "v": np.zeros_like(value)}
