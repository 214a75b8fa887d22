"""Which of the solution's terms a wrong gradient has, and how often: least squares on the terms."""
from __future__ import annotations

import numpy as np

from minitx.learn.compare import same
from minitx.learn.draw import Draw
from minitx.learn.finding import Finding
from minitx.learn.structure import factor_name
from minitx.op import Array

SAME = 1e-6


def attributed(made: Draw, name: str, wrong: Array) -> list[Finding]:
    """The gradient of `name` as Σ c_i term_i, where that is exact: said of the terms whose c_i is not 1."""
    if made.exercise.terms is None or wrong.shape != made.right[name].shape:
        return []
    terms = made.exercise.terms(made.dy, *made.arguments.values()).get(name, [])
    if len(terms) < 2 or not np.isfinite(wrong).all():
        return []
    c = coefficients(wrong, terms)
    if c is None:
        return []
    groups: list[tuple[float, list[int]]] = []  # a coefficient, and the numbers of the terms that have it
    for i, value in enumerate(c):
        which = next((w for other, w in groups if abs(value - other) <= SAME * max(1, abs(other))), None)
        if which is None:
            groups.append((value, [i + 1]))
        else:
            which.append(i + 1)
    if len(groups) == 1:
        return []  # a factor of the whole, and no matter of terms
    wrong_ones = [(value, which) for value, which in groups if abs(value - 1) > SAME]
    if len(wrong_ones) > 2:
        return []  # true, but no explanation
    found = [_of(name, which, value, made) for value, which in wrong_ones]
    return found + [Finding("terms-else", {"name": f"d{name}"})] * (len(wrong_ones) < len(groups))


def coefficients(wrong: Array, terms: list[Array]) -> list[float] | None:
    """c with Σ c_i term_i = wrong, to relative 1e-6; None where there is none, or more than one."""
    A = np.stack([np.broadcast_to(t, wrong.shape).ravel() for t in terms], axis=1)
    if not np.isfinite(A).all() or not np.abs(A).max(initial=0):
        return None
    c, _, rank, _ = np.linalg.lstsq(A, wrong.ravel(), rcond=1e-9)
    if rank < len(terms) or len(wrong.ravel()) <= len(terms):
        return None
    if not same((A @ c).reshape(wrong.shape), wrong, SAME):
        return None
    return [round(float(v), 7) + 0.0 for v in c]


def _of(name: str, which: list[int], c: float, made: Draw) -> Finding:
    values = {
        "name": f"d{name}",
        "terms": ", ".join(map(str, which)),
        "what": [f"@terms.{name}.{i}" for i in which],
        "factor": "",
    }
    if abs(c) < SAME:
        return Finding("terms-missing", values)
    if abs(c + 1) < SAME:
        return Finding("terms-sign", values)
    said = factor_name(c, made.factors)
    for symbol, n in made.sizes.items():
        if n > 1 and abs(c - n) < SAME * n:
            return Finding("terms-sum-for-mean", values | {"factor": said})
        if n > 1 and abs(c * n - 1) < SAME:
            return Finding("terms-mean-for-sum", values | {"factor": said, "symbol": symbol})
    return Finding("terms-factor", values | {"factor": said or f"{c:.6g}"})
