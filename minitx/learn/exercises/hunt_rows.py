"""Hunt: the table."""
from __future__ import annotations

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.hunted import MODEL, arguments, hunted

EXERCISE = Exercise(
    slug="hunt-rows",
    needs=("embedding",),
    arguments=arguments,
    starter=hunted(("        np.add.at(dE, ids, dy)", "        dE[ids] += dy")),
    **MODEL,
)
