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
from minitx.kernels.vectormath import exp_or_0, log, maximum, minus

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 13  # of a task, in whole rows


def cross_entropy(
    logits: Array, targets: Any, *, ignore_index: int = -100, label_smoothing: float = 0.0, reduction: str = "mean"
) -> tuple[Any, Callable[..., Any]]:
    """loss_n = log Σ_j exp(x_j) - Σ_v q_v x_v. Saved: the logits themselves, and two numbers a row."""
    targets, shape = np.asarray(targets), logits.shape
    V = shape[-1] if shape else 0
    if not (
        logits.dtype in NONE
        and logits.size
        and targets.dtype.kind in "iu"
        and targets.dtype != np.uint64
        and targets.shape == shape[:-1]
        and type(ignore_index) is int
        and -(2**63) <= ignore_index < 2**63
        and isinstance(label_smoothing, int | float)
        and 0 <= label_smoothing <= 1
        and reduction in ("mean", "sum", "none")
    ):
        return NotImplemented  # type: ignore[no-any-return]
    target = np.array(targets, np.int64).reshape(-1)  # a copy: backward needs them as they are now
    N = mark_ignored[target.dtype](target, V, ignore_index)
    if N < 0:
        return NotImplemented  # type: ignore[no-any-return]
    dtype, rows = logits.dtype, target.size
    x = np.ascontiguousarray(logits).reshape(rows, V)
    losses, saved = np.empty(rows, dtype), np.empty((rows, 2), dtype)
    threads = threads_for(0.5 * x.size)
    worker, backward_of = gradient_rows[dtype], cross_entropy_backward[dtype]
    total = cross_entropy_forward[dtype](
        loss_rows[dtype], x, target, label_smoothing, losses, saved, memory_for(dtype, threads), threads
    )
    divisor = max(N, 1) if reduction == "mean" else 1
    each = reduction == "none"

    def backward(dy: Array) -> Array:
        dx = np.empty(shape, dtype)
        scale = np.ascontiguousarray(dy).reshape(-1) if each else np.full(1, dy / divisor, dtype)
        backward_of(
            worker, x, target, label_smoothing, saved, scale, dx.reshape(rows, V), memory_for(dtype, threads), threads
        )
        return dx

    return losses.reshape(targets.shape) if each else dtype.type(total / divisor), backward


@kernel(int64(array(int64, 1, writes=True), int64, int64))
def mark_ignored(targets, V, ignore_index):
    """Ignored targets become -1; returns how many are left, or -1 if one of them is not in 0 ... V - 1."""
    counted = 0
    for i in range(len(targets)):
        if targets[i] == ignore_index:
            targets[i] = -1
        elif targets[i] < 0 or targets[i] >= V:
            return -1
        else:
            counted += 1
    return counted


@Worker
def loss_rows(memory, args, task):
    like, rows, V = memory[0], args[0], args[1]
    size, each = size_of(like), max(1, ELEMENTS // V)
    epsilon, targets = cast(like, real(args[2])), elements(args[0], args[4], rows)
    losses, saved, zero = elements(like, args[5], rows), elements(like, args[6], 2 * rows), cast(like, 0)
    first, end = task * each, min(rows, (task + 1) * each)
    # Loop by loop over the rows of a task, whose results do not wait for each other as those within a row do.
    for i in range(first, end):
        if targets[i] >= 0:  # an ignored row is not read
            x, top = elements(like, args[3] + i * V * size, V), cast(like, -np.inf)
            for j in range(V):
                top = maximum(top, x[j])
            saved[2 * i] = top if abs(top) < np.inf else zero
    for i in range(first, end):
        total = cast(like, 1)
        if targets[i] >= 0:
            x, top, total = elements(like, args[3] + i * V * size, V), saved[2 * i], zero
            for j in range(V):
                total += exp_or_0(minus(x[j], top))
        saved[2 * i + 1] = total if total != 0 else cast(like, 1)
    for i in range(first, end):
        losses[i] = log(saved[2 * i + 1])
    for i in range(first, end):
        if targets[i] < 0:
            losses[i] = 0
            continue
        x, top, mean, loss = elements(like, args[3] + i * V * size, V), saved[2 * i], zero, losses[i]
        log_total = loss
        loss = minus(loss, minus(x[targets[i]], top))
        if epsilon > 0:
            for j in range(V):
                mean += minus(x[j], top)
            if loss < np.inf:  # (an infinite loss stays one: reordered, the next line could make it inf - inf)
                loss = (cast(like, 1) - epsilon) * loss + epsilon * (log_total - mean / cast(like, V))
        losses[i] = loss


@kernel(
    *for_dtypes(
        lambda T: float64(
            int64, array(T, 2), array(int64, 1), float64, array(T, 1, writes=True), array(T, 2, writes=True),
            array(T, 2, writes=True), int64,
        )
    )
)  # fmt: skip
def cross_entropy_forward(worker, x, targets, smoothing, losses, saved, memory, threads):
    rows, V = x.shape
    args = np.array([rows, V, bits(smoothing), address(x), address(targets), address(losses), address(saved)])
    share(worker, memory, args, -(-rows // max(1, ELEMENTS // V)), threads)
    total = 0.0
    for i in range(rows):
        total += losses[i]
    return total


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
            dx[j] = (exp_or_0(minus(x[j], top)) * factor - smooth) * scale  # term 1 - term 3
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
