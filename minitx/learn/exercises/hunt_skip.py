"""Hunt: a residual."""
from __future__ import annotations

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.hunted import MODEL, arguments, hunted

EXERCISE = Exercise(
    slug="hunt-skip",
    needs=("residual",),
    arguments=arguments,
    starter=hunted(("        dE_read, dP = embedding_back(dx + dh)", "        dE_read, dP = embedding_back(dx)")),
    **MODEL,
)
