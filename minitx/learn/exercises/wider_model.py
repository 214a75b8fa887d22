"""What has to change with d_model?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question("wider-model", "c", {"free": "a", "divides": "b", "length": "d"}, needs=("heads",))
