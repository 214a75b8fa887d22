"""Where one step of differences does not answer: smaller and smaller ones, until they settle, or are seen not to."""
from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

LEVELS = 12  # steps h, h/8, h/64, ...


class Slopes(NamedTuple):
    """How Σ dy * y rises along one movement of the inputs: on the left, across both sides, on the right."""

    left: float
    both: float
    right: float

    @property
    def gap(self) -> float:
        """h * curvature where the function is smooth."""
        return abs(self.right - self.left)


class Verdict(NamedTuple):
    kind: str  # "smooth", "kink", "jump" or "unsettled"
    slope: float  # of a smooth function
    last: Slopes


def settle(
    slopes: Callable[[float], Slopes], h: float, first: Slopes, tolerance: float, size: float, noise: float
) -> Verdict:
    """The slope at x, as the limit of D(h) = (f(x + h) - f(x - h)) / 2h, which does not depend on what backward says.

    first: the slopes at h. size: of the slopes that count; an error is judged beside it. noise: a gap below it is
    rounding, at h, and at h/8 eight times as much.

    D(h) = slope + c h² + ..., so that one more step, h/8, removes the term in h²: (64 D(h/8) - D(h)) / 63. An input
    that is small (log at 1e-6) or a function that varies fast (sin 1e4 x) needs smaller steps than others; rounding,
    which grows as 1/h, ends the search. At a kink D settles too, at the mean of both sides, but their gap stays.
    """
    tried = [first]
    before = float("nan")  # the better estimate of the last round
    for _ in range(1, LEVELS):
        h, noise = h / 8, noise * 8
        tried.append(slopes(h))
        last, now = tried[-2:]
        better = now.both + (now.both - last.both) / 63
        room = tolerance * max(size, abs(now.both))
        if abs(now.both - last.both) <= room or abs(better - before) <= room / 4:
            growth = now.gap / (last.gap or 1.0)  # smooth: 1/8, a kink: 1, a cusp or jump: more
            if now.gap <= noise or growth < 0.5:
                return Verdict("smooth", better, now)
            return Verdict("kink" if growth < 2 else "jump", now.both, now)
        before = better
    jump = all(6 < now.gap / (last.gap or 1.0) < 10 for last, now in pairwise(tried))
    return Verdict("jump" if jump else "unsettled", float("nan"), tried[1])
