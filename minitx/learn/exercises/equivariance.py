"""What does attention do with the order of its inputs?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question("equivariance", "b", {"unchanged": "a", "anything": "c"}, needs=("attention", "positions"))
