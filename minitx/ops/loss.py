"""Losses: one number for how far the predictions are from the truth."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.op import Array, Forward, op
from minitx.ops.checks import inside, integers, one_of, probability

REDUCTIONS = ("mean", "sum", "none")


@op("logits")
def cross_entropy(
    logits: Array, targets: Any, *, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Forward:
    """
    for: classification, the next token above all: minus the log-probability that the model gave to what came.

    equation:
        p = softmax(x),   q = (1 - ε) onehot(target) + ε / V,   loss_n = - Σ_v q_v log p_v,   L = Σ_n loss_n / N

    where:
        logits   (..., V)  x, scores of the V classes
        targets  (...)     integers from 0 to V - 1, or ignore_index; copied
        ε        label_smoothing, 0 to 1
        N        the number of targets that are not ignored (reduction "mean"); "sum": 1; "none": loss_n itself, (...)

    by hand:
        >>> x = np.log([[1.0, 3.0], [5.0, 7.0]])  # p = [1/4, 3/4]; the second row is ignored; -log 3/4 = 0.2877
        >>> round(cross_entropy(x, [1, -100]).item(), 4)
        0.2877

    backward:
        dx = p                 (term 1)
           - (1 - ε) onehot    (term 2)
           - ε / V             (term 3)
        each row times dL / N, and 0 where the target is ignored

    why:
        log p_v = x_v - log Σ_j exp(x_j), and the q_v sum to 1, so loss_n = log Σ_j exp(x_j) - Σ_v q_v x_v. The first
        part has the gradient p, the second is linear with coefficients q: dx = p - q. The Jacobians of softmax and of
        the logarithm cancel into a difference, without the division by p that fails where p rounds to 0.

    saved: exp(x - max) of the rows that count, and their sums.

    cost: 4 passes over the logits forward, 2 back; one exp each.

    differs from: PyTorch: with all targets ignored the loss is 0, not NaN; an ignored row is not read and may hold NaN.
        As there, smoothing spreads over all V classes, so with ε > 0 a logit of -inf makes the loss infinite (the
        gradient stays finite). With ε = 0 it is harmless unless it is the target's.

    goes wrong: a mean over all positions, padding included, scales the gradient by the share of real tokens; an
        ignored target that is looked up as logits[-100] is a wrong class, not an error.

    exercise: cross-entropy

    source: Goodfellow, Bengio and Courville 2016, "Deep learning", 6.2.2; smoothing: Szegedy et al. 2016, "Rethinking
        the Inception architecture for computer vision", section 7.
    """
    epsilon = probability(label_smoothing, "cross_entropy: label_smoothing")
    one_of(reduction, REDUCTIONS, "cross_entropy: reduction")
    targets = integers(targets, "cross_entropy: targets")
    if logits.ndim == 0 or targets.shape != logits.shape[:-1]:
        raise ValueError(
            f"cross_entropy: one target per row of logits (..., V): logits {logits.shape} want targets "
            f"{logits.shape[:-1]}, not {targets.shape}"
        )
    V = logits.shape[-1]
    if V == 0:
        raise ValueError(f"cross_entropy: the last axis of logits is the classes, and there are none in {logits.shape}")
    counted = targets != ignore_index
    inside(targets, V, "cross_entropy: targets", "classes", counted, f" (or ignore_index, {ignore_index})")

    all_counted = counted.all()
    x = logits.reshape(counted.size, V) if all_counted else logits[counted]  # (N, V): ignored rows are not read
    target = targets[counted]  # (N,)
    row = np.arange(len(x))
    top = x.max(-1, keepdims=True, initial=-np.inf)
    x = x - np.where(np.isfinite(top), top, 0)
    e = np.exp(x)
    total = e.sum(-1, keepdims=True)  # (N, 1)
    total = np.where(total == 0, 1, total)  # a row of nothing but -inf
    log_total = np.log(total[:, 0])
    losses = log_total - x[row, target]  # (N,)
    if epsilon:
        certain = (1 - epsilon) * losses if epsilon < 1 else 0.0  # (0 times an infinite loss is not to be NaN)
        losses = certain + epsilon * (log_total - x.mean(-1))
    divisor = max(len(x), 1) if reduction == "mean" else 1
    if reduction == "none":
        value = np.zeros(targets.shape, logits.dtype)
        value[counted] = losses
    else:
        value = losses.sum() / divisor

    def backward(dy: Array) -> Array:
        # loss_n = log Σ_j exp(x_j) - Σ_v q_v x_v
        dx: Array = e / total  # term 1
        dx[row, target] -= 1 - epsilon  # term 2
        if epsilon:
            dx -= epsilon / V  # term 3
        dx *= dy[counted][:, None] if reduction == "none" else dy / divisor
        if all_counted:
            return dx.reshape(logits.shape)
        dlogits = np.zeros_like(logits)
        dlogits[counted] = dx
        return dlogits

    return value, backward


@op
def mse(x: Array, y: Array, reduction: str = "mean") -> Forward:
    """
    for: regression: the mean of the squared differences.

    equation:
        L = Σ_i (x_i - y_i)² / N

    where:
        x, y  (...)  of the same shape: nothing is broadcast, since (N,) against (N, 1) is the usual mistake
        N     the number of elements (reduction "mean"); "sum": 1; "none": the squares themselves, (...)

    by hand:
        >>> mse(np.array([1.0, 2.0]), np.array([1.0, 6.0])).item()
        8.0

    backward:
        dx = 2 (x - y) dL / N
        dy = -dx
    """
    one_of(reduction, REDUCTIONS, "mse: reduction")
    if x.shape != y.shape:
        raise ValueError(f"mse: x and y have one shape, not {x.shape} and {y.shape}; reshape or broadcast one of them")
    difference = x - y
    squares = difference * difference
    divisor = max(x.size, 1) if reduction == "mean" else 1

    def backward(dloss: Array) -> tuple[Array, Array]:
        dx = difference * (dloss * (2 / divisor))
        return dx, -dx

    return squares if reduction == "none" else squares.sum() / divisor, backward
