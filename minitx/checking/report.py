"""What a gradient check says: a table, and an error that shows for each wrong input where it is worst, and why."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from minitx.op import Array


@dataclass(frozen=True)
class Row:
    """One input: how many entries were tried, and the worst of them."""

    name: str
    shape: tuple[int, ...]
    entries: int
    error: float  # max|backward - differences| / max|differences|
    where: tuple[int, ...]
    backward: float
    differences: float


@dataclass(frozen=True)
class Report:
    """What was checked, and how well backward and differences agree; prints as a table."""

    title: str
    tolerance: float
    rows: list[Row] = field(default_factory=list)
    kinks: list[str] = field(default_factory=list)  # entries where differences have no single answer

    @property
    def error(self) -> float:
        """The largest relative error of all inputs."""
        return max((row.error for row in self.rows), default=0.0)

    def add(
        self, name: str, shape: tuple[int, ...], where: Sequence[tuple[int, ...]], a: Array, b: Array, least: Array
    ) -> None:
        """One input: a from backward, b from differences, whose scale is at least `least` (below it is rounding)."""
        if not a.size:
            self.rows.append(Row(name, shape, 0, 0.0, (), 0.0, 0.0))
            return
        scale = np.maximum(float(np.abs(b).max()), np.maximum(least, 1e-200))
        errors = np.nan_to_num(np.abs(a - b) / scale, nan=np.inf)
        j = int(errors.argmax())
        self.rows.append(Row(name, shape, len(where), float(errors[j]), where[j], float(a[j]), float(b[j])))

    def __str__(self) -> str:
        head = ("input", "shape", "entries", "relative error", "worst at")
        cells = [(r.name, f"{r.shape}", f"{r.entries}", f"{r.error:.1e}", f"{list(r.where)}") for r in self.rows]
        wide = [max(len(line[i]) for line in [head, *cells]) for i in range(len(head))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(line, wide)).rstrip() for line in [head, *cells]]
        title = f"gradcheck of {self.title}: float64, random cotangent, tolerance {self.tolerance:g}"
        return "\n".join([title, *lines, *self.kinks])


class GradientError(AssertionError):
    """Backward is not the derivative; `report` has the numbers of all inputs."""

    def __init__(self, report: Report, relations: dict[str, str | None]) -> None:
        lines: list[str] = []
        for row in report.rows:
            if not row.error <= report.tolerance:
                lines.append(f"{report.title}: the gradient of {row.name} is wrong")
                if np.isfinite(row.error):
                    lines += [
                        f"    worst at {row.name}{list(row.where)}: backward says {row.backward:.8g}, "
                        f"differences say {row.differences:.8g}",
                        f"    relative error {row.error:.1e} = max|a - b| / max|b|; {report.tolerance:g} is allowed",
                    ]
                if said := relations.get(row.name):
                    lines.append(f"    {said}")
        super().__init__("\n".join([*lines, "", str(report)]))
        self.report = report
        self.relations = relations
