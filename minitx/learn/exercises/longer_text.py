"""What does twice the length cost?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "longer-text",
    (4, 2, 2),
    {"all-four": (4, 4, 4), "all-two": (2, 2, 2), "cache-four": (4, 2, 4)},
    needs=("attention", "kv-cache"),
)
