"""What ops, layers and optimizers ask of their arguments, with one wording: numbers, choices, indices in a range."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minitx.op import Array
from minitx.tensor import Tensor


def integers(values: Any, what: str) -> Array:
    """A copy of an integer array (or Tensor): an op keeps it for backward, and the caller may change the original."""
    array = np.array(values.numpy() if isinstance(values, Tensor) else values)
    if array.size == 0 and isinstance(values, list | tuple):
        return array.astype(np.int64)  # NumPy takes [] for floats
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


def number(value: Any, what: str) -> float:
    """A Python float of any real number. True, text, None and arrays are none."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{what} is a number, not {value!r}")
    return float(value)


def probability(p: Any, what: str) -> float:
    value = number(p, what)
    if not 0 <= value <= 1:
        raise ValueError(f"{what} is between 0 and 1, not {p!r}")
    return value


def is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def whole(value: Any, what: str, least: int = 1) -> int:
    """A Python int of a whole number from `least` on: a size, a count."""
    if not is_whole(value):
        raise TypeError(f"{what} is a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{what} is at least {least}, not {value}")
    return int(value)


def padding_row(padding_idx: Any, rows: int) -> int | None:
    """The id whose row of a table gets no gradient, or None."""
    if padding_idx is not None and not (is_whole(padding_idx) and 0 <= padding_idx < rows):
        raise ValueError(f"embedding: padding_idx is an id from 0 to {rows - 1}, not {padding_idx!r}")
    return None if padding_idx is None else int(padding_idx)


def generator(rng: Any, what: str) -> np.random.Generator:
    if not hasattr(rng, "integers"):  # (np.random itself and RandomState have none)
        raise TypeError(f"{what}: rng is a numpy Generator, np.random.default_rng(0), not {rng!r}")
    return rng  # type: ignore[no-any-return]


def axes(axis: Any) -> Any:
    """What may be given as axes, a list of them as a tuple: an op keeps it, and the caller may change a list."""
    return tuple(axis) if isinstance(axis, list) else axis
