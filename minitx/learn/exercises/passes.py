"""How often does the network run when it generates with a cache?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "passes",
    (4, 8),
    {"one-more": (5, 9), "no-cache": (4, 26), "prompt-forgotten": (4, 4), "one-by-one": (8, 8)},
    needs=("kv-cache",),
)
