"""What a wrong gradient has to do with the right one: a factor, a sign, the transpose, a sum that was not taken.

Each guess is checked on all the numbers before it is said. Where none holds, nothing is said.
"""
from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from math import prod, sqrt

import numpy as np

from minitx.op import Array

Known = dict[str, Array]  # the other arrays of the check by name: inputs, their gradients (d + name), y, dy
SAME = 1e-5  # differences are good to about 1e-9, and a relation that holds to five digits is not chance


def relation(wrong: Array, right: Array, known: Known | None = None) -> str | None:
    """The first, and simplest, of the relations below that holds, in words."""
    if _same(wrong, right):
        return None
    known = {name: z for name, z in (known or {}).items() if z is not right and np.isfinite(z).all()}
    if not np.isfinite(right).all():
        return None
    if not np.isfinite(wrong).all():
        return f"backward is not finite at {_entries(~np.isfinite(wrong))}"
    if wrong.shape != right.shape:
        return next(_shape(wrong, right))
    with np.errstate(all="ignore"):
        for guess in (_nothing, _factor, _transpose, _array, _shift, _itself, _except, _ratio, _places):
            if said := next(guess(wrong, right, known), None):
                return said
    return None


def _same(a: Array, b: Array) -> bool:
    """Equal, but for what differences cannot see."""
    return a.shape == b.shape and bool(np.all(np.abs(a - b) <= SAME * np.abs(b).max(initial=0.0)))


def _shape(wrong: Array, right: Array) -> Iterator[str]:
    said = f"backward has shape {wrong.shape} instead of {right.shape}"
    for kept in (True, False):
        for axes in _some(wrong.ndim):
            if _same(wrong.sum(axes, keepdims=kept), right):
                yield f"{said}: summed over axes {axes} it is right, so a sum over broadcast axes is missing"
        for axes in _some(right.ndim):
            if _same(wrong, right.sum(axes, keepdims=kept)):
                yield f"{said}: it is the right one summed over axes {axes}, a sum too many"
    for order in permutations(range(wrong.ndim)):
        if _same(wrong.transpose(order), right):
            yield f"{said}: it is the transpose of the right one (axes {order})"
    if wrong.size == right.size and _same(wrong.reshape(right.shape), right):
        yield f"{said}: reshaped it is right"
    yield said


