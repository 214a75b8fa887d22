"""Which architecture is norm_first=False?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "norm-first",
    "post-norm",
    {"pre": "pre-norm", "spelling": "postnorm"},
    needs=("layer-norm", "residual"),
)
