"""Hunt: shared heads."""
from __future__ import annotations

from minitx.learn.exercise import Exercise
from minitx.learn.exercises.hunted import MODEL, arguments, hunted

EXERCISE = Exercise(
    slug="hunt-group",
    needs=("grouped-query",),
    arguments=arguments,
    starter=hunted(
        ("np.repeat(split(a, KV_HEADS), group, axis=1)", "np.tile(split(a, KV_HEADS), (1, group, 1, 1))"),
        ("d.reshape(B, KV_HEADS, group, T, HEAD).sum(2)", "d.reshape(B, group, KV_HEADS, T, HEAD).sum(1)"),
    ),
    **MODEL,
)
