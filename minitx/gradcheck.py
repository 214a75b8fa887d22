"""The gradient check: is a backward pass the derivative of its forward pass?

A backward pass turns a cotangent dy into dx = Σ_i dy_i ∂y_i/∂x. The same number can be had without calculus, by trying:

    dx_j  ≈  Σ_i dy_i (y_i(x + h e_j) - y_i(x - h e_j)) / 2h          one entry x_j at a time

Three choices decide whether this finds mistakes:

1. dy is random. With dy = 1, the usual `y.sum().backward()`, Σ softmax(x) is always 1, so its gradient is 0, and many
   wrong backward passes give 0 as well.
2. float64 and a step h of about ε^(1/3). The quotient is wrong by about h² (curvature) and ε/h (rounding); at h = 7e-6
   both are near 1e-10. float32 would leave two or three digits.
3. Whole arrays, compared by norm: max|a - b| / max|b|. Entry by entry, the smallest entries (which are rounding) would
   force a tolerance so loose that wrong ones pass.

What differences cannot judge is said instead: a kink, where the slopes on both sides differ; a function that answers
differently each time. Where the check fails, `checking/diagnosis.py` looks for a simple relation of wrong and right.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minitx.checking.diagnosis import relation
from minitx.checking.report import GradientError, Report
from minitx.checking.subject import Subject, model, subject
from minitx.tensor import Array, Tensor

__all__ = ["gradcheck", "gradcheck_model", "GradientError", "Report"]

EPSILON = float(np.finfo(np.float64).eps)
STEP = 2.0**-17  # about ε^(1/3)


def gradcheck(
    f: Callable[..., Any],
    *inputs: Any,
    tolerance: float = 1e-6,
    step: float = STEP,
    seed: int | np.random.Generator = 0,
    names: Sequence[str] | None = None,
    wrt: str | int | Iterable[str | int] | None = None,
    **options: Any,
) -> Report:
    """Check the gradient of `f(*inputs, **options)` with respect to every float64 array among its arguments.

    f: an Op, whose rule (the definition, or what `using` put in its place) is then called as it stands, so that a
        missing sum shows; or any function of Tensors that returns a Tensor or a tuple of them.
    inputs, options: float64 arrays and Tensors are checked, everything else (ids, masks, numbers) is passed on. The
        check works on copies. names: of the inputs, for the report. wrt: check only these, by name or position.

    Returns a report that prints as a table. Raises `GradientError` where backward and differences disagree.
    """
    return _check(subject(f, inputs, options, names, wrt), tolerance, step, np.random.default_rng(seed))


def gradcheck_model(
    loss: Callable[[], Tensor],
    parameters: Any,
    *,
    tolerance: float = 1e-6,
    step: float = STEP,
    seed: int | np.random.Generator = 0,
    directions: int = 3,
    samples: int = 5,
) -> Report:
    """Check the gradient of `loss()` with respect to all parameters of a model at once.

    parameters: a Module, a dict, or an iterable of Tensors or of (name, Tensor).
    directions: so many random directions move all parameters together; they see every mistake that is not small beside
        the whole gradient. samples: so many entries of each parameter are tried; they say where it is.

    Values and `.grad` of the parameters are afterwards, bit for bit, what they were.
    """
    if hasattr(parameters, "named_parameters"):
        parameters = parameters.named_parameters()
    pairs = parameters.items() if isinstance(parameters, dict) else parameters
    named = [p if isinstance(p, tuple) else (f"parameter {i}", p) for i, p in enumerate(pairs)]
    before = [(p, p.numpy(), p.grad) for _, p in named]
    try:
        return _check(model(loss, named), tolerance, step, np.random.default_rng(seed), directions, samples)
    finally:
        for p, x, grad in before:
            p.data, p.grad = x, grad


# ---------------------------------------------------------------------- differences


class Slopes(NamedTuple):
    """How Σ dy * y rises along one movement of the inputs: on the left, across both sides, on the right."""

    left: float
    both: float
    right: float


class Projection(NamedTuple):
    """Σ dy * y as a function of the inputs: what is left of a function of many outputs once dy is chosen."""

    value: Callable[[], list[Array]]
    y: list[Array]
    dy: list[Array]

    def slopes(self, move: Callable[[float], None], h: float) -> Slopes:
        move(h)
        above = self.value()
        move(-h)
        below = self.value()
        move(0.0)
        return Slopes(self._rise(self.y, below) / h, self._rise(above, below) / (2 * h), self._rise(above, self.y) / h)

    def _rise(self, after: list[Array], before: list[Array]) -> float:
        return sum(float((g * (a - b)).sum()) for g, a, b in zip(self.dy, after, before))

    def rounding(self, h: float) -> float:
        """A slope below this cannot be told from 0: the rounding of y, projected and divided by h."""
        return 4 * EPSILON / h * sum(float(np.linalg.norm(g * v)) for g, v in zip(self.dy, self.y))


def entry(x: Array, i: tuple[int, ...]) -> Callable[[float], None]:
    """The movement of one entry."""
    old = x[i]

    def move(t: float) -> None:
        x[i] = old + t if t else old

    return move


def direction(arrays: list[Array], rng: np.random.Generator) -> tuple[list[Array], Callable[[float], None]]:
    """A random direction of length 1 in the space of all arrays, and the movement along it."""
    old = [x.copy() for x in arrays]
    u = [np.asarray(rng.standard_normal(x.shape)) for x in arrays]
    length = float(np.sqrt(sum((v * v).sum() for v in u)))

    def move(t: float) -> None:
        for x, o, v in zip(arrays, old, u):
            x[...] = o + t / length * v if t else o

    return [v / length for v in u], move


def differences(
    line: Projection, moves: list[Callable[[float], None]], steps: list[float], a: Array, tolerance: float
) -> tuple[Array, dict[int, str]]:
    """The slope along each movement. At a kink: the slope between its two sides that is nearest to a, backward's."""
    found = [line.slopes(move, h) for move, h in zip(moves, steps)]
    b = np.array([s.both for s in found])
    gap = np.array([abs(s.right - s.left) for s in found])  # h * curvature where the function is smooth
    scale = np.abs(b).max(initial=0.0)
    wrong = ~(np.abs(a - b) <= tolerance * scale)  # (NaN is wrong)
    kinks = {}
    noise = 100 * line.rounding(min(steps, default=1.0))
    for j in np.flatnonzero((gap > noise) & (wrong | (gap > 1e-3 * scale))):
        near = line.slopes(moves[j], steps[j] / 8)
        growth = abs(near.right - near.left) / gap[j]  # smooth: 1/8, a kink: 1, a jump: 8
        if growth < 0.5:  # curvature, or a kink so far beside x that the smaller step does not reach it
            b[j] = near.both if abs(near.both - a[j]) < abs(b[j] - a[j]) else b[j]
            continue
        low, high = sorted((near.left, near.right))
        b[j] = min(max(a[j], low), high) if growth < 2 else np.nan
        kinks[int(j)] = (
            f"{'kink' if growth < 2 else 'jump'}, slope {near.left:.4g} on the left and {near.right:.4g} on the right; "
            f"backward says {a[j]:.4g}{', as good as any number between' if a[j] == b[j] else ''}"
        )
    return b, kinks


