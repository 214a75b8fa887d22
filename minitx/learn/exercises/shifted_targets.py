"""What are the targets of a decoder?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "shifted-targets",
    "A B EOS",
    {"unshifted": "BOS A B", "backwards": "B A BOS", "two": "B EOS"},
    needs=("cross-entropy",),
)
