"""What several ops ask of their arguments, with one wording: indices inside a range, and options with few values."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minitx.op import Array


def integers(values: Any, what: str) -> Array:
    """A copy of an integer array: an op keeps it for backward, and the caller may change the original."""
    array = np.array(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} are integers, not {array.dtype}; cast whole numbers with .astype(np.int64)")
    return array


def inside(indices: Array, size: int, what: str, of: str, counted: Array | None = None, also: str = "") -> None:
    """Raise IndexError at the first index outside 0..size-1 (negative ones do not count from the end here)."""
    outside = (indices < 0) | (indices >= size)
    if counted is not None:
        outside &= counted
    if outside.any():
        place = tuple(int(i) for i in np.argwhere(outside)[0])
        name = f"{what}[{', '.join(map(str, place))}]" if place else what
        raise IndexError(f"{name} is {indices[place]}, but there are {size} {of}, 0 to {size - 1}{also}")


def one_of(value: Any, choices: Sequence[str], what: str) -> None:
    if value not in choices:
        raise ValueError(f"{what} is {' or '.join(map(repr, choices))}, not {value!r}")


def probability(p: float, what: str) -> float:
    if not 0 <= p <= 1:
        raise ValueError(f"{what} is between 0 and 1, not {p!r}")
    return float(p)
