"""Which key and value head does query head 3 use?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question("query-head", 0, {"modulo": 1, "own": 3}, needs=("grouped-query",))
