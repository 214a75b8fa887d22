"""Hunt: the loss."""
from __future__ import annotations

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.hunted import MODEL, arguments, hunted

EXERCISE = Exercise(
    slug="hunt-loss",
    needs=("cross-entropy",),
    arguments=arguments,
    starter=hunted(("        return dlogits * dloss / count", "        return dlogits * dloss / targets.size")),
    **MODEL,
)
