"""The random dy of a check, drawn so that it is nothing else that a backward pass could take for it."""
from __future__ import annotations

import numpy as np

from minitx.tensor import Array


def stream(seed: int | np.random.Generator) -> np.random.Generator:
    """Not `default_rng(seed)` itself: the usual `x = default_rng(0).standard_normal(shape)` would be the cotangent too,
    and dx = 2 x x would pass for dx = 2 x dy."""
    return seed if isinstance(seed, np.random.Generator) else np.random.default_rng([0x6D696E69, seed])


def cotangent(rng: np.random.Generator, shape: tuple[int, ...], inputs: list[Array]) -> Array:
    """A random dy that is no multiple of an input: else a backward with x in place of dy would pass."""
    for _ in range(20):
        dy = np.asarray(rng.standard_normal(shape))
        if not any(_alike(dy, x) for x in inputs):
            break
    return dy


def _alike(dy: Array, x: Array) -> bool:
    if not x.size or x.size != dy.size or not np.isfinite(x).all() or not x.any():
        return False
    u, v = dy.ravel() / norm(dy), x.ravel() / norm(x)
    return bool(dy.item() == x.item()) if x.size == 1 else abs(float((u * v).sum())) > 0.999


def norm(*arrays: Array) -> float:
    """√(Σ squares), in which no square overflows."""
    top = max((float(np.abs(v).max(initial=0.0)) for v in arrays), default=0.0)
    return top * float(np.sqrt(sum(np.square(v / top).sum() for v in arrays))) if 0 < top < np.inf else top
