"""Why a gradient is wrong: what can be said of it that holds on all numbers, in two draws, to relative 1e-6.

In this order: the first intermediate of a known name that is wrong; a relation of the whole array (a factor, the
transpose, a sum not taken); which of the solution's terms it has, and how often; the wrong solutions that are known.
Remarks on where it is wrong come last: they are true, but no reason.
"""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minitx.learn import bank
from minitx.learn.attempt import Attempt
from minitx.learn.compare import EXACT
from minitx.learn.draw import Draw, draw
from minitx.learn.exercise import Arguments
from minitx.learn.finding import Finding, Stop
from minitx.learn.intermediates import first_wrong
from minitx.learn.structure import relations, remarks, totals
from minitx.learn.terms import attributed
from minitx.op import Array

SAME = 1e-6
AGAIN = 1_000_003  # added to the seed for the second draw


def diagnose(attempt: Attempt, seed: int, arguments: Arguments | None = None) -> list[Finding]:
    """Reasons for a wrong gradient, the best first; remarks after them. `arguments`: those of the case that failed."""
    draws = [draw(attempt.exercise, seed, arguments), draw(attempt.exercise, seed + AGAIN, arguments)]
    try:
        given = [made.given(attempt) for made in draws]
    except Stop:
        return []
    wrong = [n for n in attempt.exercise.gradients if not draws[0].agrees(n, given[0][n], SAME)]
    if not wrong:
        return almost(draws[0], given[0])
    found = first_wrong(attempt, draws[0])
    if len(found) < 2:  # not yet said what is wrong with it
        reasons = (in_both(lambda i, name=name: reason(draws[i], name, given[i][name])) for name in wrong)  # type: ignore[misc]
        found += next(filter(None, reasons), [])
    explained = any(not f.weak and not f.key.startswith("intermediate") for f in found)
    if arguments is not None:  # what is said has to hold on ordinary numbers too
        draws.append(draw(attempt.exercise, seed))
        given.append(draws[-1].given(attempt))
    found += bank.match(attempt.exercise, draws, given, only_hand_made=explained)
    for name in wrong[:1]:
        found += in_both(lambda i, name=name: remarks(f"d{name}", given[i][name], draws[i], name))  # type: ignore[misc]
    return found


def almost(made: Draw, given: dict[str, Array]) -> list[Finding]:
    """Of gradients that are off by less than what tells one mistake from another: by how much."""
    off = {n: found for n, g in given.items() if (found := relations(f"d{n}", g, made.right[n], {}, {}))}
    return next((found for n, found in off.items() if not made.agrees(n, given[n], EXACT)), [])


def reason(made: Draw, name: str, wrong: Array) -> list[Finding]:
    """One thing that explains all of this gradient."""
    right = made.right[name]
    found = relations(f"d{name}", wrong, right, made.known, made.factors)
    if not found or found[0].weak:
        found = attributed(made, name, wrong) or found
    return found


def diagnose_value(attempt: Attempt, made: Draw, name: str, wrong: Array, right: Array) -> list[Finding]:
    """The same for a forward pass."""
    inputs = {n: a for n, a in made.arguments.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
    found = relations(name, wrong, right, inputs, made.factors)
    if any(f.key == "almost" for f in found):
        return found  # nearer than one mistake is to another
    return found + totals(name, wrong, right) + bank.match_value(attempt, made, name, wrong)


def in_both(find: Callable[[int], list[Finding]]) -> list[Finding]:
    """What is found in the first draw and again in the second."""
    again = find(1)
    return [found for found in find(0) if found in again]
