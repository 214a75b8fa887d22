"""Training steps side by side, at several sizes, and how long our side takes to its first step (sides.py: how)."""
from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from minitx.bench.models import MODELS, Size
from minitx.bench.sides import Side, in_turn
from minitx.bench.timing import Timing


class Row(NamedTuple):
    """One model: our step, theirs, and what our side did before its first step was done."""

    size: Size
    ours: Timing
    theirs: Timing | None
    first: float  # seconds from the start of our process to the end of its first step
    after: tuple[dict[str, Any], dict[str, Any] | None]  # of each side after its last step: loss, and memory in MB

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.theirs.median / self.ours.median


def rows(
    against: str | None, threads: int, seconds: float = 8.0, sizes: Sequence[Size] | None = None
) -> Iterator[Row]:
    """A row for each model; about so many seconds of steps on each side."""
    for size in MODELS if sizes is None else sizes:
        with Side("side_minitx", threads) as ours:
            ours.run(size, 1)
            first = time.perf_counter() - ours.began
            if against is None:
                (mine,) = in_turn([ours], size, seconds)
                yield Row(size, mine, None, first, (ours.result, None))
                continue
            with Side(f"side_{against}", threads) as theirs:
                mine, other = in_turn([ours, theirs], size, seconds)
                yield Row(size, mine, other, first, (ours.result, theirs.result))


def as_dict(row: Row, most: float) -> dict[str, Any]:
    """`most`: the GFLOP/s of the fastest matrix product on this machine."""
    return {
        "size": row.size._asdict(),
        "ours": row.ours._asdict(),
        "theirs": None if row.theirs is None else row.theirs._asdict(),
        "ratio": row.ratio,
        "gflops": row.size.flops() / row.ours.median / 1e9,
        "most_gflops": most,
        "first_step_seconds": row.first,
        "after": list(row.after),
    }
