"""A mixture of experts: tokens to their experts, all experts' products, and back. No loop over tokens anywhere.

    token n, choices j        dispatched rows, sorted by expert        back at the tokens
    x_0 → experts 1, 0        expert 0: x_0 x_2                        y_0 = w_00 (row of 1) + w_01 (row of 0)
    x_1 → experts 1, 2        expert 1: x_0 x_1                        ...
    x_2 → experts 2, 0        expert 2: x_1 x_2

Sorted, each expert's rows lie together, and its layer is one matrix product over them.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx.op import Array, Forward, op
from minitx.ops.checks import inside, integers


@dataclass(frozen=True)
class Plan:
    """Where every assignment of a token to an expert goes. M = N k rows, sorted by expert, then by token."""

    token: Array  # (M,) the token that row m is a copy of
    place: Array  # (N, k) the row at which choice j of token n stands
    counts: Array  # (E,) how many rows each expert has


def plan(chosen: Any, experts: int) -> Plan:
    """The plan for `chosen` (N, k), numbers of experts; nothing is dropped, however many choose the same one."""
    chosen = integers(chosen, "plan: chosen")
    if chosen.ndim != 2:
        raise ValueError(f"plan: chosen is (tokens, k), not {chosen.shape}")
    inside(chosen, experts, "plan: chosen", "experts")
    flat = chosen.ravel()
    order = np.argsort(flat, kind="stable")  # (M,): assignment number n k + j of each row
    place = np.empty(len(flat), np.int64)
    place[order] = np.arange(len(flat))
    return Plan(order // max(chosen.shape[1], 1), place.reshape(chosen.shape), np.bincount(flat, minlength=experts))


@op("x")
def dispatch(x: Array, plan: Plan) -> Forward:
    """
    for: a copy of each token for each of its experts, the copies sorted by expert.

    equation:
        y_m = x_token(m)

    where:
        x     (N, d)    one row per token
        plan  see `plan`
        y     (N k, d)

    by hand:
        >>> dispatch(np.array([[5.0], [6.0]]), plan([[1, 0], [1, 2]], experts=3)).numpy().ravel()
        array([5., 5., 6., 6.])

    backward:
        dx_n = Σ_j dy_place(n, j)

    why: a copy passes its gradient back unchanged, and a token has k copies. `place` finds them, so this is a gather
        and a sum over k: nothing is scattered, nothing races, and the order of the sum is always the same.

    saved: the plan.

    cost: a copy of N k d numbers each way.

    goes wrong: `dx[token] = dy` keeps the gradient of one expert out of k.
    """
    y = x[plan.token]  # (N k, d)

    def backward(dy: Array) -> Array:
        dx: Array = dy[plan.place].sum(1)  # (N, k, d) → (N, d)
        return dx

    return y, backward


@op("x", "weight", "bias")
def expert_linear(x: Array, weight: Array, counts: Any, bias: Array | None = None) -> Forward:
    """
    for: the linear layers of all experts, each on its own rows.

    equation:
        y_m = x_m W_eᵀ + b_e      for the rows m of expert e

    where:
        x       (M, in)       rows sorted by expert, as `dispatch` gives them
        weight  (E, out, in)  W
        counts  (E,)          how many rows each expert has, M in all
        bias    (E, out)      b, or None
        y       (M, out)

    by hand:
        >>> weight = np.array([[[2.0]], [[3.0]], [[5.0]]])
        >>> expert_linear(np.array([[1.0], [10.0], [100.0]]), weight, [1, 0, 2]).numpy().ravel()
        array([  2.,  50., 500.])

    backward:
        dx_m = dy_m W_e
        dW_e = Σ_(m of e) dy_mᵀ x_m
        db_e = Σ_(m of e) dy_m

    why: as linear, expert by expert. An expert without rows has an empty sum: its gradient is 0.

    saved: x, weight, counts.

    cost: 2 M in out FLOPs forward, twice that back, however many experts there are: that is the point of a mixture.

    goes wrong: a gradient buffer that is not cleared gives an expert nobody chose the gradient of another step.

    source: Gale et al. 2022, "MegaBlocks": no expert has a capacity, and no token is dropped.
    """
    counts = integers(counts, "expert_linear: counts")
    if weight.ndim != 3 or x.ndim != 2 or x.shape[1] != weight.shape[2]:
        raise ValueError(f"expert_linear: x (M, in) goes into weight (E, out, in), not {x.shape} into {weight.shape}")
    if counts.shape != weight.shape[:1] or counts.sum() != len(x) or (counts < 0).any():
        raise ValueError(
            f"expert_linear: counts says how many of the {len(x)} rows each of the {len(weight)} experts has, not "
            f"{counts.tolist()}"
        )
    if bias is not None and bias.shape != weight.shape[:2]:
        raise ValueError(f"expert_linear: bias is {weight.shape[:2]} for weight {weight.shape}, not {bias.shape}")
    y = np.empty((len(x), weight.shape[1]), x.dtype)
    for e, rows in _rows(counts):
        y[rows] = x[rows] @ weight[e].T
        if bias is not None:
            y[rows] += bias[e]

    def backward(dy: Array, need: Any) -> tuple[Array, ...]:
        dx, dweight, dbias = np.empty_like(x), np.zeros_like(weight), np.zeros(weight.shape[:2], x.dtype)
        for e, rows in _rows(counts):
            # y = x W_eᵀ + b_e
            if need.x:
                dx[rows] = dy[rows] @ weight[e]
            if need.weight:
                dweight[e] = dy[rows].T @ x[rows]
            if need.bias:
                dbias[e] = dy[rows].sum(0)
        return dx, dweight, dbias

    return y, backward


def _rows(counts: Array) -> Iterator[tuple[int, slice]]:
    """Each expert that has rows, with these rows."""
    end = 0
    for e, n in enumerate(counts.tolist()):
        start, end = end, end + n
        if n:
            yield e, slice(start, end)


@op("y", "weights")
def combine(y: Array, weights: Array, plan: Plan) -> Forward:
    """
    for: what a token's experts said, added up with the router's weights, back in the order of the tokens.

    equation:
        z_n = Σ_j w_nj y_place(n, j)

    where:
        y        (N k, d)  the experts' results, sorted by expert
        weights  (N, k)    w, from `expert_weights`
        z        (N, d)

    by hand:
        >>> two = plan([[1, 0]], experts=2)  # row 0 is expert 0's, the second choice
        >>> combine(np.array([[10.0], [20.0]]), np.array([[0.75, 0.25]]), two).numpy()
        array([[17.5]])

    backward:
        dy_place(n, j) = w_nj dz_n
        dw_nj = Σ_d dz_nd y_place(n, j),d

    why: z is a sum of products, so each factor's gradient is dz times the other. dw is how much a token's result would
        have gained by listening more to that expert: the signal that trains the router.

    saved: y (in the order of the tokens), w, the plan.

    cost: N k d multiply-adds forward, twice that back.

    goes wrong: weights laid out by token beside rows laid out by expert: it runs, and every expert gets another's
        weight.
    """
    if weights.shape != plan.place.shape:
        raise ValueError(f"combine: one weight per choice, {plan.place.shape}, not {weights.shape}")
    said = y[plan.place]  # (N, k, d)
    z = np.einsum("nk,nkd->nd", weights, said)

    def backward(dz: Array, need: Any) -> tuple[Array | None, ...]:
        # z_nd = Σ_j w_nj said_njd
        dweights = np.einsum("nd,nkd->nk", dz, said) if need.weights else None
        dy = None
        if need.y:
            dy = np.empty_like(y)
            dy[plan.place] = weights[..., None] * dz[:, None, :]  # every row has one place: nothing is added twice
        return dy, dweights

    return z, backward


@op("x")
def put_rows(x: Array, mask: Any) -> Forward:
    """
    for: the way back from x[mask]: rows to the places they came from, zeros elsewhere.

    equation:
        y[mask] = x,   0 elsewhere

    where:
        x     (N, d)
        mask  (...)     boolean, N of them true; copied
        y     (..., d)

    by hand:
        >>> put_rows(np.array([[5.0], [6.0]]), [True, False, True]).numpy().ravel()
        array([5., 0., 6.])

    backward:
        dx = dy[mask]
    """
    mask = np.array(mask)
    if mask.dtype != np.bool_ or mask.sum() != len(x):
        raise ValueError(
            f"put_rows: the mask is boolean and true once for each of the {len(x)} rows of x, not {mask.dtype} with "
            f"the sum {mask.sum()}"
        )
    y = np.zeros((*mask.shape, *x.shape[1:]), x.dtype)
    y[mask] = x

    def backward(dy: Array) -> Array:
        dx: Array = dy[mask]
        return dx

    return y, backward
