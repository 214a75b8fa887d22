"""NumPy's side of a matrix product."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitx.bench.matmul import Case, drawn


def build(what: Sequence[Any], threads: int) -> Callable[[], None]:
    case = Case(*what)
    a, b, bias = drawn(case)
    c, u = np.empty((case.m, case.n), np.float32), np.empty((case.m, case.n), np.float32)
    rate = np.float32(0.7978845608028654)  # √(2/π)

    def run() -> None:
        np.matmul(a, b, out=c)
        if case.gelu:  # c = ½ c (1 + tanh(rate (c + 0.044715 c³))), in place, as one would write it for speed
            np.add(c, bias, out=c)
            np.multiply(c, c, out=u)
            np.multiply(u, np.float32(0.044715) * rate, out=u)
            np.add(u, rate, out=u)
            np.multiply(u, c, out=u)
            np.tanh(u, out=u)
            np.add(u, np.float32(1), out=u)
            np.multiply(u, np.float32(0.5), out=u)
            np.multiply(c, u, out=c)

    return run
