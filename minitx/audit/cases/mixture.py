"""Cases for the mixture of experts, each with the same thing built from smaller ops that know no sorting."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx import ops
from minitx.audit.case import Case
from minitx.op import Array
from minitx.ops.mixture import Plan, plan
from minitx.tensor import Tensor

Rng = np.random.Generator
N, E, D, F = 7, 5, 3, 11  # tokens, experts, widths
COUNTS = [4, 0, 7, 2, 0]  # of rows: an expert that nobody chose in the middle, and one at the end


def choice(rng: Rng, k: int) -> Array:
    """k different experts for each token, in any order."""
    return np.argsort(rng.random((N, E)), axis=1)[:, :k]


def one_hot(chosen: Array, scores: Any) -> Array:
    return np.eye(scores.shape[1])[chosen]  # (N, k, E)


def expert_weights(scores: Tensor, chosen: Array) -> Tensor:
    p = ops.einsum("ne,nke->nk", ops.softmax(scores), one_hot(chosen, scores))
    return p if chosen.shape[1] == 1 else p / p.sum(1, keepdims=True)


def torch_expert_weights(torch: Any, scores: Any, chosen: Array) -> Any:
    p = torch.softmax(scores, -1).gather(1, torch.tensor(chosen))
    return p if chosen.shape[1] == 1 else p / p.sum(1, keepdim=True)


def balance_loss(scores: Tensor, chosen: Array) -> Tensor:
    f = one_hot(chosen, scores).mean((0, 1))  # (E,)
    L: Tensor = (ops.softmax(scores).mean(0) * f).sum() * len(f)
    return L


def torch_balance_loss(torch: Any, scores: Any, chosen: Array) -> Any:
    f = torch.nn.functional.one_hot(torch.tensor(chosen), scores.shape[1]).to(scores.dtype).mean((0, 1))
    return len(f) * (torch.softmax(scores, -1).mean(0) * f).sum()


def router_z_loss(scores: Tensor) -> Tensor:
    return ops.power(ops.logsumexp(scores, -1), 2.0).mean()


def torch_router_z_loss(torch: Any, scores: Any) -> Any:
    return (torch.logsumexp(scores, -1) ** 2).mean()


def dispatch(x: Tensor, plan: Plan) -> Tensor:
    return x[plan.token]


def expert_linear(x: Tensor, weight: Tensor, counts: list[int], bias: Tensor | None = None) -> Tensor:
    """Every row's own matrix, written out."""
    expert = np.repeat(np.arange(E), counts)
    y = ops.einsum("mi,moi->mo", x, weight[expert])
    return y if bias is None else y + bias[expert]


def torch_expert_linear(torch: Any, x: Any, weight: Any, counts: list[int], bias: Any = None) -> Any:
    expert = torch.tensor(np.repeat(np.arange(E), counts))
    y = torch.einsum("mi,moi->mo", x, weight[expert])
    return y if bias is None else y + bias[expert]


def combine(y: Tensor, weights: Tensor, plan: Plan) -> Tensor:
    return ops.einsum("nk,nkd->nd", weights, y[plan.place])


def put_rows(x: Tensor, mask: Array) -> Tensor:
    """A product with a matrix of zeros and ones."""
    place = np.eye(mask.size)[np.flatnonzero(mask)].T.reshape(*mask.shape, len(x))
    return ops.einsum("...n,nd->...d", place, x)


def normal(rng: Rng, *shapes: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(rng.standard_normal(shape) for shape in shapes)


def scores_and_choice(rng: Rng, k: int) -> tuple[Any, ...]:
    return *normal(rng, (N, E)), choice(rng, k)


MASK = np.array([[True, False, True], [False, False, True]])


def _weights(k: int) -> Case:
    return Case(
        "expert_weights", f"k={k}", lambda r: (scores_and_choice(r, k), {}), expert_weights, torch_expert_weights
    )


def _balance(k: int) -> Case:
    return Case("balance_loss", f"k={k}", lambda r: (scores_and_choice(r, k), {}), balance_loss, torch_balance_loss)


def _dispatch(k: int) -> Case:
    return Case("dispatch", f"k={k}", lambda r: ((*normal(r, (N, D)), plan(choice(r, k), E)), {}), dispatch)


def _combine(k: int) -> Case:
    return Case(
        "combine", f"k={k}", lambda r: ((*normal(r, (N * k, D), (N, k)), plan(choice(r, k), E)), {}), combine
    )


CASES = [
    _weights(1),
    _weights(2),
    _weights(5),
    _balance(1),
    _balance(3),
    Case("router_z_loss", "", lambda r: (normal(r, (N, E)), {}), router_z_loss, torch_router_z_loss),
    _dispatch(1),
    _dispatch(3),
    Case(
        "expert_linear", "", lambda r: ((*normal(r, (13, D), (E, F, D)), COUNTS, *normal(r, (E, F))), {}),
        expert_linear, torch_expert_linear,
    ),
    Case(
        "expert_linear", "no bias", lambda r: ((*normal(r, (13, D), (E, F, D)), COUNTS), {}),
        expert_linear, torch_expert_linear,
    ),
    _combine(1),
    _combine(3),
    Case("put_rows", "", lambda r: ((*normal(r, (3, D)), MASK), {}), put_rows),
]  # fmt: skip
