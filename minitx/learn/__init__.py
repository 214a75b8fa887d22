"""The course of gradient-check exercises: `minitx learn` in a terminal, `check(function)` in a notebook.

    exercise.py, exercises/, shelf.py     what an exercise is, all of them, found by slug
    language.py, words/                   everything a learner reads, in two languages
    ladder.py, odd.py, draw.py            the check, rung by rung        attempt.py   calling what a learner wrote
    diagnosis.py                          why it is wrong: intermediates.py, structure.py, terms.py, bank.py, edits.py
    finding.py, render.py                 what was found, and its words  compare.py, console.py
    runner.py, inside.py                  a process for the learner's file: blocked.py, loudness.py
    flow.py, watch.py, explain.py         the commands: folder.py, stub.py, progress.py, source.py
    train.py, stand_in.py                 a model on the learner's own functions
    grade.py, variants.py                 for teachers
    report.py, naive.py, times.py, walk.py   what the course promises, counted, timed and shown
"""
from __future__ import annotations

from typing import Any

__all__ = ["check"]


def check(function: Any, slug: str | None = None, **options: Any) -> bool:
    """Check a function in this process and print what is found; the function's name says which exercise it answers.

    options: seed, lang ("en", "zh").
    """
    from minitx.learn import notebook

    return notebook.check(function, slug, **options)
