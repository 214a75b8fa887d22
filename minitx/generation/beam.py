"""Beam search: the answer with the best score, as far as a beam of K hypotheses sees it.

    score(y) = log p(y | x) / n^α         n ids, the EOS among them; α is length_penalty

    α = 0   the most probable answer, which is often a short one: every further id makes an answer less probable
    α > 0   longer answers are favoured (α = 1: by the mean log-probability of an id)
    α < 0   shorter ones

At each step every hypothesis of the beam is extended by every id, and of all these extensions the K most probable go
on. One that ends with an EOS is finished, and its place is free again at the next step. K = 1 is greedy decoding, and a
beam that holds everything is exhaustive search.

When may the search end? Not when K are finished, nor when the best live hypothesis is behind: with α > 0 it may catch
up. A hypothesis with log-probability s <= 0 after t ids can only lose log-probability. If it ends after n ids, its
score is at most s / n^α, and over the n that are possible, t + 1 ... N, this is largest

    for α >= 0 at n = N     (the most ids there may be)
    for α < 0  at n = t + 1

The search ends when no live hypothesis has a bound above the worst of the answers asked for: no better one is missed.

source: the score is of Wu et al. 2016 (section 7) in its simpler form; the bound as in Huang et al. 2017 for α = 0.
goes wrong: ending at the first finished hypothesis, or as soon as K are, returns answers that are too short.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from minitx.generation.filters import Filter, log_softmax, number, whole
from minitx.generation.sampling import NothingLeft, checked, filtered
from minitx.generation.timings import Timings
from minitx.tensor import Array


@dataclass(frozen=True)
class Beam:
    width: int
    length_penalty: float = 0.0
    filters: Sequence[Filter] = ()  # constraints; what is forbidden has probability 0, the others share its part

    def __post_init__(self) -> None:
        whole(self.width, "beam", 1)
        number(self.length_penalty, "length_penalty", lambda a: abs(a) <= 50, "between -50 and 50; 0 changes nothing")

    def score(self, log_p: float, n: int) -> float:
        return log_p / float(n ** float(self.length_penalty))

    def bound(self, log_p: float, n: int, most: int) -> float:
        """The best score that a live hypothesis of n ids may still come to."""
        return self.score(log_p, most if self.length_penalty >= 0 else n + 1)


class Hypothesis(NamedTuple):
    ids: tuple[int, ...]  # without the EOS
    log_probs: tuple[float, ...]  # of the model for each id, the EOS too
    log_p: float  # what the score is made of: after filters
    finish: str  # eos, length or positions; "" while it is live
    score: float


@dataclass
class Search:
    """The search for one prompt."""

    beam: Beam
    prompt: Array  # (n,) what filters are told of besides what was said
    most: int  # ids
    full: str  # why it ends there: length or positions
    best: int = 1  # how many answers are asked for
    live: list[Hypothesis] = field(default_factory=lambda: [Hypothesis((), (), 0.0, "", 0.0)])
    done: list[Hypothesis] = field(default_factory=list)
    error: Exception | None = None

    def extend(self, logits: Array, eos: frozenset[int]) -> list[int]:
        """logits (live, V) → for each hypothesis of the new beam, which of the old ones it extends."""
        of_model = log_softmax(checked(logits))  # (live, V)
        own = np.stack([self._allowed(*row) for row in zip(logits, self.live)])  # (live, V)
        total = own + np.array([h.log_p for h in self.live])[:, None]
        parents, live = [], []
        for parent, i in best_of(total, own, self.beam.width):
            h = self.live[parent]
            n, log_p = len(h.log_probs) + 1, float(total[parent, i])
            finish = "eos" if i in eos else self.full if n == self.most else ""
            ids = h.ids if finish == "eos" else (*h.ids, i)
            log_probs = (*h.log_probs, float(of_model[parent, i]))
            new = Hypothesis(ids, log_probs, log_p, finish, self.beam.score(log_p, n))
            if finish:
                self.done.append(new)
            else:
                live.append(new)
                parents.append(parent)
        if not live and not self.done:
            raise NothingLeft("no id is left to say: in every hypothesis of the beam all are banned or filtered out")
        self.done = sorted(self.done, key=lambda h: -h.score)[: self.best]
        self.live = [] if self._settled(live) else live
        return parents if self.live else []

    def _allowed(self, logits: Array, h: Hypothesis) -> Array:
        """The log-probabilities of what may follow; -inf throughout where nothing may, which is a dead end."""
        if not self.beam.filters:
            return log_softmax(logits)
        try:
            return log_softmax(filtered(logits, np.array([*self.prompt, *h.ids], np.int64), self.beam.filters))
        except NothingLeft:
            return np.full(logits.shape, -np.inf)

    def _settled(self, live: list[Hypothesis]) -> bool:
        """Can none of them come before the answers that there are?"""
        if len(self.done) < self.best:
            return False
        worst = self.done[-1].score
        return all(self.beam.bound(h.log_p, len(h.ids), self.most) <= worst for h in live)


def best_of(total: Array, own: Array, k: int) -> list[tuple[int, int]]:
    """The k largest of total (rows, V), as (row, id). Of equal ones the larger `own` first, then the lower number."""
    flat = total.ravel()
    floor = np.partition(flat, -k)[-k] if k < len(flat) else -np.inf
    some = np.flatnonzero((flat >= floor) & (flat > -np.inf))
    order = some[np.lexsort((some, -own.ravel()[some], -flat[some]))][:k]
    return [(int(i // total.shape[1]), int(i % total.shape[1])) for i in order]


def search(session: Any, logits: Array, searches: Sequence[Search], eos: frozenset[int], clock: Timings) -> None:
    """Run them side by side, each as if it were alone; `session` has one row for each, and logits (B, V) are theirs."""
    rows = [(s, 1) for s in searches]  # and how many rows of the session are its own
    while True:
        parents: list[int] = []
        going: list[tuple[Search, int]] = []
        at = 0
        with clock.decode():
            for s, n in rows:
                try:
                    kept = s.extend(logits[at : at + n], eos)
                except (ValueError, IndexError, ArithmeticError) as error:
                    s.error, s.live, kept = error, [], []
                parents += [at + parent for parent in kept]
                going += [(s, len(kept))] if kept else []
                at += n
        if len(parents) < at:
            clock.look(session)
        if not going:
            return
        rows = going
        with clock.decode():
            if parents != list(range(at)):
                session.reorder(np.array(parents))
        logits = clock.step(session, np.array([h.ids[-1] for s, _ in rows for h in s.live]))
