"""The wrong solutions that are known: those people write, and those a machine makes of the solution by one edit."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from minitx.learn.attempt import Attempt
from minitx.learn.compare import same
from minitx.learn.draw import Draw, draw
from minitx.learn.edits import described
from minitx.learn.exercise import Exercise
from minitx.learn.finding import Finding
from minitx.op import Array, registry

SAME = 1e-6
Gradients = dict[str, Array]
Run = Callable[[Draw], tuple[Any, Callable[[Any], Gradients]]]


def match(
    exercise: Exercise, draws: list[Draw], given: list[Gradients], only_hand_made: bool = False
) -> list[Finding]:
    """The first wrong solution whose gradients are the learner's, in every draw."""
    for said, run in hand_made(exercise) if only_hand_made else known(exercise):
        if all(_agrees(run, made, gradients) for made, gradients in zip(draws, given)):
            return [said()]
    return []


def match_value(attempt: Attempt, made: Draw, name: str, wrong: Array) -> list[Finding]:
    """The same for a forward pass; machines make no mistakes there.

    The two agree where it is wrong, and on ordinary numbers too, on which one of them may be right.
    """
    exercise, usual = attempt.exercise, draw(attempt.exercise, 1)
    place = exercise.results.index(name)
    ordinary = attempt.value(usual.arguments)[place]
    for said, run in hand_made(exercise):
        try:
            alike = same(values(exercise, run(made)[0])[place], wrong, SAME)
            value = run(usual)[0]
            alike = alike and same(values(exercise, value)[place], ordinary, SAME)
            backward = alike and _right_value(value, usual) and exercise.backward
            if alike and not (backward and not _agrees(run, usual, usual.right)):
                return [said()]
        except Exception:  # a wrong solution may fail in any way
            continue
    return []


def values(exercise: Exercise, value: Any) -> list[Array]:
    return [np.asarray(v) for v in (value if len(exercise.results) > 1 else (value,))]


def _right_value(value: Any, made: Draw) -> bool:
    return all(same(v, right, SAME) for v, right in zip(values(made.exercise, value), made.values))


def known(exercise: Exercise) -> Iterator[tuple[Callable[[], Finding], Run]]:
    """The hand-made ones first: they have a sentence of their own."""
    yield from hand_made(exercise)
    for mutant in machine_made(exercise):
        yield (lambda m=mutant: described(m.edit)), lambda made, m=mutant: run_mutant(exercise, m, made)  # type: ignore[misc]


def hand_made(exercise: Exercise) -> Iterator[tuple[Callable[[], Finding], Run]]:
    for key, function in exercise.mutants.items():
        finding = Finding("mutant", {"text": f"@mutants.{key}"})
        yield (lambda f=finding: f), lambda made, f=function: exercise.solve(made.arguments, f)  # type: ignore[misc]


def machine_made(exercise: Exercise) -> list[Any]:
    """The mutants of the solution's backward pass; not of a hunt, whose one fault is known, and whose file is long."""
    if not exercise.backward or exercise.starter or exercise.judge is not None:
        return []
    return _mutants(exercise.solution or registry[exercise.op])


@cache
def _mutants(solution: Any) -> list[Any]:
    from minitx.audit.mutants import mutants  # here, since it brings the whole audit with it

    try:
        return list(mutants(solution))
    except (ValueError, TypeError, OSError):
        return []  # its source is not at hand


def run_mutant(exercise: Exercise, mutant: Any, made: Draw) -> Any:
    if exercise.solution is not None:
        return exercise.solve(made.arguments, mutant.rule)
    with registry[exercise.op].using(mutant.rule):
        value, pull = exercise.solve(made.arguments)
        gradients = pull(made.dy)
    return value, lambda dy: gradients


def _agrees(run: Run, made: Draw, given: Gradients) -> bool:
    try:
        value, pull = run(made)
        if not _right_value(value, made):
            return False  # a mistake of the forward pass, which the learner's got right
        gradients = pull(made.dy)
        return all(same(gradients[n], g, SAME, made.floor) for n, g in given.items())
    except Exception:
        return False
