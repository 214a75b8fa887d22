"""How far two ways to the same result are apart: by norm, as everywhere, and what is allowed."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minitx.op import Array
from minitx.tensor import Tensor

SMALL = 1e-3  # what is smaller than this is compared to it


@dataclass(frozen=True)
class Measure:
    """One comparison: the largest relative error and its limit, or why there is none."""

    error: float | None = None  # None: this comparison does not apply
    limit: float = 0.0
    note: str = ""  # what a failure says
    why_not: tuple[str, ...] = ()  # where there is none, in this case or in one of several
    cases: int = 1  # compared
    of: int = 1

    @property
    def passed(self) -> bool | None:
        return None if self.error is None else self.error <= self.limit  # (a NaN does not pass)

    def to_dict(self) -> dict[str, Any]:
        finite = self.error is not None and np.isfinite(self.error)
        number = self.error if finite else None if self.error is None else str(self.error)  # JSON has no infinity
        return {"passed": self.passed, "error": number, "limit": self.limit, "cases": self.cases, "of": self.of,
                "note": self.note, "why_not": list(self.why_not)}  # fmt: skip


def absent(why: str) -> Measure:
    return Measure(why_not=(why,), cases=0)


def worst(measures: Sequence[Measure]) -> Measure:
    """One for several cases: the one that is nearest to its limit, or beyond."""
    some = [m for m in measures if m.error is not None]
    why_not = tuple(dict.fromkeys(why for m in measures for why in m.why_not))
    if not some:
        return Measure(why_not=why_not, cases=0, of=len(measures))
    failed = [m for m in some if not m.passed]
    top = max(failed or some, key=lambda m: np.nan_to_num((m.error or 0.0) / m.limit, nan=np.inf))
    return Measure(top.error, top.limit, top.note, why_not, len(some), len(measures))


def careful(compare: Callable[[], Measure], limit: float) -> Measure:
    """What cannot even be computed fails, and says why."""
    try:
        return compare()
    except Exception as error:
        return Measure(float("inf"), limit, " ".join(f"{type(error).__name__}: {error}".split()))


def distance(a: Array, b: Array, least: float = SMALL) -> float:
    """max|a - b| / max|b|, where a small b counts as `least`; infinities have to stand in the same places."""
    if a.shape != b.shape or (a.dtype.kind == "b") != (b.dtype.kind == "b"):
        return float("inf")
    same = a == b
    if not np.all(same | np.isfinite(a)):
        return float("inf")
    size = np.abs(np.where(np.isfinite(b), b, 0)).max(initial=least)
    apart = np.subtract(np.where(same, 0, a), np.where(same, 0, b), dtype=np.float64)
    return float(np.abs(apart).max(initial=0) / size)


class Pulled(NamedTuple):
    """Values, the cotangents that were sent back, and the gradients that came."""

    values: list[Array]
    dys: list[Array]
    grads: list[Array]

    def apart(self, other: Pulled, small: float = SMALL) -> float:
        """The largest distance of a value or a gradient; gradients below `small` of the largest count as so much."""
        if (len(self.values), len(self.grads)) != (len(other.values), len(other.grads)):
            return float("inf")
        least = small * max((float(np.abs(g).max(initial=0)) for g in other.grads), default=0.0)
        return max(
            *(distance(a, b) for a, b in zip(self.values, other.values)),
            *(distance(a, b, max(SMALL, least)) for a, b in zip(self.grads, other.grads)),
            0.0,
        )

    @property
    def largest(self) -> int:
        return max(a.size for a in [*self.values, *self.grads])


def cotangents(values: Sequence[Array]) -> list[Array]:
    """The same random numbers for the same shapes, whoever asks."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal(v.shape).astype(v.dtype if v.dtype.kind == "f" else np.float64) for v in values]


def pull(outputs: Sequence[Any], leaves: Sequence[Tensor]) -> Pulled:
    """Go back from the outputs (Tensors, or arrays, which have no gradient) to the leaves, whose `grad` is fresh."""
    values = [y.numpy() if isinstance(y, Tensor) else np.asarray(y) for y in outputs]
    dys = cotangents(values)
    for y, dy in zip(outputs, dys):
        if isinstance(y, Tensor) and y.requires_grad:
            y.backward(dy, retain_graph=True)
    return Pulled(values, dys, [np.zeros(t.shape) if t.grad is None else t.grad for t in leaves])


def pull_torch(torch: Any, outputs: Sequence[Any], leaves: Sequence[Any]) -> Pulled:
    """The same in PyTorch."""
    values = [y.detach().numpy() if isinstance(y, torch.Tensor) else np.asarray(y) for y in outputs]
    dys = cotangents(values)
    pairs = [(y, dy) for y, dy in zip(outputs, dys) if isinstance(y, torch.Tensor) and y.requires_grad]
    grads: Any = [None] * len(leaves)
    if pairs and leaves:
        sent = [torch.as_tensor(dy) for _, dy in pairs]
        grads = torch.autograd.grad([y for y, _ in pairs], leaves, sent, allow_unused=True)
    return Pulled(values, dys, [np.zeros(t.shape) if g is None else g.numpy() for t, g in zip(leaves, grads)])
