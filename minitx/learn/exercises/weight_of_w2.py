"""Which shape has the second weight of a feed-forward network?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question("weight-of-w2", (16, 32), {"transposed": (32, 16)}, needs=("linear",))
