"""Hunt: a norm."""
from __future__ import annotations

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.hunted import MODEL, arguments, hunted

EXERCISE = Exercise(
    slug="hunt-norm",
    needs=("layer-norm",),
    arguments=arguments,
    starter=hunted(("        dx = dx - xhat * (dxhat * xhat).mean(-1, keepdims=True)\n", "")),
    **MODEL,
)
