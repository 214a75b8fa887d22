"""Routing: which experts a token goes to, with what weights, and the two losses that keep a router healthy."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.op import Array, Forward, op
from minitx.ops.checks import inside, integers
from minitx.ops.softmax import softmax


def choose(scores: Array, k: int) -> Array:
    """scores (N, E) → the k experts with the largest scores of each token, (N, k), the largest first.

    Of equal scores the lowest number wins, always: a router that starts at zero sends everything to experts 0 ... k-1,
    on every machine. A choice is not a number that moves: it has no gradient, and this is not an op.
    """
    E = scores.shape[-1]
    if not 1 <= k <= E:
        raise ValueError(f"a token goes to between 1 and all experts: k = {k}, and there are {E} experts")
    order: Array = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    return order


@op("scores")
def expert_weights(scores: Array, chosen: Any) -> Forward:
    """
    for: how much each chosen expert counts; the one way by which a router learns what a choice was worth.

    equation:
        k = 1:  w = p_c                           p = softmax(scores) over all E experts
        k > 1:  w_j = p_(c_j) / Σ_i p_(c_i)       so that the weights sum to 1

    where:
        scores  (N, E)  s, the router's output for N tokens
        chosen  (N, k)  c, from `choose`: the experts of each token, all different; copied
        w       (N, k)  the weights, in the order of `chosen`

    by hand:
        >>> expert_weights(np.log([[1.0, 3.0, 4.0]]), [[2]]).numpy()
        array([[0.5]])
        >>> expert_weights(np.log([[1.0, 3.0, 4.0]]), [[1, 0]]).numpy()
        array([[0.75, 0.25]])

    backward:
        k = 1:  ds_e = dw w [e = c]               (term 1)
                     - dw w p_e                   (term 2)
        k > 1:  ds_(c_j) = w_j dw_j               (term 1)
                         - w_j Σ_i dw_i w_i       (term 2)
                and 0 for experts that were not chosen

    why:
        The common denominator of p cancels in w_j, so the renormalised weights are the softmax of the chosen scores
        alone: the backward is that of softmax, on k numbers. With k = 1 this would be the softmax of one number: always
        1, gradient 0, and the router would never learn. Hence p_c itself there, in which all scores take part.

    saved: w, the choice, and for k = 1 also p.

    cost: one exp per score that takes part.

    differs from: models that renormalise never, or also for k = 1 (then nothing but the balance loss trains the
        router). Softmax before or after the choice is the same here for k > 1.

    goes wrong: taking the weights out of the graph (as plain numbers) leaves the experts' gradients right and the
        router without any: it stays at its random start, and the loss still falls.

    exercise: expert-weights

    source: Shazeer et al. 2017, "Outrageously large neural networks", section 2.1; k = 1: Fedus et al. 2021, "Switch
        transformers", equation 2.
    """
    chosen = _choices(chosen, scores, "expert_weights")
    N, k = chosen.shape
    row = np.arange(N)[:, None]
    if k == 1:
        p, _ = softmax.definition(scores)  # (N, E)
        w = p[row, chosen]  # (N, 1)
    else:
        w, _ = softmax.definition(scores[row, chosen])  # (N, k)

    def backward(dw: Array) -> Array:
        if k == 1:
            # w = p_c = exp(s_c) / Σ_e exp(s_e)
            dscores: Array = -(dw * w) * p  # term 2
            dscores[row, chosen] += dw * w  # term 1
        else:
            # w_j = exp(s_(c_j)) / Σ_i exp(s_(c_i))
            dscores = np.zeros_like(scores)
            dscores[row, chosen] = w * (dw - (dw * w).sum(1, keepdims=True))  # term 1 - term 2
        return dscores

    return w, backward


@op("scores")
def balance_loss(scores: Array, chosen: Any) -> Forward:
    """
    for: keeping a router from sending everything to few experts: 1 where the load is even, more where f and P agree.

    equation:
        L = E Σ_e f_e P_e

    where:
        scores  (N, E)  s, the router's output for the N tokens that count (no padding), E experts
        chosen  (N, k)  the experts of each token; copied
        f_e     the share of the N k assignments that went to expert e: Σ_e f_e = 1. A constant: counts do not move
        P_e     the mean over the tokens of p_e = softmax(s)_e: Σ_e P_e = 1
        L       ()      1 where f or P is uniform, E P_e where every token goes to expert e; 0 without tokens

    by hand:
        >>> scores = np.log([[3.0, 1.0], [3.0, 1.0]])  # P = [3/4, 1/4]; both tokens go to expert 0, f = [1, 0]
        >>> balance_loss(scores, [[0], [0]]).item()  # 2 (1 * 3/4 + 0 * 1/4)
        1.5

    backward:
        ds_ne = dL / N * p_ne (E f_e                       (term 1)
                               - Σ_j p_nj E f_j)           (term 2)

    why:
        f does not move with the scores (until a choice flips, which has no slope), so L is linear in p with the
        coefficients E f_e / N, and the rest is the backward of softmax. A gradient step lowers the probability of those
        experts that got more than a token's own average of f.

    saved: p, f.

    cost: one exp per score.

    differs from: versions in which f sums to k (then uniform is k), or which average over all layers before
        multiplying; here it is a number per layer, and each layer has its own.

    goes wrong: counting padding: it all looks alike, goes to one expert, and the router learns to balance the padding.

    exercise: balance-loss

    source: Fedus et al. 2021, "Switch transformers", equations 4 to 6.
    """
    chosen = _choices(chosen, scores, "balance_loss")
    N, E = scores.shape
    p, _ = softmax.definition(scores)  # (N, E)
    f = (np.bincount(chosen.ravel(), minlength=E) / max(chosen.size, 1)).astype(scores.dtype)  # (E,)
    n = max(N, 1)

    def backward(dL: Array) -> Array:
        # L = Σ_e E f_e Σ_n p_ne / N
        dscores: Array = dL / n * p * (E * f - (p * (E * f)).sum(1, keepdims=True))  # term 1 - term 2
        return dscores

    return E * (f * p.sum(0)).sum() / n, backward


@op
def router_z_loss(scores: Array) -> Forward:
    """
    for: keeping a router's scores small, where exp and rounding are harmless.

    equation:
        L = 1/N Σ_n z_n²,   z_n = log Σ_e exp(s_ne)

    where:
        scores  (N, E)  s, the router's output for the N tokens that count (no padding)
        L       ()      0 without tokens

    by hand:
        >>> round(router_z_loss(np.log([[1.0, 3.0]])).item(), 4)  # (log 4)² = 1.3863²
        1.9218

    backward:
        ds_ne = dL * 2 z_n / N * p_ne       p = softmax(s)

    why: the derivative of log Σ exp is softmax, that of z² is 2 z. Softmax does not notice a constant added to a
        token's scores; this loss does, and pulls z towards 0.

    saved: z, p.

    cost: one exp per score.

    source: Zoph et al. 2022, "ST-MoE", equation 5.
    """
    if scores.ndim != 2 or not scores.shape[1]:
        raise ValueError(f"router_z_loss: scores are (tokens, experts), at least one expert, not {scores.shape}")
    n = max(len(scores), 1)
    top = scores.max(-1, keepdims=True)
    e = np.exp(scores - top)
    total = e.sum(1, keepdims=True)  # (N, 1)
    z = top + np.log(total)
    p = e / total  # (N, E)

    def backward(dL: Array) -> Array:
        # L = Σ_n z_n² / N
        dscores: Array = dL * 2 / n * z * p
        return dscores

    return (z * z).sum() / n, backward


def _choices(chosen: Any, scores: Array, what: str) -> Array:
    experts = integers(chosen, f"{what}: chosen")
    if scores.ndim != 2 or experts.ndim != 2 or len(experts) != len(scores):
        raise ValueError(
            f"{what}: scores (tokens, experts) and chosen (tokens, k) have one row per token, not the shapes "
            f"{scores.shape} and {experts.shape}"
        )
    inside(experts, scores.shape[1], f"{what}: chosen", "experts")
    return experts
