"""Small pieces that the wrong and the unusual answers of several exercises are made of."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.op import Array


def with_backward(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """An answer made of forward(*arguments) and backward(dy, *arguments): most wrong ones differ in the latter only."""

    def function(*arguments: Any) -> Any:
        return forward(*arguments), lambda dy: backward(dy, *arguments)

    return function


def fit(g: Array, shape: tuple[int, ...]) -> Any:
    """The gradient of an array of this shape that was broadcast to g's."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    repeated = tuple(i for i, (n, m) in enumerate(zip(shape, g.shape)) if n == 1 and m != 1)
    return g.sum(axis=repeated, keepdims=True)


def collect(g: Array, shape: tuple[int, ...]) -> Array:
    """The same as `fit`, by asking of every entry of g where it came from."""
    count = int(np.prod(shape))
    source = np.broadcast_to(np.arange(count).reshape(shape), g.shape)
    return np.bincount(source.ravel(), g.ravel(), count).reshape(shape)


def softmax(z: Array) -> Any:
    """Along the last axis; a row of nothing but -inf becomes zeros."""
    top = z.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(z - np.where(np.isfinite(top), top, 0))
    total = e.sum(-1, keepdims=True)
    return e / np.where(total == 0, 1, total)


def softmax_backward(w: Array, dw: Array) -> Any:
    return w * (dw - (dw * w).sum(-1, keepdims=True))


def sigmoid(x: Array) -> Any:
    r = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, r) / (1 + r)


def apart(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Numbers of both signs, no two of them nearer than 0.1: away from ties."""
    size = int(np.prod(shape))
    return (0.1 * (rng.permutation(size) - size // 2) + 0.04).reshape(shape)
