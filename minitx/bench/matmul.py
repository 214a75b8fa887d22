"""Matrix products beside NumPy's (OpenBLAS): squares, and the linear layers of `minitx bench train`, there and back."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from minitx.bench.models import SIZES
from minitx.bench.sides import Side, in_turn
from minitx.bench.timing import Timing
from minitx.tensor import Array


class Case(NamedTuple):
    """C (m, n) = A (m, k) B (k, n), where A or B may lie transposed in memory; or with a bias and a GELU behind it."""

    m: int
    k: int
    n: int
    a_turned: bool = False
    b_turned: bool = False
    gelu: bool = False

    def __str__(self) -> str:
        a, b = ("ᵀ" if turned else "" for turned in (self.a_turned, self.b_turned))
        return f"{self.m}x{self.k}{a} {self.k}x{self.n}{b}{' + bias, GELU' if self.gelu else ''}"

    def flops(self) -> int:
        return 2 * self.m * self.k * self.n


def _layer(rows: int, d_in: int, d_out: int) -> list[Case]:
    """y = x Wᵀ, dx = dy W, dW = dyᵀ x"""
    return [Case(rows, d_in, d_out, b_turned=True), Case(rows, d_out, d_in), Case(d_out, rows, d_in, a_turned=True)]


SQUARES = [Case(n, n, n) for n in (64, 128, 256, 512, 1024, 2048)]
LAYERS = [
    case for s in SIZES for d_in, d_out in ((s.d, s.d), (s.d, 4 * s.d), (4 * s.d, s.d))
    for case in _layer(s.B * s.T, d_in, d_out)
]  # fmt: skip
FUSED = [Case(s.B * s.T, s.d, 4 * s.d, b_turned=True, gelu=True) for s in SIZES]


class Row(NamedTuple):
    case: Case
    ours: Timing
    numpy: Timing

    @property
    def ratio(self) -> float:
        """Their time over ours."""
        return self.numpy.median / self.ours.median

    def gflops(self) -> tuple[float, float]:
        ours, numpy = (self.case.flops() / t.median / 1e9 for t in (self.ours, self.numpy))
        return ours, numpy

    def to_dict(self) -> dict[str, Any]:
        times = {"ours": self.ours._asdict(), "numpy": self.numpy._asdict()}
        return {"case": self.case._asdict(), **times, "ratio": self.ratio, "gflops": list(self.gflops())}


def rows(threads: int, seconds: float, cases: Sequence[Case] | None = None) -> Iterator[Row]:
    """A row for each case."""
    with Side("matmul_minitx", threads) as ours, Side("matmul_numpy", threads) as numpy:
        for case in [*SQUARES, *LAYERS, *FUSED] if cases is None else cases:
            yield Row(case, *in_turn([ours, numpy], case, seconds))


def most(threads: int, seconds: float) -> float:
    """GFLOP/s of the fastest of NumPy's large products: what else is measured here can be held against it.

    (NumPy's, since ours need numba.) By the lower quartile of the times, twice: a neighbour who disturbs makes the
    machine look slower than it is.
    """
    cases = [Case(n, n, n) for n in (512, 1024, 2048)] * 2
    with Side("matmul_numpy", threads) as numpy:
        return max(case.flops() / in_turn([numpy], case, seconds)[0].low / 1e9 for case in cases)


def drawn(case: Case) -> tuple[Array, Array, Array]:
    """A, B and a bias."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((case.k, case.m) if case.a_turned else (case.m, case.k)).astype(np.float32)
    b = rng.standard_normal((case.n, case.k) if case.b_turned else (case.k, case.n)).astype(np.float32)
    bias = rng.standard_normal(case.n).astype(np.float32)
    return a.T if case.a_turned else a, b.T if case.b_turned else b, bias
