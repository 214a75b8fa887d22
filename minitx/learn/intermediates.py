"""The variables of a learner's function that bear the names of the exercise: the first that is never right."""
from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from minitx.learn.attempt import Attempt
from minitx.learn.compare import same
from minitx.learn.draw import Draw
from minitx.learn.finding import Finding
from minitx.learn.structure import relations
from minitx.op import Array

SAME = 1e-6
Seen = dict[str, list[Array]]


def first_wrong(attempt: Attempt, made: Draw) -> list[Finding]:
    """The first variable with the name of an intermediate that never held the right numbers; and what it held."""
    exercise = attempt.exercise
    if exercise.intermediates is None:
        return []
    right = exercise.intermediates(made.dy, *made.arguments.values())
    seen: Seen = {}
    with watching(attempt, right, seen):
        made.given(attempt)
    fine: list[str] = []
    for name, value in right.items():
        held = [a for a in seen.get(name, []) if a.shape == value.shape]
        if any(same(a, value, SAME) for a in held):
            fine.append(name)
        elif held:
            values = {"name": name, "what": f"@names.{name}", "fine": ", ".join(fine)}
            said = Finding("intermediate-after" if fine else "intermediate", values)
            known = made.known | {n: a for n, a in right.items() if n != name}
            return [said, *relations(name, held[-1], value, known, made.factors)]
    return []


@contextmanager
def watching(attempt: Attempt, names: dict[str, Any], seen: Seen) -> Iterator[None]:
    """Every array that a variable of one of the names holds, line by line, in the learner's own file."""
    code = getattr(attempt.function, "__code__", None)
    files = {attempt.file, code.co_filename if code else ""} - {""}

    def look(frame: FrameType) -> None:
        for name, value in frame.f_locals.items():
            if name in names and isinstance(value, np.ndarray) and value.dtype.kind == "f":
                held = seen.setdefault(name, [])
                if not (held and held[-1].shape == value.shape and np.array_equal(held[-1], value, equal_nan=True)):
                    held.append(value.copy())

    def lines(frame: FrameType, event: str, argument: Any) -> Any:
        look(frame)
        return lines

    def calls(frame: FrameType, event: str, argument: Any) -> Any:
        return lines if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    sys.settrace(calls)
    try:
        yield
    finally:
        sys.settrace(before)
