"""What a wrong array has to do with the right one: a factor with a name, the transpose, a sum that was not taken.

As minitx/checking/diagnosis.py does it for the gradient check, but as data, which becomes a sentence in the learner's
language, and with the sizes called by the symbols of the exercise.
"""
from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from math import sqrt

import numpy as np

from minitx.learn.compare import apart, gaps, not_finite, same, size
from minitx.learn.draw import Draw
from minitx.learn.finding import Finding
from minitx.op import Array

SAME = 1e-6
Arrays = dict[str, Array]
Factors = dict[str, float]  # name → number


def relations(name: str, wrong: Array, right: Array, known: Arrays, factors: Factors) -> list[Finding]:
    """The simplest that holds, as a list of at most one."""
    if wrong.size > 1000 + 100 * right.size or not np.isfinite(right).all():
        return []
    if not np.isfinite(wrong).all():
        return not_finite(name, wrong, right)
    if right.any() and same(wrong, right, SAME):
        return [Finding("almost", {"name": name, "gap": f"{apart(wrong, right) / size(right):.1e}"}, weak=True)]
    guesses = (_nothing, _factor, _transposed, _array, _row) if wrong.shape == right.shape else (_shape,)
    with np.errstate(all="ignore"):
        for guess in guesses:
            if found := next(guess(name, wrong, right, known, factors), None):
                return [found]
    return []


# ---------------------------------------------------------------------- of the whole array


def _nothing(name: str, wrong: Array, right: Array, known: Arrays, factors: Factors) -> Iterator[Finding]:
    if not wrong.any():
        yield Finding("nothing", {"name": name})
    if not right.any():
        yield Finding("should-be-zero", {"name": name})


def _factor(name: str, wrong: Array, right: Array, known: Arrays, factors: Factors) -> Iterator[Finding]:
    c = float((wrong * right).sum() / (right * right).sum())
    if not c or abs(c - 1) <= SAME or not same(wrong, c * right, SAME):
        return
    said = factor_name(c, factors)
    if abs(c + 1) <= SAME:
        yield Finding("factor-sign", {"name": name})
    elif said or wrong.size > 1:
        values = {"name": name, "factor": said, "number": f"{c:.6g}"}
        yield Finding("factor-named" if said else "factor", values, weak=not said)


def factor_name(c: float, factors: Factors) -> str:
    """Every name that the number has: "2", "1/sqrt(d)", "-D"; "" where it has none."""
    fits = []
    for name, n in factors.items():
        of = f"({name})" if " " in name else name
        forms = {name: n, f"1/{of}": 1 / n, f"sqrt({name})": sqrt(n), f"1/sqrt({name})": 1 / sqrt(n)}
        forms |= {f"{of}^2": n * n, f"1/{of}^2": 1 / (n * n)} if n != 1 else {}
        fits += [form for form, value in forms.items() if abs(abs(c) - value) <= SAME * value]
    return " = ".join(("-" if c < 0 else "") + form for form in fits[:2])


def _transposed(name: str, wrong: Array, right: Array, known: Arrays, factors: Factors) -> Iterator[Finding]:
    for order in permutations(range(right.ndim)):
        if right.transpose(order).shape == wrong.shape and same(wrong, right.transpose(order), SAME):
            yield Finding("transposed", {"name": name, "order": list(order)})


def _shape(name: str, wrong: Array, right: Array, known: Arrays, factors: Factors) -> Iterator[Finding]:
    for kept in (True, False):
        for axes in _some(wrong.ndim):
            if same(wrong.sum(axes, keepdims=kept), right, SAME):
                yield Finding("unsummed", {"name": name, "axes": list(axes)})
            if same(wrong.mean(axes, keepdims=kept), right, SAME):
                yield Finding("unaveraged", {"name": name, "axes": list(axes)})
        for axes in _some(right.ndim):
            if same(wrong, right.sum(axes, keepdims=kept), SAME):
                yield Finding("oversummed", {"name": name, "axes": list(axes)})
    yield from _transposed(name, wrong, right, known, factors)
    if wrong.size == right.size and same(wrong.reshape(right.shape), right, SAME):
        yield Finding("reshaped", {"name": name, "right": right.shape})


def _array(name: str, wrong: Array, right: Array, known: Arrays, factors: Factors) -> Iterator[Finding]:
    for other, z in known.items():
        if not np.isfinite(z).all():
            continue
        if same(wrong, z, SAME):
            yield Finding("itself", {"name": name, "other": other})
        if z.shape == right.shape and same(right - wrong, z, SAME):
            yield Finding("term-missing", {"name": name, "other": other})
        if z.shape == right.shape and same(wrong - right, z, SAME):
            yield Finding("term-extra", {"name": name, "other": other})
        if 0 < z.ndim <= right.ndim and all(n in (1, m) for n, m in zip(z.shape[::-1], right.shape[::-1])):
            if same(wrong * z, right, SAME):
                yield Finding("factor-missing", {"name": name, "other": other})
            if same(wrong, right * z, SAME):
                yield Finding("factor-extra", {"name": name, "other": other})


