"""What the course promises of every exercise, counted.

    python -m minitx.learn.report [SLUG ...]        (-v: the mutants that are not named)

stub       fails at the first check, with a sentence that says what to do
solution   passes on so many seeds; and the unusual ones too
mutants    wrong versions: by hand, and by one edit of the solution's backward pass (those that never differ from it on
           this exercise's arguments, such as edits of a branch it does not take, are left out)
rejected   by the ladder
named      with a reason: an intermediate, a relation, a term, or the mistake itself
alone      of these, named also if no machine had made the same edit before
wrong      with a reason that does not hold on other numbers, or as another mistake than it is
naive      accepted by y.sum() at a gain of 1 and a bias of 0
"""
from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from minitx.learn import bank, naive
from minitx.learn.draw import draw
from minitx.learn.exercise import Exercise, Solution
from minitx.learn.finding import FACTS, Finding, Verdict
from minitx.learn.ladder import calm, climb
from minitx.learn.shelf import every, exercise
from minitx.learn.stub import stub
from minitx.op import registry

SEEDS = 20
LEGEND = "stub" + (__doc__ or "").partition("\n\nstub")[2]


@dataclass
class Row:
    slug: str
    stub: bool = False
    passes: int = 0
    unusual: int = 0  # correct solutions by other ways that pass
    unusual_all: int = 0
    mutants: int = 0
    rejected: int = 0
    named: int = 0
    reasoned: int = 0
    wrong: int = 0
    naive: int = 0
    unnamed: list[str] = field(default_factory=list)  # what -v shows


def row(wanted: Exercise, seeds: int = SEEDS, every_nth: int = 1) -> Row:
    """Count for one exercise; with `every_nth` only a sample of the mutants, and what takes long is left out."""
    found = Row(wanted.slug, stub=stub_fails(wanted))
    solution = wanted.answer if wanted.signature is None else as_function(wanted)
    found.passes = sum(climb(wanted, solution, seed=seed).passed for seed in range(seeds))
    found.unusual_all = len(wanted.unusual)
    found.unusual = sum(climb(wanted, f).passed for f in wanted.unusual.values())
    for name, mutant, file in islice(wrong_versions(wanted), 0, None, every_nth):
        result = climb(wanted, mutant, file)
        found.mutants += 1
        found.rejected += not result.passed
        named = names(result)
        found.named += named
        found.reasoned += named and any(not f.weak and not f.key.startswith("edit-") for f in reasons(result))
        if every_nth > 1:
            continue
        found.wrong += named and (misnamed(wanted, name, result) or not holds(wanted, mutant, file, result))
        if wanted.judge is None and wanted.backward:
            found.naive += naive.accepts(wanted, mutant, draw(wanted, 0))
        if result.passed or not named:
            found.unnamed.append(f"{'accepted' if result.passed else 'unnamed'}: {name}")
    return found


def stub_fails(wanted: Exercise) -> bool:
    """A fresh file does not pass, and the first message names the place to write (a hunt's file fails a rung)."""
    for lang in ("en", "zh"):
        space: dict[str, Any] = {}
        exec(compile(stub(wanted, lang), f"<stub of {wanted.slug}>", "exec", dont_inherit=True), space)
        result = climb(wanted, space[wanted.function])
        if result.passed or not (wanted.starter or result.findings[0].key == "no.unwritten"):
            return False
    return True


def as_function(wanted: Exercise, rule: Solution | None = None) -> Solution:
    """The solution (or a mutant of it) as a function with the learner's signature."""
    if wanted.solution is not None:
        return rule or wanted.solution
    op = registry[wanted.op]

    def function(*arguments: Any) -> Any:
        given = dict(zip(wanted.parameters, arguments))
        if rule is None:
            value, pullback = op.rule(**given)
        else:
            with op.using(rule):
                value, pullback = op.rule(**given)
        if not wanted.backward:
            return value
        return value, lambda dy: tuple(pullback(dy)[op.slot[name]] for name in wanted.gradients)

    return function


