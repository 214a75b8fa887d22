"""Seven rungs, from a shape to odd inputs; the check stops at the first that fails, and looks there for the reason.

    1 forward shape        2 forward values       3 gradient shapes      4 backward is linear in dy
    5 the slope along one random direction        6 every entry, by central differences in float64
    7 odd inputs: ties, repeats, other memory order, called twice, arguments left as they were
"""
from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitx.gradcheck import STEP, Projection, differences, direction, entry
from minitx.learn import odd
from minitx.learn.attempt import Attempt, shown
from minitx.learn.compare import EXACT, apart, heat, not_finite, same, worst
from minitx.learn.diagnosis import diagnose, diagnose_value
from minitx.learn.draw import Draw, cotangents, draw
from minitx.learn.exercise import Exercise
from minitx.learn.finding import Finding, Stop, Verdict

CLOSE = 1e-6  # of differences, by norm
BUDGET = 2.0  # seconds for differences; a slow function has a random part of its entries tried
REFUSED = 0  # the rung before the first: no function to call
ASKED = 8  # the only rung of an exercise that has its own way to tell


Gradients = dict[str, np.ndarray]


class Fail(Exception):
    """A rung was not climbed."""

    def __init__(self, findings: list[Finding], heat: dict[str, Any] | None = None) -> None:
        super().__init__(findings)
        self.findings, self.heat = findings, heat


def climb(
    exercise: Exercise, function: Any, file: str = "", seed: int = 0, result: Verdict | None = None
) -> Verdict:
    """Check a learner's function (or value) from the lowest rung up. `result` is what is filled in, rung by rung."""
    start = time.perf_counter()
    attempt = Attempt(exercise, function, file)
    result = Verdict(exercise.slug) if result is None else result
    rung = REFUSED
    try:
        with calm():
            steps = rungs(attempt, seed)
            result.rungs = list(steps)
            if exercise.signature is not None:
                attempt.fits()
            for rung, step in steps.items():
                step()
                result.climbed.append(rung)
    except Stop as stop:
        result.failed, result.findings = rung, [stop.finding]
    except Fail as fail:
        result.failed, result.findings, result.heat = rung, fail.findings, fail.heat
    result.seconds = time.perf_counter() - start
    return result


@contextmanager
def calm() -> Iterator[None]:
    """A learner's overflow is a finding, not a warning. ("ignore" would hide a np.seterr(all="ignore").)"""
    with np.errstate(all="call", call=unheard):
        yield


def unheard(*what: Any) -> None:
    """Nobody is told."""


def rungs(attempt: Attempt, seed: int) -> dict[int, Callable[[], None]]:
    """The rungs that this exercise has, by number."""
    if attempt.exercise.judge is not None:
        return {ASKED: lambda: judged(attempt, seed)}
    climber = Climber(attempt, seed)
    steps = {1: climber.shape, 2: climber.values, 3: climber.gradient_shapes, 4: climber.linear}
    steps |= {5: climber.direction, 6: climber.entries, 7: climber.odd}
    return steps if attempt.exercise.backward else {n: step for n, step in steps.items() if n in (1, 2, 7)}


def judged(attempt: Attempt, seed: int) -> None:
    """An exercise that has its own way to tell."""
    exercise = attempt.exercise
    if attempt.function is ... or attempt.function is None:
        raise Stop("no.unwritten", name=exercise.function, file=attempt.file)
    assert exercise.judge is not None

    answers: list[Any] = []

    def function(*args: Any, **options: Any) -> Any:
        answers.clear()
        result = attempt.guarded(lambda: attempt.function(*args, **options), [])
        answers.append(result)
        if result is ... or (isinstance(result, tuple) and any(part is ... for part in result)):
            raise Stop("no.unwritten", name=exercise.function, file=attempt.file)
        return result

    given = function if callable(attempt.function) else attempt.function
    try:
        said = attempt.guarded(exercise.judge, [given, np.random.default_rng([7, seed])])
    except Stop as stop:
        if stop.finding.key == "no.raised" and answers:  # by the judge, not in the learner's file
            raise Stop("no.answer", name=exercise.function, arrived=shown(answers[0])) from stop
        raise
    if said is not None:
        key, values = said
        if key == "shape" and answers and answers[0] is None:
            raise Stop("no.none", name=exercise.function, wanted=attempt.returned())
        raise Fail([Finding("says", {"text": f"@says.{key}", **values})])


