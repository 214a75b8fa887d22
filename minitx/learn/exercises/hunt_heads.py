"""Hunt: heads."""
from __future__ import annotations

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.hunted import MODEL, arguments, hunted

EXERCISE = Exercise(
    slug="hunt-heads",
    needs=("heads", "grouped-query"),
    arguments=arguments,
    starter=hunted(
        ("x.reshape(B, T, heads, HEAD).swapaxes(1, 2)", "x.reshape(B, heads, T, HEAD)"),
        ("x.swapaxes(1, 2).reshape(B, T, heads * HEAD)", "x.reshape(B, T, heads * HEAD)"),
    ),
    **MODEL,
)
