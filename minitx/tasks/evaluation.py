"""What an evaluation found, and how it prints."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Count(NamedTuple):
    """How many of the examples of one length were right to the last symbol."""

    label: str
    right: int
    total: int


@dataclass(frozen=True)
class Evaluation:
    """Loss and, where there is one right answer, exact match, on held-out examples."""

    loss: float  # nats per symbol that had to be said
    tokens: int  # how many such symbols
    by_length: Sequence[Count] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)  # further figures; the name of each says its unit

    @property
    def exact_match(self) -> float | None:
        """The share of examples with every symbol right; None where that makes no sense (running text)."""
        total = sum(count.total for count in self.by_length)
        return sum(count.right for count in self.by_length) / total if total else None

    @property
    def score(self) -> float:
        """Higher is better: the exact match, or minus the loss. "Best" means by this."""
        return -self.loss if self.exact_match is None else self.exact_match

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a log."""
        d: dict[str, Any] = {"loss": self.loss, "tokens": self.tokens, **self.metrics}
        if self.exact_match is not None:
            d["exact_match"] = self.exact_match
            d["by_length"] = {c.label: [c.right, c.total] for c in self.by_length}
        return d

    def lines(self) -> list[str]:
        """A table by length, the total, the loss and the rest, in ASCII."""
        out = []
        if self.exact_match is not None:
            _, right, total = zip(*self.by_length)
            rows = [*self.by_length, Count("all", sum(right), sum(total))]
            width = max(len("length"), *(len(c.label) for c in rows))
            out.append("held-out exact match")
            out.append(f"  {'length':>{width}}  {'right':>6}  {'of':>6}  {'share':>6}")
            out += [f"  {c.label:>{width}}  {c.right:>6}  {c.total:>6}  {_share(c.right, c.total):>6}" for c in rows]
        out.append(f"held-out loss {self.loss:.4f} nats per symbol, over {self.tokens:,} symbols")
        out += [f"{name.replace('_', ' ')} {value:.4f}" for name, value in self.metrics.items()]
        return out


def _share(right: int, total: int) -> str:
    """Never rounded up to 1: a single error in 10,000 shows."""
    return f"{right / total:.3f}" if right == total else f"{min(right / total, 0.9994):.3f}"
