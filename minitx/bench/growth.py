"""How the time of a training step grows: with the length, with the width, with the batch; beside its arithmetic."""
from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from minitx.bench.models import Size
from minitx.bench.sides import Side, in_turn
from minitx.bench.timing import Timing

BASE = Size(8, 128, 128, 4, 2)
SERIES: dict[str, list[Size]] = {  # along each the others stay, except that longer texts are fewer
    "length T": [BASE._replace(B=max(1, 2048 // T), T=T) for T in (128, 256, 512, 1024, 2048, 4096, 8192)],
    "width d": [BASE._replace(d=d) for d in (32, 64, 128, 256, 512)],
    "batch B": [BASE._replace(B=B) for B in (1, 2, 4, 8, 16, 32)],
}


class Row(NamedTuple):
    series: str
    size: Size
    step: Timing

    @property
    def nanoseconds(self) -> float:
        """A token."""
        return 1e9 * self.step.median / (self.size.B * self.size.T)

    @property
    def flops(self) -> float:
        """A token."""
        return self.size.flops() / (self.size.B * self.size.T)


def rows(threads: int, seconds: float) -> Iterator[Row]:
    for name, sizes in SERIES.items():
        with Side("side_minitx", threads) as ours:
            for size in sizes:
                yield Row(name, size, *in_turn([ours], size, seconds))
