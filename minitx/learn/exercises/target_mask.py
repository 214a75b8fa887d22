"""The causal mask for a target of length 4."""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "target-mask",
    [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]],
    {
        "future": [[1, 1, 1, 1], [0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]],
        "not-itself": [[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]],
        "opposite": [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]],
        "length": [[1, 0, 0], [1, 1, 0], [1, 1, 1]],
    },
    needs=("causal-padding",),
)
