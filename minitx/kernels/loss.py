"""cross_entropy, fast: contract and mathematics are in ops/loss.py; the terms have its numbers."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float64, int64, void

from minitx.kernels.compile import Worker, array, for_dtypes, kernel
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, bits, cast, elements, real, size_of
from minitx.kernels.vectormath import exp

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 13  # of a task, in whole rows


def cross_entropy(
    logits: Array, targets: Any, *, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> tuple[Any, Callable[..., Any]]:
    """loss_n = log Σ_j exp(x_j) - Σ_v q_v x_v. Saved: the logits themselves, and two numbers a row."""
    targets = np.array(targets)  # a copy: backward needs them as they are now
    V = logits.shape[-1] if logits.ndim else 0
    if not (
        logits.dtype in NONE
        and logits.size
        and targets.dtype.kind in "iu"
        and targets.shape == logits.shape[:-1]
        and 0 <= label_smoothing <= 1
        and reduction in ("mean", "sum", "none")
    ):
        return NotImplemented  # type: ignore[no-any-return]
    target = targets.reshape(-1).astype(np.int64)
    counted = target != ignore_index
    N = int(np.count_nonzero(counted))
    wrong = (target < 0) | (target >= V)
    if (wrong & counted).any():
        return NotImplemented  # type: ignore[no-any-return]
    target[~counted] = -1
    dtype, rows = logits.dtype, target.size
    x = np.ascontiguousarray(logits).reshape(rows, V)
    losses, saved = np.empty(rows, dtype), np.empty((rows, 2), dtype)
    threads = threads_for(0.5 * x.size)
    worker, backward_of = gradient_rows[dtype], cross_entropy_backward[dtype]
    cross_entropy_forward[dtype](
        loss_rows[dtype], x, target, label_smoothing, losses, saved, memory_for(dtype, threads), threads
    )
    divisor = max(N, 1) if reduction == "mean" else 1
    each = reduction == "none"

    def backward(dy: Array) -> Array:
        dx = np.empty((rows, V), dtype)
        scale = np.ascontiguousarray(dy.reshape(-1) if each else np.broadcast_to(dy / divisor, 1), dtype)
        backward_of(worker, x, target, label_smoothing, saved, scale, dx, memory_for(dtype, threads), threads)
        return dx.reshape(logits.shape)

    return losses.reshape(targets.shape) if each else losses.sum() / dtype.type(divisor), backward


@Worker
def loss_rows(memory, args, task):
    like, rows, V = memory[0], args[0], args[1]
    size, each = size_of(like), max(1, ELEMENTS // V)
    epsilon, targets = cast(like, real(args[2])), elements(args[0], args[4], rows)
    losses, one = elements(like, args[5], rows), cast(like, 1)
    for i in range(task * each, min(rows, (task + 1) * each)):
        if targets[i] < 0:  # ignored: not read
            losses[i] = 0
            continue
        x, saved = elements(like, args[3] + i * V * size, V), elements(like, args[6] + i * 2 * size, 2)
        top = cast(like, -np.inf)
        for j in range(V):
            top = x[j] if x[j] > top else top
        top = top if abs(top) < np.inf else cast(like, 0)
        total = mean = cast(like, 0)
        for j in range(V):
            total += exp(x[j] - top)
        total = one if total == 0 else total
        loss = np.log(total) - (x[targets[i]] - top)
        if epsilon > 0:
            for j in range(V):
                mean += x[j] - top
            if loss < np.inf:  # (an infinite loss stays one: reordered, the next line could make it inf - inf)
                loss = (one - epsilon) * loss + epsilon * (np.log(total) - mean / cast(like, V))
        losses[i] = loss
        saved[0], saved[1] = top, total


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, array(T, 2), array(int64, 1), float64, array(T, 1, writes=True), array(T, 2, writes=True),
            array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def cross_entropy_forward(worker, x, targets, smoothing, losses, saved, memory, threads):
    rows, V = x.shape
    args = np.array([rows, V, bits(smoothing), address(x), address(targets), address(losses), address(saved)])
    share(worker, memory, args, -(-rows // max(1, ELEMENTS // V)), threads)


@Worker
def gradient_rows(memory, args, task):
    like, rows, V = memory[0], args[0], args[1]
    size, each = size_of(like), max(1, ELEMENTS // V)
    epsilon, targets = cast(like, real(args[2])), elements(args[0], args[4], rows)
    one, scales = cast(like, 1), elements(like, args[6], args[7])
    for i in range(task * each, min(rows, (task + 1) * each)):
        x, dx = elements(like, args[3] + i * V * size, V), elements(like, args[8] + i * V * size, V)
        if targets[i] < 0:
            for j in range(V):
                dx[j] = 0
            continue
        saved, scale = elements(like, args[5] + i * 2 * size, 2), scales[i if args[7] > 1 else 0]
        top, factor = saved[0], one / saved[1]
        smooth = epsilon / cast(like, V)
        for j in range(V):
            dx[j] = (exp(x[j] - top) * factor - smooth) * scale  # term 1 - term 3
        dx[targets[i]] -= (one - epsilon) * scale  # term 2


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, array(T, 2), array(int64, 1), float64, array(T, 2), array(T, 1), array(T, 2, writes=True),
            array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def cross_entropy_backward(worker, x, targets, smoothing, saved, scale, dx, memory, threads):
    rows, V = x.shape
    args = np.array([
        rows, V, bits(smoothing), address(x), address(targets), address(saved), address(scale), len(scale), address(dx)
    ])  # fmt: skip
    share(worker, memory, args, -(-rows // max(1, ELEMENTS // V)), threads)
