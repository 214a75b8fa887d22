"""Does an implementation of an op pass? By differences, exact values at corners, smaller ops; and the usual check.

The differences of a case are computed once: a mutant changes the backward pass, never the forward pass.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from minitx.audit.case import Case
from minitx.audit.cases import CASES
from minitx.audit.corners import CORNERS
from minitx.checking.subject import Subject, subject
from minitx.gradcheck import STEP, Projection, differences, entry
from minitx.op import Array, Op
from minitx.tensor import Tensor

Rule = Callable[..., Any]


@dataclass(frozen=True)
class Trial:
    """A case, a cotangent, and the gradients that differences give."""

    subject: Subject
    dy: list[Array]
    right: list[Array]
    least: float

    def passes(self, relative: float, absolute: float | None = None) -> bool:
        """By norm; with `absolute` entry by entry, as the usual checks do."""
        for a, b in zip(self.subject.pull(self.dy), self.right):
            if a is None or a.shape != b.shape:
                return False
            scale = max(np.abs(b).max(initial=0), self.least) if absolute is None else np.abs(b) + absolute / relative
            if not np.all(np.abs(a - b) <= relative * scale):
                return False
        return True


def trial(case: Case, usual: bool) -> Trial:
    args, options = case.draw(1)
    if usual:
        names = list(case.implementation.signature.parameters)
        args = tuple(_at_the_start(n, a) for n, a in zip(names, args)) + args[len(names) :]
        options = {n: _at_the_start(n, a) for n, a in options.items()}
    s = subject(case.implementation, args, options, None, None)
    y = s.value()
    rng = np.random.default_rng(2)
    dy = [np.ones(v.shape) if usual else np.asarray(rng.standard_normal(v.shape)) for v in y]
    line = Projection(s.value, y, dy)
    right = []
    for x, a in zip(s.arrays, s.pull(dy)):
        moves = [entry(x, i) for i in np.ndindex(x.shape)]
        said = np.zeros(x.size) if a is None else np.ravel(a)
        least = np.full(x.size, line.rounding(STEP) / 1e-6)
        b, _, doubts = differences(line, moves, [STEP] * x.size, said, 1e-6, least)
        assert not doubts, f"{case}: {doubts}"
        right.append(b.reshape(x.shape))
    return Trial(s, dy, right, line.rounding(STEP) / 1e-6)


def _at_the_start(name: str, a: Any) -> Any:
    """A gain of 1 and a bias of 0, as layers begin."""
    if name == "bias" and isinstance(a, np.ndarray):
        return np.zeros_like(a)
    return np.ones_like(a) if name == "weight" and isinstance(a, np.ndarray) and a.ndim == 1 else a


@cache
def trials(name: str, usual: bool = False) -> list[Trial]:
    return [trial(case, usual) for case in CASES if case.op == name]


def passes_gradient_check(op: Op, rule: Rule) -> bool:
    """At every case: random cotangent, random gain and bias, by norm to 1e-6."""
    tried = trials(op.name)
    with op.using(rule), np.errstate(all="ignore"):
        return _calmly(lambda: all(t.passes(1e-6) for t in tried))


def passes_usual_check(op: Op, rule: Rule) -> bool:
    """At the same cases: y.sum(), gain 1 and bias 0, entry by entry to 1e-3 (and 1e-5 absolute)."""
    tried = trials(op.name, True)
    with op.using(rule), np.errstate(all="ignore"):
        return _calmly(lambda: all(t.passes(1e-3, 1e-5) for t in tried))


def passes_corners(op: Op, rule: Rule) -> bool:
    """The exact values below, and no warning on the way."""
    with op.using(rule), np.errstate(divide="raise", over="raise", invalid="raise"):
        return _calmly(lambda: all(_right(op, *corner) for name, *corner in CORNERS if name == op.name))


def passes_smaller_ops(op: Op, rule: Rule) -> bool:
    """The value is that of a composition of smaller ops: this sees a forward pass that is wrong."""
    for case in CASES:
        if case.op == op.name and case.composition:
            args, options = case.lift(case.draw(), Tensor)
            expected = case.composition(*args, **options)
            with op.using(rule):
                value = op(*args, **options)
            pairs = zip(value, expected) if isinstance(value, tuple) else [(value, expected)]
            if not all(np.allclose(a.data, b.data, rtol=1e-10, atol=1e-12) for a, b in pairs):
                return False
    return True


def _calmly(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except Exception:
        return False  # what fails is caught as well


def _right(op: Op, args: Any, options: Any, dy: Any, right: Any) -> bool:
    args = tuple(np.array(a, np.float64) if isinstance(a, list) else a for a in args)
    value, pullback = op.rule(*args, **options)
    grads = [np.asarray(g) for g in pullback(np.broadcast_to(np.float64(dy), value.shape)) if g is not None]
    return all(np.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(grads, right, strict=True))
