"""How many sines, how many cosines, in a table of odd width?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question("odd-width", (3, 2), {"exchanged": (2, 3), "all": (5, 5), "even": (2, 2)}, needs=("positions",))
