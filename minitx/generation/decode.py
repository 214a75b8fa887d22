"""The loop of decoding: every live row says an id, rows that have ended leave the batch, the model takes a step."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from minitx.generation.filters import log_softmax
from minitx.generation.sampling import Sampling
from minitx.generation.streaming import Written
from minitx.generation.timings import Timings
from minitx.tensor import Array


class Row:
    """One answer in the making."""

    def __init__(
        self, place: int, prompt: Array, most: int, full: str, rng: np.random.Generator, written: Written | None
    ) -> None:
        self.place = place  # of its prompt among the others
        self.ids = prompt.copy()  # ids[:end]: what was read, then what was said
        self.start = self.end = len(prompt)
        self.most, self.full = self.start + most, full  # why it ends when it has so many: length or positions
        self.rng = rng
        self.written = written
        self.log_probs: list[float] = []  # of the model, of every id that was said, the EOS too
        self.finish = ""  # one of stopping.REASONS
        self.error: Exception | None = None

    def say(self, i: int, log_p: float, eos: frozenset[int]) -> str:
        """Take in the next id; returns the text that is certain now."""
        self.log_probs.append(log_p)
        if i in eos:
            return self._ended("eos")
        if self.end == len(self.ids):
            self.ids = np.resize(self.ids, min(self.most, 2 * self.end + 16))
        self.ids[self.end] = i
        self.end += 1
        text = "" if self.written is None else self.written.push(i)
        if self.written is not None and self.written.stopped:
            return text + self._ended("stop")
        return text + self._ended(self.full) if self.end == self.most else text

    def fail(self, error: Exception) -> str:
        self.error = error
        return self._ended("error")

    def _ended(self, reason: str) -> str:
        self.finish = reason
        return "" if self.written is None else self.written.finish()


def decode(
    session: Any, logits: Array, rows: Sequence[Row], sampling: Sampling, eos: frozenset[int], clock: Timings
) -> Iterator[tuple[Row, str]]:
    """Until every row has ended; yields what each one says, as text.

    The session has one row for each of `rows`, and logits (B, V) are what the model says after their prompts.
    """
    live = list(rows)
    while True:
        with clock.decode():
            pieces = _say(logits, live, sampling, eos)
        yield from zip(live, pieces)
        on = [n for n, row in enumerate(live) if not row.finish]
        if len(on) < len(live):
            clock.look(session)
        if not on:
            return
        with clock.decode():
            if len(on) < len(live):
                session.keep(np.array(on))  # whoever has ended costs nothing from now on
                live = [live[n] for n in on]
        logits = clock.step(session, np.array([row.ids[row.end - 1] for row in live]))


def _say(logits: Array, live: list[Row], sampling: Sampling, eos: frozenset[int]) -> list[str]:
    chosen = sampling.choose(logits, [row.ids[: row.end] for row in live], [row.rng for row in live])
    log_p = np.zeros(logits.shape)
    sound = np.isfinite(logits.max(-1))  # of a row with NaN the maximum is NaN
    log_p[sound] = log_softmax(logits[sound])
    pieces = []
    for n, (row, said) in enumerate(zip(live, chosen)):
        try:
            if isinstance(said, Exception):
                raise said
            pieces.append(row.say(said, float(log_p[n, said]), eos))
        except (ValueError, IndexError, ArithmeticError) as error:  # this row's own; the others go on
            pieces.append(row.fail(error))
    return pieces
