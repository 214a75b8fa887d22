"""A mixture of experts in the place of the feed-forward network: many networks, of which each token uses a few."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitx.nn.dropout import Dropout
from minitx.nn.feedforward import FeedForward
from minitx.nn.gated import GatedFeedForward
from minitx.nn.init import Init, start, xavier_uniform
from minitx.nn.linear import Linear
from minitx.nn.module import Module, Parameter
from minitx.nn.pooling import real_tokens
from minitx.ops import (
    balance_loss,
    combine,
    dispatch,
    expert_linear,
    expert_weights,
    put_rows,
    reshape,
    router_z_loss,
)
from minitx.ops.feedforward import ACTIVATIONS, GATES
from minitx.ops.mixture import plan
from minitx.ops.routing import choose
from minitx.tensor import Array, Tensor

# ---------------------------------------------------------------------- what is said beside the result


@dataclass(frozen=True)
class Usage:
    """How much the experts of one layer had to do. Adding two of them sums over batches."""

    counts: Array  # (E,) assignments

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.counts + other.counts)

    @property
    def load(self) -> Array:
        """The share of each expert, (E,): 1/E each where the load is even."""
        return np.asarray(self.counts / max(self.counts.sum(), 1))

    @property
    def entropy(self) -> float:
        """-Σ load log load: ln E where the load is even, 0 where one expert does everything."""
        busy = self.load[self.load > 0]
        return float((busy * np.log(1 / busy)).sum())

    @property
    def unused(self) -> Array:
        """The numbers of the experts that nobody chose."""
        return np.flatnonzero(self.counts == 0)

    def __str__(self) -> str:
        loads = " ".join(f"{100 * share:.0f}%" for share in self.load)
        idle = f", {len(self.unused)} unused" if len(self.unused) else ""
        return f"load {loads}, entropy {self.entropy:.3f} of {math.log(len(self.counts)):.3f}{idle}"


@dataclass
class Aux:
    """Collects what layers say beside their result, in one forward pass: nothing is stored on modules.

    `aux.at("decoder.0")` is the same collection for the part of that name: what it adds is called "decoder.0.balance".
    """

    losses: dict[str, Tensor] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    name: str = ""

    def at(self, name: str) -> Aux:
        return Aux(self.losses, self.usage, self.of(name))

    def of(self, name: str) -> str:
        return f"{self.name}.{name}" if self.name else name


# ---------------------------------------------------------------------- the layers


class ExpertLinear(Module):
    """E linear layers as one: weight (E, d_out, d_in), bias (E, d_out) starting at 0 and not decayed, or None."""

    def __init__(
        self, experts: int, d_in: int, d_out: int, bias: bool, *, rng: np.random.Generator, init: Init
    ) -> None:
        each = [start("ExpertLinear", init, rng, d_out=d_out, d_in=d_in) for _ in range(experts)]
        self.weight = Parameter(np.stack(each))  # (E, d_out, d_in)
        self.bias = Parameter(np.zeros((experts, d_out), np.float32), decay=False) if bias else None

    def forward(self, x: Tensor, counts: Array) -> Tensor:
        return expert_linear(x, self.weight, counts, self.bias)

    def extra(self) -> str:
        experts, d_out, d_in = self.weight.shape
        return f"{experts} x ({d_in} -> {d_out}{'' if self.bias is not None else ', no bias'})"


class MixtureOfExperts(Module):
    """
    y = Σ_(j of k) w_j FFN_(c_j)(x) + FFN_shared(x):  s = W_r x;  c = the k largest of s;  w = `expert_weights`(s, c)

    Every token has its own choice c of k among E networks FFN_e; all are like FeedForward (`activation` one of relu,
    gelu, gelu_tanh, silu) or like GatedFeedForward (glu, reglu, geglu, geglu_tanh, swiglu), d_ff wide each. Parameters
    grow with E, the work per token with k only. No expert has a capacity: no token is dropped, and what else is in the
    batch makes no difference to a token. `shared_experts` further networks serve every token, with weight 1; together
    they are one network of their width.

    Called as `mixture(x, *, mask=None, aux=None)`, x (..., d_model). `mask` says which tokens are real (see
    `real_tokens`); padding takes no part: it is not routed, counts in no loss, and its result is 0. `aux`, an `Aux`,
    receives the losses "balance" and "router_z" (unweighted) and the usage of this layer.

    Raises ValueError unless 1 <= k <= experts.
    source: Shazeer et al. 2017, "Outrageously large neural networks"; without capacity, gated: Jiang et al. 2024,
    "Mixtral of experts"; shared experts: Dai et al. 2024, "DeepSeekMoE", section 3.2.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        experts: int,
        k: int = 2,
        shared_experts: int = 0,
        activation: str = "swiglu",
        bias: bool = False,
        dropout: float = 0.0,
        *,
        rng: np.random.Generator,
        init: Init = xavier_uniform,
        residual_init: Init | None = None,
    ) -> None:
        if not 1 <= k <= experts:
            raise ValueError(f"a token goes to between 1 and all experts: k = {k}, and there are {experts} experts")
        if shared_experts < 0:
            raise ValueError(f"shared_experts is at least 0, not {shared_experts}")
        if activation not in ACTIVATIONS and activation not in GATES:
            raise ValueError(f"activation is one of {', '.join([*ACTIVATIONS, *GATES])}, not {activation!r}")
        self.experts, self.k, self.activation = experts, k, activation
        self.router = Linear(d_model, experts, bias=False, rng=rng, init=init)
        self.gate = ExpertLinear(experts, d_model, d_ff, bias, rng=rng, init=init) if activation in GATES else None
        self.up = ExpertLinear(experts, d_model, d_ff, bias, rng=rng, init=init)
        self.down = ExpertLinear(experts, d_ff, d_model, bias, rng=rng, init=residual_init or init)
        self.dropout = Dropout(dropout, rng=rng)
        self.shared: Module | None = None
        if shared_experts:
            network = GatedFeedForward if activation in GATES else FeedForward
            self.shared = network(
                d_model, shared_experts * d_ff, activation, bias, dropout,
                rng=rng, init=init, residual_init=residual_init,
            )  # fmt: skip

    def forward(self, x: Tensor, *, mask: Any = None, aux: Aux | None = None) -> Tensor:
        real = real_tokens(mask, x.shape[:-1])
        rows = reshape(x, (math.prod(x.shape[:-1]), x.shape[-1])) if real is None else x[real]  # (N, d_model)
        scores = self.router(rows)  # (N, E)
        chosen = choose(scores.numpy(), self.k)  # (N, k)
        where = plan(chosen, self.experts)

        h = self.networks(dispatch(rows, where), where.counts)  # (N k, d_model)
        y: Tensor = combine(h, expert_weights(scores, chosen), where)  # (N, d_model)
        if self.shared is not None:
            y = y + self.shared(rows)
        if aux is not None:
            aux.losses[aux.of("balance")] = balance_loss(scores, chosen)
            aux.losses[aux.of("router_z")] = router_z_loss(scores)
            aux.usage[aux.name] = Usage(where.counts)
        return reshape(y, x.shape) if real is None else put_rows(y, real)  # (..., d_model)

    def networks(self, x: Tensor, counts: Array) -> Tensor:
        """FFN_e of every row, rows sorted by expert: (M, d_model) → (M, d_model)."""
        if self.gate is None:
            h = ACTIVATIONS[self.activation](self.up(x, counts))  # (M, d_ff)
        else:
            h = GATES[self.activation](self.gate(x, counts), self.up(x, counts))
        y: Tensor = self.down(self.dropout(h), counts)  # (M, d_model)
        return y

    def extra(self) -> str:
        return f"{self.k} of {self.experts} experts, {self.activation}"
