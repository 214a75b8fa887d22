"""What the engine costs: an op on Tensors, forward and backward, less the same rule called by hand."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minitx.bench.timing import Timing, measure, summary
from minitx.op import Op
from minitx.ops import add, layer_norm, linear, mul, relu, reshape, softmax, swapaxes
from minitx.settings import reference
from minitx.tensor import Tensor

CHAIN = 50  # ops between two looks at the clock


class Overhead(NamedTuple):
    """Seconds an op, forward and backward."""

    name: str
    engine: Timing
    rule: Timing

    @property
    def difference(self) -> float:
        return self.engine.median - self.rule.median


def overheads(rounds: int = 200) -> list[Overhead]:
    """One row for each op, at a size at which the arithmetic itself is next to nothing; both sides take turns."""
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> Tensor:
        return Tensor(rng.standard_normal(shape).astype(np.float32), requires_grad=True)

    x, y, w, b = draw(4, 8), draw(4, 8), draw(8, 8), draw(8)
    cases: list[tuple[Op, tuple[Tensor, ...], tuple[Any, ...]]] = [
        (add, (x, y), ()), (mul, (x, y), ()), (relu, (x,), ()), (reshape, (x,), ((4, 8),)), (swapaxes, (x,), (0, 1)),
        (softmax, (x,), ()), (layer_norm, (x, b, b), ()), (linear, (x, w, b), ()),
    ]  # fmt: skip
    with reference():
        return [_overhead(op, inputs, options, rounds) for op, inputs, options in cases]


def _overhead(op: Op, inputs: tuple[Tensor, ...], options: tuple[Any, ...], rounds: int) -> Overhead:
    first, rest = inputs[0], inputs[1:]
    arrays = tuple(t.numpy() for t in inputs)
    node = op(*inputs, *options).node
    assert node is not None
    need = node.need  # every gradient, in the form in which the engine says so
    dy = np.ones(first.shape, np.float32)  # each of these ops keeps the shape (swapaxes after an even number)

    def engine() -> None:
        y = first
        for _ in range(CHAIN):
            y = op(y, *rest, *options)
        y.backward(dy)
        for t in inputs:
            t.grad = None

    def rule() -> None:
        x, backs = arrays[0], []
        for _ in range(CHAIN):
            x, back = op.definition(x, *arrays[1:], *options)
            backs.append(back)
        g: Any = dy
        totals: tuple[Any, ...] = ()  # gradients of the other inputs, which all ops of the chain share
        for back in reversed(backs):
            g = back(g, need) if back.__code__.co_argcount == 2 else back(g)
            if isinstance(g, tuple):
                g, *others = g
                totals = tuple(map(np.add, totals, others)) if totals else tuple(others)

    engine_times: list[float] = []
    rule_times: list[float] = []
    for run in (engine, rule):  # warm up
        run()
    for _ in range(rounds):
        engine_times += measure(engine, 1)
        rule_times += measure(rule, 1)
    return Overhead(op.name, summary([t / CHAIN for t in engine_times]), summary([t / CHAIN for t in rule_times]))


def overhead_lines(rows: list[Overhead]) -> list[str]:
    return ["op          engine    rule   overhead   (µs an op, forward and backward, medians)"] + [
        f"{row.name:10s} {1e6 * row.engine.median:7.2f} {1e6 * row.rule.median:7.2f} {1e6 * row.difference:9.2f}"
        for row in rows
    ]


def gradient_of_a_chain(length: int = 50_000) -> Callable[[], float]:
    """A chain of that many ops, forward and backward; returns the gradient at its beginning, which is 1."""

    def run() -> float:
        x = Tensor([1.0], requires_grad=True)
        y = x
        for _ in range(length):
            y = y + 1.0
        y.backward()
        assert x.grad is not None
        return float(x.grad[0])

    return run
