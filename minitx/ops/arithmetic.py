from __future__ import annotations

from minitx.op import Array, Forward, op
from minitx.tensor import Tensor


@op(broadcasts=True)
def add(x: Array, y: Array) -> Forward:
    return x + y, lambda dy: (dy, dy)

@op(broadcasts=True)
def mul(x: Array, y: Array) -> Forward:
    def backward(dy: Array, need):
        return dy * y if need.x else None, dy * x if need.y else None
    return x * y, backward

Tensor.__add__ = lambda x, y: add(x, y)
Tensor.__mul__ = lambda x, y: mul(x, y)
