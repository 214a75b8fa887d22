"""Hunt: another leak."""
from __future__ import annotations

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.hunted import LENGTH, VOCAB, hunted, make_batch


def arguments(rng: Rng) -> Arguments:
    return {"tokens": rng.integers(0, VOCAB, (3, LENGTH + 1)), "lengths": np.array([LENGTH + 1, 2, LENGTH - 1])}


def adversarial(rng: Rng) -> Cases:
    tokens = rng.integers(0, VOCAB, (2, LENGTH + 1))
    return {"one-token": {"tokens": tokens, "lengths": np.array([1, LENGTH + 1])}}


EXERCISE = Exercise(
    slug="leak-shift",
    part=2,
    minutes=10,
    needs=("leak-mask",),
    shapes={"tokens": "(B, T + 1)", "lengths": "(B,) int", "ids, targets": "(B, T)"},
    function="make_batch",
    signature="tokens, lengths",
    results=("ids", "targets"),
    solution=make_batch,
    mended=hunted(),
    arguments=arguments,
    adversarial=adversarial,
    starter=hunted(
        ("targets = tokens[:, 1:]", "targets = tokens[:, :-1]"),
        ("np.arange(1, LENGTH + 1) >= lengths", "np.arange(LENGTH) >= lengths"),
    ),
)
