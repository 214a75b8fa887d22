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

What differences cannot judge is said instead: a kink, where the slopes on both sides differ; a place where they do not
settle (`checking/settling.py` tries smaller steps first); a function that answers differently each time. Where the
check fails, `checking/diagnosis.py` looks for a simple relation of wrong and right.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minitx.checking.cotangent import cotangent, norm, stream
from minitx.checking.diagnosis import relation
from minitx.checking.report import GradientError, Report
from minitx.checking.settling import Slopes, settle
from minitx.checking.subject import Subject, model, pairs, subject
from minitx.settings import enable_grad
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
        An option of f that is called tolerance, step, seed, names or wrt has to be bound first (functools.partial).
    seed: of the cotangent, drawn from a stream of its own; or a Generator, which is then used as it is.

    Returns a report that prints as a table. Raises `GradientError` where backward and differences disagree, and
    ValueError or TypeError where there is no telling.
    """
    return _check(subject(f, inputs, options, names, wrt), tolerance, step, stream(seed))


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
    named = pairs(parameters)
    before = [(p, p.numpy(), p.grad) for _, p in named]
    try:
        return _check(model(loss, named), tolerance, step, stream(seed), directions, samples)
    finally:
        for p, x, grad in before:
            p.data, p.grad = x, grad


# ---------------------------------------------------------------------- differences


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
        return 4 * EPSILON / h * sum(norm(g * v) for g, v in zip(self.dy, self.y))


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
    length = norm(*u)

    def move(t: float) -> None:
        for x, o, v in zip(arrays, old, u):
            x[...] = o + t / length * v if t else o

    return [v / length for v in u], move


def differences(
    line: Projection, moves: list[Callable[[float], None]], steps: list[float], a: Array, tolerance: float, least: Array
) -> tuple[Array, dict[int, str], dict[int, str]]:
    """The slope along each movement; what is said of kinks; what is said where there is no telling (there b is a).

    At a kink: the slope between its two sides that is nearest to a, backward's.
    """
    found = [line.slopes(move, h) for move, h in zip(moves, steps)]
    b = np.array([s.both for s in found])
    gap = np.array([s.gap for s in found])
    noise = np.array([100 * line.rounding(h) for h in steps])
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    wrong = ~(np.abs(a - b) <= tolerance * np.maximum(scale, least))  # (NaN is wrong)
    kinks, unsettled = {}, {}
    for j in np.flatnonzero(wrong | (gap > noise) & (gap > 1e-3 * scale)):
        size = max(float(scale), float(least[j]))
        at = partial(line.slopes, moves[j])
        kind, slope, near = settle(at, steps[j], found[j], tolerance, size, float(noise[j]))
        if kind == "smooth":
            b[j] = slope if wrong[j] else b[j]
        elif kind == "unsettled":
            b[j] = a[j]
            unsettled[int(j)] = (
                f"differences do not settle here ({found[j].both:.6g} at h = {steps[j]:.1e}, {near.both:.6g} at h/8): "
                "rescale the input, or pass another step="
            )
        else:
            low, high = sorted((near.left, near.right))
            b[j] = min(max(a[j], low), high) if kind == "kink" else np.nan
            kinks[int(j)] = (
                f"is at a {kind}, slope {near.left:.4g} on the left and {near.right:.4g} on the right; backward says "
                f"{a[j]:.4g}{', as good as any number between' if a[j] == b[j] else ''}"
            )
    return b, kinks, unsettled


# ---------------------------------------------------------------------- the check


def _check(
    s: Subject, tolerance: float, step: float, rng: np.random.Generator, directions: int = 0, samples: int | None = None
) -> Report:
    for name, number in {"tolerance": tolerance, "step": step}.items():
        if not 0 < number < 1:
            raise ValueError(f"{name} is a small positive number, not {number!r}")
    with enable_grad(), np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return _compare(s, tolerance, step, rng, directions, samples)


def _compare(
    s: Subject, tolerance: float, step: float, rng: np.random.Generator, directions: int, samples: int | None
) -> Report:
    y = s.value()
    if not all(np.isfinite(v).all() for v in y):
        raise ValueError(f"gradcheck of {s.title}: the value is not finite at these inputs")
    dy = [cotangent(rng, v.shape, s.arrays) for v in y]
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
    floor = 0.0
    if samples is not None:  # in a model a gradient may be 0, its difference the rounding of a long sum (a key's bias)
        floor = 1e-4 * max((float(np.abs(g).max(initial=0)) for g in said), default=0.0)

    def least(steps: list[float], floor: float) -> Array:
        """Gradients below this size are compared to it, not to themselves."""
        sizes = np.array([max(line.rounding(h) / tolerance, floor) for h in steps])
        if not np.isfinite(sizes).all():
            raise ValueError(f"gradcheck of {s.title}: values so near to overflow cannot be compared; rescale them")
        return sizes

    doubts: list[str] = []
    for n in range(directions):
        u, move = direction(s.arrays, rng)
        a = np.array([sum(float((g * v).sum()) for g, v in zip(said, u))])
        usual = norm(*said) / sum(g.size for g in said) ** 0.5  # of such an a
        scale = least([step], max(usual, floor))
        b, _, odd = differences(line, [move], [step], a, tolerance, scale)
        doubts += [f"direction {n + 1}: {what}" for what in odd.values()]
        report.add(f"direction {n + 1}", (), [()], a, b, scale)

    tried: dict[str, tuple[Array, Array]] = {}  # what backward says, what differences say
    for name, x, g in zip(s.names, s.arrays, said):
        where = list(np.ndindex(x.shape))
        if samples is not None and samples < x.size:
            where = [where[j] for j in sorted(rng.choice(x.size, samples, replace=False))]
        a = np.array([g[i] for i in where]) if g.shape == x.shape else np.full(len(where), np.nan)
        steps = [_step(step, float(x[i])) for i in where]
        scale = least(steps, floor)
        b, kinks, odd = differences(line, [entry(x, i) for i in where], steps, a, tolerance, scale)
        report.add(name, x.shape, where, a, b, scale)
        report.kinks.extend(f"{name}{list(where[j])} {what}" for j, what in kinks.items())
        doubts += [f"{name}{list(where[j])}: {what}" for j, what in odd.items()]
        if not odd:  # (a diagnosis wants all the numbers)
            tried[name] = (g, b.reshape(x.shape)) if len(where) == x.size else (a, b)

    report.kinks.extend(doubts)
    if doubts and report.error <= tolerance:
        raise ValueError(f"gradcheck of {s.title} cannot judge.\n" + "\n".join(doubts[:10]))
    if report.error <= tolerance:
        return report
    known = dict(zip(s.names, s.arrays)) | {f"d{name}": right for name, (_, right) in tried.items()}
    known |= {"y": y[0], "dy": dy[0]} if len(y) == 1 else {}
    raise GradientError(report, {name: relation(*pair, known) for name, pair in tried.items()})


def _step(step: float, x: float) -> float:
    """In proportion to a large x, and so that x + h is exact."""
    h = step * max(1.0, abs(x))
    return (x + h) - x if np.isfinite(x) else step
