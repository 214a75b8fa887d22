"""Where does a right-padded prompt go on?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "padded-prompt",
    (1, 2),
    {"last": (3, 4), "position-only": (3, 2), "place-only": (1, 4), "same": (1, 1)},
    needs=("causal-padding",),
)
