"""Single components side by side: forward and backward, all inputs differentiated (sides.py: how)."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from minitx.bench.sides import Side, in_turn
from minitx.bench.timing import Timing
from minitx.tensor import Array


class Case(NamedTuple):
    """A component at a size: x is (rows, n)."""

    name: str
    rows: int
    n: int

    def __str__(self) -> str:
        return f"{self.name} {self.rows} x {self.n}"

    def arrays(self) -> tuple[Array, Array, Array]:
        """x, a cotangent of its shape, and a target for each row: the same for both sides."""
        rng = np.random.default_rng(0)
        x, dy = (rng.standard_normal((self.rows, self.n), np.float32) for _ in range(2))
        return x, dy, rng.integers(0, self.n, self.rows)


SIZES = [(1024, 64), (4096, 512)]
NAMES = ["layer_norm", "rms_norm", "gelu", "swiglu", "softmax"]
CASES = [Case(name, *size) for name in NAMES for size in SIZES]
CASES += [Case("cross_entropy", rows, V) for V in (32, 32_000) for rows in (1024, 4096)]


class Row(NamedTuple):
    case: Case
    ours: Timing
    theirs: Timing | None

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.theirs.median / self.ours.median

    def to_dict(self) -> dict[str, Any]:
        theirs = None if self.theirs is None else self.theirs._asdict()
        return {"case": self.case._asdict(), "ours": self.ours._asdict(), "theirs": theirs, "ratio": self.ratio}


def rows(against: str | None, threads: int, seconds: float, cases: Sequence[Case] | None = None) -> Iterator[Row]:
    """A row for each case; about so many seconds of each side."""
    for case in CASES if cases is None else cases:
        with Side("components_minitx", threads) as ours:
            if against is None:
                (mine,) = in_turn([ours], case, seconds)
                yield Row(case, mine, None)
                continue
            with Side(f"components_{against}", threads) as theirs:
                mine, other = in_turn([ours, theirs], case, seconds)
                yield Row(case, mine, other)
