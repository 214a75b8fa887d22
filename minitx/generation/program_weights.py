"""The matrices of a model in the order in which kernels/step.py reads them: a copy, made once, for many steps."""
from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from minitx.generation.cache_identity import ModelIdentity
from minitx.kernels import step
from minitx.tensor import Array


class Weights:
    """The matrices of some layers as `step.linear` reads them, all in one piece of memory, at whole cache lines."""

    def __init__(self, layers: list[Any], identity: ModelIdentity) -> None:
        self.parameters, self.versions = identity.parameters, identity.versions  # (it holds more)
        self.matrices: dict[int, Array] = {}
        unique = {id(layer.weight): layer.weight for layer in layers}
        sizes = [step.strips(*p.shape) for p in unique.values()]
        line = 64 // identity.dtype.itemsize
        memory = np.empty(sum(math.prod(size) for size in sizes) + line, identity.dtype)
        start = -address(memory) // identity.dtype.itemsize % line
        for (key, p), size in zip(unique.items(), sizes):
            self.matrices[key] = memory[start : start + math.prod(size)].reshape(size)
            step.lay_out(np.ascontiguousarray(p.data), self.matrices[key])
            start += math.prod(size)

    def of(self, layer: Any) -> Array:
        return self.matrices[id(layer.weight)]


# Kept for a model, not for a session, until the model is gone or its weights have changed.
_weights: WeakKeyDictionary[Any, Weights] = WeakKeyDictionary()


def weights_for(model: Any, layers: list[Any], identity: ModelIdentity) -> Weights:
    known = _weights.get(model)
    if known is None or not identity.same(known):
        known = _weights[model] = Weights(layers, identity)
    return known


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def bits(x: float) -> int:
    """A float64 as an integer: see kernels/pointer.py."""
    return int(np.float64(x).view(np.int64))