# ---------------------------------------------------------------------- the check


def _check(
    s: Subject, tolerance: float, step: float, rng: np.random.Generator, directions: int = 0, samples: int | None = None
) -> Report:
    y = s.value()
    if not all(np.isfinite(v).all() for v in y):
        raise ValueError(f"gradcheck of {s.title}: the value is not finite at these inputs")
    dy = [np.asarray(rng.standard_normal(v.shape)) for v in y]
    said = [np.zeros(x.shape) if g is None else np.array(g) for x, g in zip(s.arrays, s.pull(dy))]
    for name, g in zip(s.names, said):
        if g.dtype != np.float64:
            raise TypeError(f"gradcheck of {s.title}: {name} is float64, and backward gives it a gradient in {g.dtype}")
    if not all(np.allclose(v, w, rtol=1e-12, atol=1e-12 * np.abs(v).max(initial=0)) for v, w in zip(y, s.value())):
        raise ValueError(
            f"gradcheck of {s.title}: two calls at the same inputs gave two answers, so differences mean nothing; "
            "let it make its random Generator anew from a fixed seed (or a model with dropout: eval())"
        )
    line = Projection(s.value, y, dy)
    report = Report(s.title, tolerance)
    least = line.rounding(step) / tolerance  # gradients below this size are compared to it, not to themselves
    if samples is not None:  # in a model a gradient may be 0 and its difference the rounding of a long sum (a key's bias)
        least = max(least, 1e-4 * max((float(np.abs(g).max(initial=0)) for g in said), default=0.0))

    for n in range(directions):
        u, move = direction(s.arrays, rng)
        a = np.array([sum(float((g * v).sum()) for g, v in zip(said, u))])
        usual = float(np.sqrt(sum((g * g).sum() for g in said) / sum(g.size for g in said)))  # of such an a
        b, _ = differences(line, [move], [step], a, tolerance)
        report.add(f"direction {n + 1}", (), [()], a, b, max(usual, least))

    tried: dict[str, tuple[Array, Array]] = {}  # what backward says, what differences say
    for name, x, g in zip(s.names, s.arrays, said):
        where = list(np.ndindex(x.shape))
        if samples is not None and samples < x.size:
            where = [where[j] for j in sorted(rng.choice(x.size, samples, replace=False))]
        a = np.array([g[i] for i in where]) if g.shape == x.shape else np.full(len(where), np.nan)
        steps = [step * max(1.0, abs(float(x[i]))) if np.isfinite(x[i]) else step for i in where]
        b, kinks = differences(line, [entry(x, i) for i in where], steps, a, tolerance)
        report.add(name, x.shape, where, a, b, least)
        report.kinks.extend(f"{name}{list(where[j])} is at a {what}" for j, what in kinks.items())
        tried[name] = (g, b.reshape(x.shape)) if len(where) == x.size else (a, b)

    if report.error <= tolerance:
        return report
    known = dict(zip(s.names, s.arrays)) | {f"d{name}": right for name, (_, right) in tried.items()}
    known |= {"y": y[0], "dy": dy[0]} if len(y) == 1 else {}
    raise GradientError(report, {name: relation(*pair, known) for name, pair in tried.items()})
