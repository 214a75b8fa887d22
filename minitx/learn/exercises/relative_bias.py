"""A learned bias for every bucket of distances: an embedding of distances, so gradients have to be added up."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def clipped(T: int, S: int, n: int) -> Any:
    """Buckets for distances backwards: 0, 1, ... n - 1 and more."""
    return np.clip(np.arange(T)[:, None] + S - T - np.arange(S), 0, n - 1)


def arguments(rng: Rng) -> Arguments:
    return {"buckets": clipped(5, 7, 4), "weight": rng.standard_normal((11, 3))}


def adversarial(rng: Rng) -> Cases:
    return {
        "one-bucket": {"buckets": np.full((5, 7), 2), "weight": rng.standard_normal((11, 3))},
        "one-pair": {"buckets": np.array([[4]]), "weight": rng.standard_normal((5, 1))},
        "square": {"buckets": clipped(3, 3, 3), "weight": rng.standard_normal((3, 3))},
    }


def relative_bias(buckets: Array, weight: Array) -> Any:
    y = weight[buckets].transpose(2, 0, 1)  # (T, S, H) → (H, T, S)

    def backward(dy: Array) -> Array:
        dweight = np.zeros(weight.shape)  # (n, H)
        np.add.at(dweight, buckets, dy.transpose(1, 2, 0))  # a bucket is read by many pairs
        return dweight

    return y, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(buckets: Array, weight: Array) -> Array:
    return weight[buckets].transpose(2, 0, 1)


def added(dy: Array, buckets: Array, weight: Array) -> Array:
    dW = np.zeros(weight.shape)
    np.add.at(dW, buckets, dy.transpose(1, 2, 0))
    return dW


def kept_one(dy: Array, buckets: Array, weight: Array) -> Array:
    dW = np.zeros(weight.shape)
    dW[buckets] += dy.transpose(1, 2, 0)
    return dW


def averaged(dy: Array, buckets: Array, weight: Array) -> Array:
    count = np.bincount(buckets.ravel(), minlength=len(weight))[:, None]
    return added(dy, buckets, weight) / np.maximum(count, 1)


def axes_by_reshape(dy: Array, buckets: Array, weight: Array) -> Array:
    return added(dy.reshape(*buckets.shape, -1).transpose(2, 0, 1), buckets, weight)


def heads_summed(dy: Array, buckets: Array, weight: Array) -> Array:
    return np.tile(added(dy, buckets, weight).sum(1, keepdims=True), weight.shape[1])


def one_hot(buckets: Array, weight: Array) -> Any:
    O = (buckets[..., None] == np.arange(len(weight))).astype(float)
    return np.einsum("tsn,nh->hts", O, weight), lambda dy: np.einsum("tsn,hts->nh", O, dy)


def bucket_by_bucket(buckets: Array, weight: Array) -> Any:
    def backward(dy: Array) -> Array:
        return np.stack([dy[:, buckets == n].sum(1) for n in range(len(weight))])

    return np.moveaxis(np.take(weight, buckets, 0), -1, 0), backward


EXERCISE = Exercise(
    slug="relative-bias",
    part=1,
    minutes=10,
    needs=("embedding", "attention-weights"),
    idioms=("weight[buckets].transpose(2, 0, 1)", "np.add.at(dW, buckets, g)"),
    equation="y_hts = W[buckets_ts, h]",
    shapes={
        "buckets": "(T, S) int: 0 ... n - 1", "weight": "(n, H)  W", "y": "(H, T, S)", "dy": "(H, T, S)",
    },
    function="relative_bias",
    signature="buckets, weight",
    gradients=("weight",),
    solution=relative_bias,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "kept-one": with_backward(forward, kept_one),
        "averaged": with_backward(forward, averaged),
        "axes-by-reshape": with_backward(forward, axes_by_reshape),
        "heads-summed": with_backward(forward, heads_summed),
        "cotangent-forgotten": with_backward(forward, lambda dy, b, w: added(forward(b, w), b, w)),
    },
    unusual={"one-hot": one_hot, "buckets": bucket_by_bucket},
)  # fmt: skip
