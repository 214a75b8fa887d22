"""Hunt: a leak."""
from __future__ import annotations

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.hunted import MODEL, arguments, hunted

EXERCISE = Exercise(
    slug="leak-mask",
    needs=("causal-padding",),
    arguments=arguments,
    starter=hunted(("np.tri(T, T, dtype=bool)", "np.tri(T, T, 1, dtype=bool)")),
    **MODEL,
)
