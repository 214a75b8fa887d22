"""RMSNorm of two numbers, on paper."""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "norms-by-hand",
    (5**-0.5, 3 * 5**-0.5),
    {"layer-norm": (-1, 1), "sum": (10**-0.5, 3 * 10**-0.5), "by-mean": (0.5, 1.5)},
    needs=("rms-norm",),
)
