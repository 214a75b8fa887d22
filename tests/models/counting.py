"""What really ran: operations counted by an observer from the shapes of the ops, and numbers that the tape keeps."""
from __future__ import annotations

import numpy as np

from minitx import masks, settings


def forward_flops(op, arrays, options):
    shapes = [getattr(a, "shape", None) for a in arrays]
    if op.name == "linear":
        (*rows, d_in), (d_out, _) = shapes[:2]
        return 2 * int(np.prod(rows)) * d_in * d_out
    if op.name == "expert_linear":
        (rows, d_in), (_, d_out, _) = shapes[:2]
        return 2 * rows * d_in * d_out
    if op.name in ("attention", "tiled_attention"):
        (B, H, T, d), (_, _, S, _), (*_, d_v) = shapes[:3]
        allowed = masks.allowed(options.get("mask"), B, H, T, S, None)
        seen = B * H * T * S if allowed is None else int(np.broadcast_to(allowed, (B, H, T, S)).sum())
        return 2 * seen * (d + d_v)
    if op.name == "linear_attention":
        (B, H, T, d), d_v = shapes[0], shapes[2][-1]
        return 4 * B * H * T * d * d_v
    assert op.name not in ("matmul", "einsum"), "count it"
    return 0


class Counter:
    """An observer of one pass, forward and back."""

    def __init__(self):
        self.forward_total = self.backward_total = 0
        self.made = {}
        self.nodes = []

    def forward(self, op, arrays, options, out, node):
        n = forward_flops(op, arrays, options)
        self.forward_total += n
        self.nodes.append(node)
        if node is not None:
            self.made[node] = n

    def backward(self, node, dy, grads):
        n = self.made[node]
        if node.op.name in ("linear", "expert_linear"):
            x, weight = (node.need[0], node.need[1])
            self.backward_total += n * (bool(x) + bool(weight))
        else:
            self.backward_total += 2 * n


def count(run):
    """run() → a loss; returns the counter after forward and backward."""
    counter = Counter()
    with settings.changed(observer=counter):
        run().backward()
    return counter


def kept(loss, parameters):
    """How many floats stand between the ops of a loss's graph, and in the weights of its attention."""
    skip = {id(base(p._data)) for p in parameters}
    arrays, seen, todo, weights = {}, set(), [loss.node], 0
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op.name == "attention":
            (B, H, T, _), S = node.inputs[0].shape, node.inputs[1].shape[2]
            weights += B * H * T * S
        for t in node.inputs:
            array = base(t._data)
            if id(array) not in skip:
                arrays[id(array)] = array
            if t.node is not None:
                todo.append(t.node)
    return weights + sum(a.size for a in arrays.values())


def base(a):
    while isinstance(a.base, np.ndarray):
        a = a.base
    return a
