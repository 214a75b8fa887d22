"""Many short measurements and what is said of them: the median, and how far the middle half spreads."""
from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Timing(NamedTuple):
    """Seconds: the median, and the quartiles as its spread."""

    median: float
    low: float
    high: float

    def ms(self) -> str:
        return f"{1e3 * self.median:.3g} ms ({1e3 * self.low:.3g}-{1e3 * self.high:.3g})"


def summary(seconds: list[float]) -> Timing:
    low, median, high = np.percentile(seconds, [25, 50, 75])
    return Timing(float(median), float(low), float(high))


def measure(run: Callable[[], object], times: int) -> list[float]:
    """The wall-clock seconds of `times` calls."""
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    return seconds
