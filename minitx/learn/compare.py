"""Two arrays side by side: equal or not, where the difference is worst, and a picture of it."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.finding import Finding
from minitx.op import Array

LEVELS = (1e-6, 1e-3, 1e-1, 1.0)  # of the picture: relative to the largest right entry
ROWS, COLUMNS = 20, 60
EXACT = 1e-8  # of another way to the same numbers


def apart(a: Array, b: Array) -> float:
    """max|a - b|; NaN or infinite entries in the same places are no difference."""
    if a.shape != b.shape:
        return np.inf
    if a.dtype.kind in "biu" or b.dtype.kind in "biu":
        a, b = a.astype(float), b.astype(float)
    alike = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        gaps = np.where(alike, 0.0, np.abs(a - b))
    return float(np.where(np.isnan(gaps), np.inf, gaps).max(initial=0.0))


def size(b: Array) -> float:
    """The largest finite entry."""
    return float(np.abs(b[np.isfinite(b)]).max(initial=0.0))


def same(a: Array, b: Array, tolerance: float, floor: float = 1e-12) -> bool:
    """Equal by norm; where b is (almost) 0, relative to the floor."""
    return a.shape == b.shape and apart(a, b) <= tolerance * max(size(b), floor)


def gaps(wrong: Array, right: Array) -> Array:
    """The difference of every entry, relative to the largest right one."""
    with np.errstate(all="ignore"):
        gap = np.where(wrong == right, 0.0, np.abs(wrong - right)) / max(size(right), 1e-12)
    both = np.isnan(wrong) & np.isnan(right)
    result: Array = np.where(both, 0.0, np.where(np.isnan(gap), np.inf, gap))
    return result


def not_finite(name: str, wrong: Array, right: Array) -> list[Finding]:
    """The entries that are NaN or infinite where numbers belong: how many, and the first."""
    bad = ~np.isfinite(wrong)
    bad &= np.isfinite(right) if wrong.shape == right.shape else np.isfinite(right).all()
    if not bad.any():
        return []
    place = [int(i) for i in np.argwhere(bad)[0]]
    values = {"name": name, "n": int(bad.sum()), "all": wrong.size, "place": str(place) if place else ""}
    return [Finding("not-finite", values | {"number": f"{wrong[tuple(place)]}"}, weak=True)]


def worst(name: str, wrong: Array, right: Array) -> Finding:
    """The entry that is farthest off, with both numbers."""
    if wrong.shape != right.shape:
        return Finding("shape-plain", {"name": name, "given": wrong.shape, "right": right.shape})
    gap = gaps(wrong, right)
    place = np.unravel_index(int(gap.argmax()), gap.shape) if gap.ndim else ()
    bad = int((gap > EXACT).sum())
    values = {"name": name, "place": str([int(i) for i in place]) if place else "", "n": bad, "all": gap.size}
    return Finding("worst", values | {"given": float(wrong[place]), "right": float(right[place])}, weak=True)


def heat(name: str, wrong: Array, right: Array) -> dict[str, Any] | None:
    """A matrix of levels 0 to 4, cut out around the worst entry where the array is large or has more than two axes."""
    if wrong.shape != right.shape or not right.ndim or right.size < 2:
        return None
    gap = gaps(wrong, right)
    place = np.unravel_index(int(gap.argmax()), gap.shape)
    if gap.max() <= LEVELS[0]:
        return None  # nothing that the picture could show
    table = gap[place[:-2]] if gap.ndim >= 2 else gap[None]
    levels = np.searchsorted(np.array(LEVELS), table, side="right")
    part = levels[:ROWS, :COLUMNS]
    return {
        "name": name,
        "slice": [int(i) for i in place[:-2]],
        "rows": part.tolist(),
        "cut": part.shape != levels.shape,
    }
