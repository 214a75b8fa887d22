"""Embedding: ids pick rows of a table; an id that occurs twice collects two gradients."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    ids = rng.integers(0, 6, (3, 5))
    ids[0, 0] = ids[1, 4] = 2  # at least one id twice; 6 never
    return {"ids": ids, "weight": rng.standard_normal((7, 2))}


def adversarial(rng: Rng) -> Cases:
    weight = rng.standard_normal((7, 2))
    return {
        "all-one": {"ids": np.full((3, 5), 4), "weight": weight},
        "different": {"ids": rng.permutation(7)[:5], "weight": weight},
        "number": {"ids": np.array(6), "weight": weight},
        "none": {"ids": np.zeros((0, 5), np.int64), "weight": weight},
    }


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(ids: Array, weight: Array) -> Array:
    return weight[ids]


def added(dy: Array, ids: Array, weight: Array) -> Array:
    dW = np.zeros(weight.shape)
    np.add.at(dW, ids, dy)
    return dW


def kept_one(dy: Array, ids: Array, weight: Array) -> Array:
    dW = np.zeros(weight.shape)
    dW[ids] += dy
    return dW


def averaged(dy: Array, ids: Array, weight: Array) -> Array:
    counts = np.bincount(ids.ravel(), minlength=len(weight))[:, None]
    return added(dy, ids, weight) / np.maximum(counts, 1)


def on_top_of_weight(dy: Array, ids: Array, weight: Array) -> Array:
    return weight + added(dy, ids, weight)


def in_order(dy: Array, ids: Array, weight: Array) -> Array:
    """The gradients lie in the table as they stand in the text."""
    dW = np.zeros(weight.shape)
    rows = dy.reshape(-1, weight.shape[1])[: len(weight)]
    dW[: len(rows)] = rows
    return dW


def one_hot(ids: Array, weight: Array) -> Any:
    """A linear layer whose input has a single 1."""
    H = (ids.ravel()[:, None] == np.arange(len(weight))).astype(float)  # (N, V)
    y = (H @ weight).reshape(*ids.shape, weight.shape[1])
    return y, lambda dy: H.T @ dy.reshape(len(H), weight.shape[1])


def loops(ids: Array, weight: Array) -> Any:
    def backward(dy: Array) -> Array:
        dW = np.zeros(weight.shape)
        for n in np.ndindex(ids.shape):
            dW[ids[n]] += dy[n]
        return dW

    return weight[ids], backward


def bincount(ids: Array, weight: Array) -> Any:
    V, d = weight.shape

    def backward(dy: Array) -> Array:
        columns = [np.bincount(ids.ravel(), dy[..., j].ravel(), V) for j in range(d)]
        return np.stack(columns, 1).astype(float)  # (of nothing bincount makes integers)

    return np.take(weight, ids, axis=0), backward


EXERCISE = Exercise(
    slug="embedding",
    part=1,
    minutes=10,
    needs=("matmul",),
    idioms=("weight[ids]", "np.add.at(dW, ids, dy)"),
    equation="y_n = W[ids_n]",
    shapes={"ids": "(...) int: 0 ... V - 1", "weight": "(V, d)  W", "y": "(..., d)", "dy": "(..., d)"},
    function="embedding",
    signature="ids, weight",
    gradients=("weight",),
    op="embedding",
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "kept-one": with_backward(forward, kept_one),
        "averaged": with_backward(forward, averaged),
        "added-to-weight": with_backward(forward, on_top_of_weight),
        "in-order": with_backward(forward, in_order),
        "cotangent-first": with_backward(forward, lambda dy, ids, weight: added(weight[ids], ids, weight)),
    },
    unusual={"one-hot": one_hot, "loops": loops, "bincount": bincount},
)
