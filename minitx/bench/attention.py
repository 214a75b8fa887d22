"""Attention side by side: forward, and forward and backward, of queries, keys and values as a model lays them out."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from minitx.bench.sides import Side, in_turn
from minitx.bench.timing import Timing
from minitx.tensor import Array


class Case(NamedTuple):
    """B rows, H heads over H_kv of keys and values, T tokens, width d; who is seen; and whether backward counts."""

    B: int
    H: int
    T: int
    d: int
    H_kv: int = 0  # 0: as many as H
    causal: bool = False
    window: int = 0  # 0: none
    backward: bool = False

    def __str__(self) -> str:
        heads = f"{self.B * self.H}x{self.T}x{self.d}" + (f" {self.H}/{self.H_kv} heads" if self.H_kv else "")
        sees = f"window {self.window}" if self.window else "causal" if self.causal else "full"
        return f"{heads} {sees}, {'forward + backward' if self.backward else 'forward'}"

    def flops(self) -> int:
        """Two products forward, five backward (one of them makes the scores again), of the pairs that are seen."""
        pairs = self.T * self.T
        if self.causal:
            w = min(self.window or self.T, self.T)
            pairs = w * (w + 1) // 2 + (self.T - w) * w
        return 2 * self.B * self.H * pairs * self.d * (7 if self.backward else 2)


SHAPES = [Case(64, 4, 16, 16), Case(8, 8, 128, 32), Case(1, 8, 512, 64), Case(1, 8, 1024, 64), Case(1, 4, 4096, 64)]
CASES = [
    *[shape._replace(causal=causal, backward=backward)
      for shape in SHAPES for causal in (False, True) for backward in (False, True)],
    *[Case(1, 4, 4096, 64, causal=True, window=256, backward=backward) for backward in (False, True)],
    *[Case(1, 8, 1024, 64, H_kv=2, causal=True, backward=backward) for backward in (False, True)],
]  # fmt: skip
LONG = [Case(1, 4, T, 64, causal=True, backward=True) for T in (1024, 2048, 4096, 8192, 16384)]


class Row(NamedTuple):
    case: Case
    ours: Timing
    theirs: Timing | None
    memory: tuple[dict[str, Any], dict[str, Any] | None]  # of each side's process in MB, before and at most

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.theirs.median / self.ours.median

    def to_dict(self) -> dict[str, Any]:
        return {
            "case": self.case._asdict(), "ours": self.ours._asdict(), "ratio": self.ratio,
            "theirs": None if self.theirs is None else self.theirs._asdict(), "memory": list(self.memory),
        }  # fmt: skip


def rows(against: str | None, threads: int, seconds: float, cases: Sequence[Case] | None = None) -> Iterator[Row]:
    """A row for each case, both sides in one process each for all."""
    modules = ["attention_minitx", *([f"attention_{against}"] if against else [])]
    sides = [Side(module, threads) for module in modules]
    try:
        for case in CASES if cases is None else cases:
            yield _row(sides, case, seconds)
    finally:
        for side in sides:
            side.__exit__()


def growth(against: str | None, threads: int, cases: Sequence[Case] = LONG) -> Iterator[Row]:
    """Memory and time against T: fresh processes for each length, for memory at most is all that a system tells."""
    for case in cases:
        yield from rows(against, threads, 0.1, [case])


def _row(sides: list[Side], case: Case, seconds: float) -> Row:
    times = in_turn(sides, case, seconds)
    if len(sides) == 1:
        return Row(case, times[0], None, (sides[0].result, None))
    return Row(case, times[0], times[1], (sides[0].result, sides[1].result))


def drawn(case: Case) -> list[Array]:
    """q, k, v and do, as (B, T, heads, d): where the projections of a model put them."""
    rng = np.random.default_rng(0)
    kv = case.H_kv or case.H
    shapes = [(case.B, case.T, heads, case.d) for heads in (case.H, kv, kv, case.H)]
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