def _row(name: str, wrong: Array, right: Array, known: Arrays, factors: Factors) -> Iterator[Finding]:
    """Right but for one number a row."""
    for axis in range(right.ndim):
        if 1 < right.shape[axis] < right.size:
            power = (right * right).sum(axis, keepdims=True)
            ratio = (wrong * right).sum(axis, keepdims=True) / np.where(power == 0, 1, power)
            if same(wrong, ratio * right, SAME):
                yield Finding("factor-row", {"name": name, "axis": axis}, weak=True)


# ---------------------------------------------------------------------- where, and what else is odd


def remarks(name: str, wrong: Array, made: Draw, argument: str) -> list[Finding]:
    """True things that are no reason: it is wrong only there; its rows should sum to 0."""
    right = made.right[argument]
    if wrong.shape != right.shape or not np.isfinite(wrong).all() or not right.ndim:
        return []
    bad = gaps(wrong, right) > SAME
    found = [f for f in (_only(name, bad, made, argument),) if f]
    if right.shape[-1] > 1:
        scale = np.abs(right).max()
        balanced = np.abs(right.sum(-1)).max() <= 1e-9 * scale * right.shape[-1]
        if balanced and np.abs(wrong.sum(-1)).max() > 1e-6 * scale and np.abs(right).max() > 0:
            found.append(Finding("rows-sum-to-zero", {"name": name}, weak=True))
    return found


def totals(name: str, wrong: Array, right: Array) -> list[Finding]:
    """Of a forward pass whose rows all sum to 1 (or to 0): yours do not, or they do along another axis."""
    if wrong.shape != right.shape or right.ndim < 2 or not (np.isfinite(wrong).all() and np.isfinite(right).all()):
        return []
    for axis in reversed(range(right.ndim)):
        total = right.sum(axis)
        c = float(np.round(total.flat[0], 9))
        if right.shape[axis] < 2 or c not in (0.0, 1.0) or np.abs(total - c).max() > 1e-9:
            continue
        if np.abs(wrong.sum(axis) - c).max() <= SAME:
            return []
        others = [i for i in range(right.ndim) if i != axis and np.abs(wrong.sum(i) - c).max() <= SAME]
        values = {"name": name, "axis": axis, "total": f"{c:g}"}
        if others:
            return [Finding("sums-along", values | {"other": others[0]})]
        return [Finding("sums", values, weak=True)]
    return []


def _only(name: str, bad: Array, made: Draw, argument: str) -> Finding | None:
    if bad.all() or not bad.any():
        return None
    for other, a in made.arguments.items():
        if not isinstance(a, np.ndarray):
            continue
        if a.dtype == bool and a.ndim <= bad.ndim and a.shape == bad.shape[bad.ndim - a.ndim :]:
            masked = np.broadcast_to(~a, bad.shape)
            if not (bad & ~masked).any():
                return Finding("only-masked", {"name": name, "mask": other}, weak=True)
        if a.dtype.kind == "i" and bad.ndim == 2 and a.size and a.min() >= 0 and a.max() < len(bad):
            count = np.bincount(a.ravel(), minlength=len(bad))
            if not bad[count <= 1].any():
                return Finding("only-repeated", {"name": name, "ids": other}, weak=True)
        if a.shape == bad.shape and a.dtype.kind == "f" and bad.sum() > 1:
            for sign, there in (("< 0", a < 0), ("> 0", a > 0), ("== 0", a == 0)):
                if np.array_equal(bad, there):
                    return Finding("only-where", {"name": name, "other": other, "sign": sign}, weak=True)
    if bad.ndim >= 2:
        i, j = np.indices(bad.shape)[-2:]
        for key, there in (("on", i == j), ("above", j > i), ("below", j < i)):
            if np.array_equal(bad, there):
                return Finding(f"only-diagonal-{key}", {"name": name}, weak=True)
    places = np.argwhere(bad)
    for axis in range(bad.ndim):
        if (places[:, axis] == places[0, axis]).all() and bad.shape[axis] > 1:
            values = {"name": name, "index": int(places[0, axis]), "axis": axis}
            return Finding("only-index", values, weak=True)
    return None


def _some(ndim: int) -> Iterator[tuple[int, ...]]:
    """All choices of at least one axis, few axes first."""
    return (axes for n in range(1, ndim + 1) for axes in combinations(range(ndim), n))
