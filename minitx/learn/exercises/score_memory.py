"""How large are the scores of one attention layer?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "score-memory",
    256,
    {"one-head": 32, "four-bytes": 512, "numbers": 134217728, "bytes": 268435456},
    needs=("attention",),
)
