"""What an audit says: one finding a row, and a report of them all."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitx.audit.table import Table, paragraph
from minitx.op import Array

QUESTIONS = {
    "future": "a changed future token does not move past logits",
    "padding": "a changed padded token does not move valid outputs",
    "cross-attention": "source padding is not read by cross-attention",
    "loss": "the loss counts valid targets only",
    "shift": "the target of a position is not among its inputs",
    "batch": "samples of different lengths in a batch do not touch each other",
    "documents": "packed documents do not touch each other",
    "incremental": "token by token with a cache gives the logits of the whole pass",
    "noise": "trained on random tokens the loss stays at ln V",
}


@dataclass(frozen=True)
class Finding:
    """One row of the audit."""

    row: str
    leak: bool | None  # None: it does not apply, and `said` says why
    size: float = 0.0  # the largest move seen, as a share of the largest logit (loss, noise: nats; shift: of targets)
    at: tuple[int, int] | None = None  # (row of the batch, position): the first that leaks
    by: int | None = None  # the position of the token whose change shows there
    said: str = ""

    @property
    def verdict(self) -> str:
        return "-" if self.leak is None else "LEAK" if self.leak else "no leak"

    def to_dict(self) -> dict[str, Any]:
        size = self.size if np.isfinite(self.size) else str(self.size)  # JSON has no infinity
        return {"row": self.row, "question": QUESTIONS[self.row], "leak": self.leak, "size": size,
                "at": self.at and list(self.at), "by": self.by, "said": self.said}  # fmt: skip


def found(row: str, moves: Array, tolerance: float, said: str) -> Finding:
    """moves (B, T): the first place that moves by more than the tolerance. `said` may name {b}, {t} and {size}."""
    size = float(moves.max(initial=0.0))
    if not size > tolerance:
        return Finding(row, False, size)
    t = int(np.flatnonzero((moves > tolerance).any(0))[0])
    b = int(np.flatnonzero(moves[:, t] > tolerance)[0])
    return Finding(row, True, size, (b, t), said=said.format(b=b, t=t, size=moves[b, t]))


@dataclass(frozen=True)
class Report:
    """Prints as a table; `passed` where nothing leaks."""

    title: str
    findings: list[Finding] = field(default_factory=list)

    @property
    def leaks(self) -> list[str]:
        """The rows that leak."""
        return [f.row for f in self.findings if f.leak]

    @property
    def passed(self) -> bool:
        return not self.leaks

    def __getitem__(self, row: str) -> Finding:
        return next(f for f in self.findings if f.row == row)

    def to_dict(self) -> dict[str, Any]:
        return {"title": self.title, "passed": self.passed, "findings": [f.to_dict() for f in self.findings]}

    def __str__(self) -> str:
        table = Table(["", "", "largest move", ""], [16, 64, 12, 7], left=(0, 1))
        lines = [self.title, table.title()]
        for f in self.findings:
            size = "" if f.leak is None else f"{f.size:.1e}"
            lines.append(table.line([f.row, QUESTIONS[f.row], size, f.verdict]))
            if f.said:
                lines.append(paragraph(f.said, " " * 18))
        return "\n".join(lines)