def _nothing(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    if not wrong.any():
        yield "backward says 0 everywhere: nothing is passed on"
    if not np.abs(right).max(initial=0.0) > SAME * np.abs(wrong).max():
        yield "the right gradient is 0 everywhere"


def _factor(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    c = float((wrong * right).sum() / (right * right).sum())
    if not c or not _same(wrong / c, right):
        return
    names = {2.0: "2", 0.5: "1/2", 3.0: "3", 1 / 3: "1/3"}
    sizes = {n: f"axis {i} of {name}" for name, z in reversed(known.items()) for i, n in enumerate(z.shape)}
    sizes = {z.size: f"all of {name}" for name, z in reversed(known.items())} | sizes
    for n, what in sizes.items():
        if n > 1:
            for value, form in ((n, "{}"), (1 / n, "1/{}"), (sqrt(n), "sqrt({})"), (1 / sqrt(n), "1/sqrt({})")):
                names[value] = f"{form.format(n)}, where {n} is the size of {what}"
            names[n / (n - 1)] = f"{n}/{n - 1}, where {n} is the size of {what}"
            names[(n - 1) / n] = f"{n - 1}/{n}, where {n} is the size of {what}"
            names[sqrt(n / (n - 1))] = f"sqrt({n}/{n - 1}), where {n} is the size of {what}"
    found = [name for value, name in names.items() if abs(abs(c) - value) <= SAME * value]
    said = ["the sign is wrong"] * (c < 0) + [f"the factor is {'-' * (c < 0)}{name}" for name in found[:1]]
    if wrong.size > 1 or found:
        yield f"backward is {c:.6g} times the right one, everywhere" + (f" ({'; '.join(said)})" if said else "")


def _transpose(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    for order in permutations(range(right.ndim)):
        if right.transpose(order).shape == wrong.shape and _same(wrong, right.transpose(order)):
            yield f"backward is the transpose of the right one (axes {order})"


def _array(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    for name, z in known.items():
        if z.shape == right.shape and (_same(right - wrong, z) or _same(wrong - right, z)):
            yield f"the term {name} is {'missing' if _same(right - wrong, z) else 'one too many'}"
        if _broadcasts(z, right):
            if _same(wrong * z, right):
                yield f"the factor {name} is missing"
            if _same(wrong, right * z):
                yield f"the factor {name} is one too many"


def _shift(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    d = wrong - right
    for name, z in {"": np.ones_like(right), **known}.items():
        for axis in range(right.ndim) if z.shape == right.shape else ():
            power = (z * z).sum(axis, keepdims=True)
            number = (d * z).sum(axis, keepdims=True) / np.where(power == 0, 1, power)
            if right.shape[axis] > 1 and _same(number * z, d):
                yield (
                    f"backward minus the right one is {f'{name} times ' * bool(name)}one number all along axis {axis}: "
                    "a term with a sum or mean over this axis is missing or wrong"
                )


def _itself(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    for name, z in known.items():
        if _same(wrong, z):
            yield f"backward is {name} itself"


def _ratio(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    for axes in _some(right.ndim):
        if 1 < prod(right.shape[i] for i in axes) < right.size:
            power = (right * right).sum(axes, keepdims=True)
            ratio = (wrong * right).sum(axes, keepdims=True) / np.where(power == 0, 1, power)
            if _same(wrong, ratio * right):
                yield f"but for a factor that is one number all along axes {axes}, backward is right"


def _except(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    bad = np.abs(wrong - right) > SAME * np.abs(right).max()
    for name, z in known.items():
        if z.shape == bad.shape and bad.sum() > 1:  # (one entry has its sign by chance)
            for sign, there in (("<", z < 0), (">", z > 0), ("==", z == 0)):
                if not bad.all() and np.array_equal(bad, there):
                    yield f"backward is right except where {name} {sign} 0{_there(wrong[bad], right[bad])}"
    if _pattern(bad) or 2 * bad.sum() <= bad.size:
        yield f"backward is right except at {_entries(bad)}{_there(wrong[bad], right[bad])}"


def _places(wrong: Array, right: Array, known: Known) -> Iterator[str]:
    for order in permutations(range(right.ndim)):
        if right.ndim <= 5 and _same(wrong, right.transpose(order).reshape(wrong.shape)):
            yield f"backward is the right one with its axes taken in the order {order} and then only reshaped"
    if _same(np.sort(wrong, None), np.sort(right, None)):
        yield "backward has the right numbers, but in other places"


# ---------------------------------------------------------------------- words


def _there(wrong: Array, right: Array) -> str:
    if not right.any():
        return ", where it should be 0"
    if not wrong.any():
        return ", where it says 0"
    return next((f", where {said}" for said in _factor(wrong, right, {})), "")


def _entries(bad: Array) -> str:
    """The entries that are true: as a pattern where they are one, or the first few of them."""
    places = np.argwhere(bad)
    first = ", ".join(str(place.tolist()) for place in places[:3])
    return _pattern(bad) or f"{first}{' ...' if len(places) > 3 else ''} ({len(places)} of {bad.size} entries)"


def _pattern(bad: Array) -> str | None:
    if bad.all():
        return None
    if bad.ndim >= 2:
        i, j = np.indices(bad.shape)[-2:]
        for there, said in ((i == j, "on"), (j > i, "above"), (j < i, "below")):
            if np.array_equal(bad, there):
                return f"the entries {said} the diagonal"
    places = np.argwhere(bad)
    for axis in range(bad.ndim):
        k = places[0, axis]
        if (places[:, axis] == k).all() and len(places) * bad.shape[axis] == bad.size:
            return f"index {k} of axis {axis}"
    return None


def _some(ndim: int) -> Iterator[tuple[int, ...]]:
    """All choices of at least one axis, few axes first."""
    return (axes for n in range(1, ndim + 1) for axes in combinations(range(ndim), n))


def _broadcasts(z: Array, right: Array) -> bool:
    """Can z be multiplied to `right` without making it larger?"""
    return 0 < z.ndim <= right.ndim and all(n in (1, m) for n, m in zip(z.shape[::-1], right.shape[::-1]))