class Climber:
    """The rungs for a function that is compared with a solution."""

    def __init__(self, attempt: Attempt, seed: int) -> None:
        self.attempt, self.exercise, self.seed = attempt, attempt.exercise, seed
        self.rng = np.random.default_rng([1, seed])
        self.before = odd.state()
        self.first: Draw = draw(self.exercise, seed)

    # ------------------------------------------------------------------ 1, 2: the value

    def shape(self) -> None:
        values = self.attempt.value(self.first.arguments)
        for name, value, right in zip(self.exercise.results, values, self.first.values):
            if value.shape != right.shape:
                found = diagnose_value(self.attempt, self.first, name, value, right)
                raise Fail([Finding("shape", self.shapes(name, value.shape, right.shape)), *found])

    def shapes(self, name: str, given: tuple[int, ...], right: tuple[int, ...]) -> dict[str, Any]:
        symbol = name[1:] if name not in self.exercise.shapes and name[:1] == "d" else name
        return {"name": name, "given": given, "right": right, "symbols": self.exercise.shapes.get(symbol, "")}

    def values(self) -> None:
        self.compare_values(self.first, "")
        for key, arguments in self.exercise.forward_cases(self.rng).items():
            with during(key):
                self.compare_values(draw(self.exercise, self.seed, arguments), key)

    def compare_values(self, made: Draw, case: str) -> None:
        values = self.attempt.value(made.arguments)
        for name, value, right in zip(self.exercise.results, values, made.values):
            if not same(value, right, EXACT):
                found = [Finding("value-case" if case else "value", {"name": name, "case": f"@cases.{case}"})]
                if value.shape != right.shape:
                    found.append(Finding("shape", self.shapes(name, value.shape, right.shape)))
                found += diagnose_value(self.attempt, made, name, value, right)
                raise Fail(found + self.farthest(found, name, value, right), heat(name, value, right))

    # ------------------------------------------------------------------ 3 to 6: the gradient

    def gradient_shapes(self) -> None:
        made = self.first
        given = made.given(self.attempt)
        for name, g in given.items():
            right = np.shape(made.arguments[name])
            if g.shape != right:
                found = Finding("gradient-shape", {"name": name, "given": g.shape, "right": right})
                raise Fail([found, *diagnose(self.attempt, self.seed)])

    def linear(self) -> None:
        """backward(a dy + b dz) = a backward(dy) + b backward(dz): else something of dy is where x or y was meant."""
        made = self.first
        _, pull = self.attempt.run(made.arguments)
        other = cotangents(self.exercise, self.rng, made)
        one, two = pull(made.dy), pull(other)
        both = pull(_mixed(made.dy, other))
        zero = pull(_mixed(made.dy, other, 0.0, 0.0))
        self.finite(one, two, both, zero)
        for name in self.exercise.gradients:
            scale = max(float(np.abs(g[name]).max(initial=0)) for g in (one, two, both))
            if not apart(both[name], 2.0 * one[name] - 3.0 * two[name]) <= 1e-9 * scale:
                found = Finding("nonlinear", {"name": name})
                if zero[name].any():
                    found = Finding("nonlinear-rest", {"name": name})
                elif same(pull(_mixed(made.dy, other, 2.0, 0.0))[name], one[name], 1e-9):
                    found = Finding("nonlinear-sign", {"name": name})
                elif same(pull(_mixed(made.dy, other, 2.0, 0.0))[name], 4.0 * one[name], 1e-9):
                    found = Finding("nonlinear-square", {"name": name})
                raise Fail([found, *diagnose(self.attempt, self.seed)])

    def finite(self, one: Gradients, two: Gradients, both: Gradients, zero: Gradients) -> None:
        """Numbers first: what is NaN is not linear either, and that would be no help."""
        right = self.first.right
        for given in (one, two, both):
            for name, g in given.items():
                if found := not_finite(f"d{name}", g, right[name]):
                    found += [f for f in diagnose(self.attempt, self.seed) if f not in found]
                    raise Fail(found, heat(f"d{name}", g, right[name]))
        for name, g in zero.items():
            if found := not_finite(f"d{name}", g, right[name]):
                fact = Finding("not-finite-zero", found[0].values, weak=True)
                raise Fail([fact, *diagnose(self.attempt, self.seed)])

    def line(self) -> tuple[Projection, list[np.ndarray], dict[str, np.ndarray]]:
        """Σ dy * y as a function of the arrays with a gradient, which are moved in place; and backward's answer."""
        made = self.first
        arguments = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in made.arguments.items()}
        y, pull = self.attempt.run(arguments)
        given = pull(made.dy)
        dy = list(made.dy) if isinstance(made.dy, tuple) else [made.dy]
        line = Projection(lambda: list(self.attempt.value(arguments)), list(y), dy)
        return line, [arguments[name] for name in self.exercise.gradients], given

    def direction(self) -> None:
        line, arrays, given = self.line()
        u, move = direction(arrays, self.rng)
        said = sum(float((given[n] * v).sum()) for n, v in zip(self.exercise.gradients, u))
        slope = line.slopes(move, STEP).both
        usual = float(np.sqrt(sum(np.square(g).sum() for g in given.values()) / max(sum(g.size for g in u), 1)))
        if not abs(said - slope) <= CLOSE * max(abs(slope), usual) + line.rounding(STEP):
            self.wrong(Finding("direction", {"said": said, "slope": slope}))

    def entries(self) -> None:
        line, arrays, given = self.line()
        start = time.perf_counter()
        line.value()
        each = 2 * (time.perf_counter() - start)
        part = min(1.0, BUDGET / max(each * sum(x.size for x in arrays), 1e-9))
        for name, x in zip(self.exercise.gradients, arrays):
            places = list(np.ndindex(x.shape))
            if part < 1:
                chosen = self.rng.choice(len(places), max(1, int(part * len(places))), replace=False)
                places = [places[i] for i in sorted(chosen)]
            a = np.array([given[name][i] for i in places])
            least = np.full(len(places), line.rounding(STEP) / CLOSE)
            b, _, _ = differences(line, [entry(x, i) for i in places], [STEP] * len(places), a, CLOSE, least)
            scale = max(float(np.abs(b).max(initial=0)), float(least.max(initial=0)))
            if not np.all(np.abs(a - b) <= CLOSE * scale) or not self.first.agrees(name, given[name], EXACT):
                self.wrong(Finding("entries", {"name": name}))

    def wrong(self, found: Finding) -> None:
        """The gradient is wrong: say why, or else where."""
        made = self.first
        given = made.given(self.attempt)
        bad = [n for n in self.exercise.gradients if not made.agrees(n, given[n], EXACT)]
        if not bad:
            return  # it is the solution's, and the differences were at fault
        if fine := [f"d{n}" for n in given if n not in bad]:
            wrong = ", ".join(f"d{n}" for n in bad)
            found = Finding("entries-some", {"wrong": wrong, "fine": ", ".join(fine)})
        pair = f"d{bad[0]}", given[bad[0]], made.right[bad[0]]
        all_found = [found, *diagnose(self.attempt, self.seed)]
        raise Fail(all_found + self.farthest(all_found, *pair), heat(*pair))

    def farthest(self, found: list[Finding], name: str, wrong: np.ndarray, right: np.ndarray) -> list[Finding]:
        """The worst entry, unless it is told already: one that is no number, or a difference in the eighth digit."""
        told = any(f.key in ("not-finite", "almost") and f.values["name"] == name for f in found)
        return [] if told else [worst(name, wrong, right)]

    # ------------------------------------------------------------------ 7: odd inputs

    def odd(self) -> None:
        for key, arguments in self.exercise.adversarial(self.rng).items():
            with during(key):
                made = draw(self.exercise, self.seed, arguments)
                self.compare_values(made, key)
                if self.exercise.backward:
                    self.compare_gradients(made, key)
        odd.check(self.attempt, self.first, self.before)

    def compare_gradients(self, made: Draw, case: str) -> None:
        for name, g in made.given(self.attempt).items():
            if not made.agrees(name, g, EXACT):
                found = [Finding("gradient-case", {"name": name, "case": f"@cases.{case}"})]
                pair = f"d{name}", g, made.right[name]
                found += not_finite(*pair)
                found += [f for f in diagnose(self.attempt, self.seed, made.arguments) if f not in found]
                raise Fail(found + self.farthest(found, *pair), heat(*pair))


@contextmanager
def during(case: str) -> Iterator[None]:
    """What stops the check in a special case is told together with the case."""
    try:
        yield
    except Stop as stop:
        raise Fail([stop.finding, Finding("case", {"case": f"@cases.{case}"})]) from stop


def _mixed(dy: Any, dz: Any, a: float = 2.0, b: float = -3.0) -> Any:
    """a dy + b dz."""
    if isinstance(dy, tuple):
        return tuple(a * u + b * v for u, v in zip(dy, dz))
    return a * dy + b * dz