def wrong_versions(wanted: Exercise) -> Iterator[tuple[str, Solution, str]]:
    """Name, function and the file its lines are in."""
    for key, f in wanted.mutants.items():
        yield key, f, f.__code__.co_filename if callable(f) else ""
    if wanted.judge is not None:
        return
    for mutant in bank.machine_made(wanted):
        f = as_function(wanted, mutant.rule)
        if not idle(wanted, f):
            yield mutant.edit, f, f"<mutant of {mutant.name}>"


def idle(wanted: Exercise, function: Solution) -> bool:
    """Is it the same function on all that this exercise can ask, over several seeds?"""
    for seed in range(3):
        rng = np.random.default_rng([11, seed])
        cases = [wanted.arguments(rng), *wanted.forward_cases(rng).values(), *wanted.adversarial(rng).values()]
        for arguments in cases:
            made = draw(wanted, seed, arguments)
            try:
                gradients = wanted.solve(arguments, function)[1](made.dy)
            except Exception:
                return False
            if not all(made.agrees(n, gradients[n], 1e-12) for n in wanted.gradients):
                return False
    return True


def names(result: Verdict) -> bool:
    """Is there a reason, not only the fact?"""
    own = any(found.key == "says" and found.values["text"] != "@says.other" for found in result.findings)
    return not result.passed and (result.explained or own)


def misnamed(wanted: Exercise, name: str, result: Verdict) -> bool:
    """Is one hand-made mistake taken for another?"""
    texts = {found.values["text"] for found in result.findings if found.key == "mutant"}
    return bool(texts) and name in wanted.mutants and f"@mutants.{name}" not in texts


def holds(wanted: Exercise, function: Solution, file: str, result: Verdict) -> bool:
    """Is the same said on other numbers?"""
    for seed in (101, 102):
        again = climb(wanted, function, file, seed)
        if not said(result) <= said(again):
            return False
    return True


def said(result: Verdict) -> set[str]:
    """The reasons, without the numbers that change from draw to draw."""
    return {_key(found) for found in result.findings if not found.weak and not found.key.startswith(("no.", "odd."))}


def reasons(result: Verdict) -> list[Finding]:
    """The findings that are no mere fact."""
    return [found for found in result.findings if found.key not in FACTS or found.key == "says"]


def _key(found: Finding) -> str:
    drawn = ("n", "all", "place", "given", "right")
    kept = {n: v for n, v in found.values.items() if n not in drawn and not isinstance(v, float)}
    return f"{found.key} {kept}"


def table(rows: Iterator[Row], out: Callable[[str], Any] = print, verbose: bool = False) -> Row:
    """Printed row by row; returns the sums."""
    out(f"{'exercise':22}{'stub':>6}{'solution':>10}{'unusual':>9}{'mutants':>9}{'rejected':>10}"
        f"{'named':>7}{'alone':>7}{'wrong':>7}{'naive':>7}")  # fmt: skip
    total = Row("all", stub=True)
    for r in rows:
        out(line(r))
        if verbose:
            for text in r.unnamed:
                out(f"      {text}")
        for name in ("passes", "unusual", "unusual_all", "mutants", "rejected", "named", "reasoned", "wrong", "naive"):
            setattr(total, name, getattr(total, name) + getattr(r, name))
        total.stub &= r.stub
    out(line(total))
    return total


def line(r: Row) -> str:
    return (
        f"{r.slug:22}{'fails' if r.stub else 'PASSES':>6}{r.passes:>10}{f'{r.unusual}/{r.unusual_all}':>9}"
        f"{r.mutants:>9}{r.rejected:>10}{r.named:>7}{r.reasoned:>7}{r.wrong:>7}{r.naive:>7}"
    )


def main(argv: list[str]) -> int:
    verbose = "-v" in argv
    chosen = [exercise(slug) for slug in argv if slug != "-v"] or every()
    print(LEGEND)
    with calm(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table((row(wanted) for wanted in chosen), verbose=verbose)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
