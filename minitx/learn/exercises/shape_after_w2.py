"""What shape leaves a feed-forward network?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question("shape-after-w2", (2, 5, 8), {"between": (2, 5, 32), "without-batch": (5, 8)}, needs=("linear",))
