"""How weights start. Each initialiser is a function (rng, shape) → float64 array; `start` casts it to float32."""
from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from minitx.ops.checks import generator, whole
from minitx.tensor import Array

Init = Callable[[np.random.Generator, tuple[int, int]], Array]


def start(layer: str, init: Init, rng: np.random.Generator, **sizes: int) -> Array:
    """The first value of a weight, float32, of the two sizes; what cannot be is refused under the names of `layer`."""
    generator(rng, layer)
    rows, columns = (whole(size, f"{layer}: {name}") for name, size in sizes.items())
    weight = np.asarray(init(rng, (rows, columns)), np.float32)
    if weight.shape != (rows, columns):
        raise ValueError(f"{layer}: init(rng, {(rows, columns)}) gave an array of shape {weight.shape}")
    return weight


def xavier_uniform(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    """U(-a, a) with a = √(6 / (fan_in + fan_out)): keeps the variance of values and of gradients about equal.

    source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural networks", eq. 16.
    """
    bound = math.sqrt(6 / sum(shape))
    return rng.uniform(-bound, bound, shape)


def normal(std: float) -> Init:
    """N(0, std²).

    source: for std = 0.02, Radford et al. 2018, "Improving language understanding by generative pre-training", 4.1.
    """
    return lambda rng, shape: std * rng.standard_normal(shape)
