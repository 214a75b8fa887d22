"""A learner's function in the place of an op: the arguments of the one made into those of the other.

Where the op is asked for something that the exercise leaves out (a bias, a soft cap), the op's own definition answers.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from minitx.learn.exercise import Exercise
from minitx.op import Array, Op, registry
from minitx.ops.attention import allowed_pairs

Function = Callable[..., Any]
Rule = Callable[..., Any]

OPS = {"add": "add", "multiply": "mul", "matmul": "matmul", "attention-weights": "attention"}  # where the slug is no op

ASKED: dict[str, Callable[[dict[str, Any]], bool]] = {  # which arguments of the op an exercise has asked for
    "gelu": lambda given: bool(given["approximate"] == "tanh"),
    "rotary": lambda given: np.ndim(given["positions"]) == 1,
    "tiled-attention": lambda given: isinstance(given["mask"], np.ndarray) and given["mask"].ndim == 2,
}


def op_of(exercise: Exercise) -> Op | None:
    """The op whose place the exercise's function can take in a model."""
    name = OPS.get(exercise.slug, exercise.op if exercise.slug.replace("-", "_") == exercise.op else "")
    return registry.get(name)


def stand_in(exercise: Exercise, function: Function) -> Rule:
    """A rule for `op.using`."""
    op = op_of(exercise)
    assert op is not None
    if exercise.slug == "attention-weights":
        return attention(function)
    if exercise.slug == "cross-entropy":
        return cross_entropy(plain(exercise, op, function))
    return plain(exercise, op, function)


def plain(exercise: Exercise, op: Op, function: Function) -> Rule:
    """Arguments of the same names; a gain or bias that is None is 1 or 0."""

    def rule(*args: Any, **options: Any) -> Any:
        if op.broadcasts:  # x + y: whatever they are called
            given = dict(zip(exercise.parameters, args))
        else:
            bound = op.signature.bind(*args, **options)
            bound.apply_defaults()
            given = bound.arguments
            more = {n: v for n, v in given.items() if n not in exercise.parameters}
            if any(v is not op.signature.parameters[n].default for n, v in more.items()):
                return NotImplemented
            given = {n: neutral(n, given) if given[n] is None else given[n] for n in exercise.parameters}
        if exercise.slug in ASKED and not ASKED[exercise.slug](given):
            return NotImplemented
        arrays = [np.asarray(given[n]) for n in exercise.gradients]
        dtype = arrays[0].dtype
        value, backward = function(*given.values())

        def pull(dy: Array) -> tuple[Any, ...]:
            answer = backward(dy)
            parts = answer if isinstance(answer, tuple | list) else (answer,)
            gradients = {n: np.asarray(g, dtype) for n, g in zip(exercise.gradients, parts)}
            return tuple(gradients.values()) if op.broadcasts else tuple(gradients.get(n) for n in op.wrt)

        return np.asarray(value, dtype), pull

    return rule


def neutral(name: str, given: dict[str, Any]) -> Array | None:
    """The gain 1, or the bias 0, of a layer that has none."""
    x, weight = given["x"], given["weight"]
    if name == "bias":
        return np.zeros(len(weight) if weight is not None else x.shape[-1], x.dtype)
    return np.ones(x.shape[-1], x.dtype) if name == "weight" else None


def cross_entropy(rule: Rule) -> Rule:
    """The exercise takes the mean; a sum is N times as much."""

    def summed(logits: Array, targets: Any, *, reduction: str = "mean", label_smoothing: float = 0, **more: Any) -> Any:
        if reduction == "none" or label_smoothing:
            return NotImplemented
        value, pull = rule(logits, targets, **more)
        n = 1 if reduction == "mean" else max(int((np.asarray(targets) != more.get("ignore_index", -100)).sum()), 1)
        return value * value.dtype.type(n), lambda dy: pull(dy * dy.dtype.type(n))

    return summed


def attention(weights: Function) -> Rule:
    """o = w v around the learner's weights; rows of the batch with one mask go together, since theirs has no batch."""

    def rule(q: Array, k: Array, v: Array, *, mask: Any = None, query_offset: Any = None, **more: Any) -> Any:
        if more.get("dropout") or any(more.get(n) is not None for n in ("bias", "scale", "softcap")):
            return NotImplemented
        (B, H, T, _), S = q.shape, k.shape[2]
        if k.shape[1] != H:
            return NotImplemented
        allowed = allowed_pairs(mask, None, (B, H, T, S), query_offset)
        if allowed is not None and allowed.shape[1] != 1:
            return NotImplemented
        masks = np.ones((B, T, S), bool) if allowed is None else np.broadcast_to(allowed[:, 0], (B, T, S))
        w = np.empty((B, H, T, S), q.dtype)
        backwards = []
        for rows in alike(masks):
            w[rows], backward = weights(q[rows], k[rows], masks[rows[0]])
            backwards.append((rows, backward))

        def pull(do: Array) -> tuple[Array, ...]:
            dw = do @ v.swapaxes(2, 3)  # (B, H, T, S)
            dq, dk = np.empty_like(q), np.empty_like(k)
            for rows, backward in backwards:
                dq[rows], dk[rows] = backward(dw[rows])
            return dq, dk, w.swapaxes(2, 3) @ do

        return w @ v, pull

    return rule


def alike(masks: Array) -> Iterator[Array]:
    """The rows of the batch, those with the same mask together."""
    _, group = np.unique(masks.reshape(len(masks), -1), axis=0, return_inverse=True)
    for i in range(group.max() + 1):
        yield np.flatnonzero(group == i)
