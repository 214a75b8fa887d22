"""What generation returns: a row for each prompt, and how long they took together."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from minitx.generation.beam import Hypothesis
from minitx.generation.decode import Row
from minitx.generation.request import Prompt
from minitx.generation.timings import Timings
from minitx.tensor import Array


@dataclass(frozen=True)
class Answer:
    """One row. Where `error` is not None the rest is what had been said until then."""

    text: str | None  # without the prompt, up to the EOS or stop sequence; None without a tokenizer
    ids: Array  # (n,) what was said, without the EOS (and with those of a stop sequence)
    log_probs: Array  # of the model itself, before any filter: one for each id, and one for the EOS if it said one
    finish: str  # eos, stop, length, positions, error: see stopping.REASONS
    error: Exception | None = None
    score: float | None = None  # of beam search
    prompt: Array | None = None  # (m,) the ids that the model read


class Answers(Sequence[Answer]):
    """A row for each prompt (with copies=k, k rows), and how long they took together."""

    def __init__(self, rows: Sequence[Answer], timings: Timings) -> None:
        self.rows, self.timings = list(rows), timings

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, i: int) -> Answer: ...
    @overload
    def __getitem__(self, i: slice) -> list[Answer]: ...
    def __getitem__(self, i: Any) -> Any:
        return self.rows[i]


def of_row(row: Row, prompt: Prompt) -> Answer:
    text = None if row.written is None else row.written.text
    said = row.ids[row.start : row.end]
    return Answer(text, said, np.array(row.log_probs), row.finish, row.error, prompt=prompt.ids)


def failed(error: Exception, prompt: Prompt, tokenizer: Any) -> Answer:
    nothing = np.zeros(0, np.int64)
    return Answer(None if tokenizer is None else "", nothing, np.zeros(0), "error", error, prompt=prompt.ids)


def of_hypothesis(h: Hypothesis, prompt: Prompt, tokenizer: Any) -> Answer:
    try:
        text = None if tokenizer is None else tokenizer.decode(h.ids)
    except IndexError as error:  # the model has more ids than the tokenizer
        return failed(error, prompt, tokenizer)
    return Answer(text, np.array(h.ids, np.int64), np.array(h.log_probs), h.finish, score=h.score, prompt=prompt.ids)
