"""Every component beside four witnesses: what `minitx check` prints.

    differences   the gradient of backward against finite differences, float64, random cotangent
    smaller ops   values and gradients against the same thing made of smaller ops (layers and models: written out)
    kernel        values and gradients of the fast version against those of the definition, float64 and float32
    pytorch       values and gradients against PyTorch, float64, where it is installed

A component is an op, a layer, a block or a model; it has one or more cases. All errors are max|a - b| / max|b|.
"""
from __future__ import annotations

import importlib
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from minitx.audit.cases import CASES
from minitx.audit.measure import Measure, absent, careful, worst
from minitx.audit.op_columns import DIFFERENCES, SMALLER, TORCH, OpColumns
from minitx.audit.part import Part
from minitx.audit.parts import PARTS
from minitx.audit.reasons import NO_TORCH
from minitx.training.config import nearest

COLUMNS = ("differences", "smaller ops", "kernel", "pytorch")
KINDS = ("op", "layer", "block", "model")
LIMITS = {"differences": DIFFERENCES, "smaller ops": SMALLER, "pytorch": TORCH}


@dataclass(frozen=True)
class Row:
    """One component, or one case of it."""

    name: str
    kind: str
    measures: dict[str, Measure]  # by column
    seconds: float

    @property
    def passed(self) -> bool:
        return all(m.passed is not False for m in self.measures.values())

    def to_dict(self) -> dict[str, Any]:
        columns = {column: measure.to_dict() for column, measure in self.measures.items()}
        return {"name": self.name, "kind": self.kind, "passed": self.passed, "seconds": round(self.seconds, 4),
                "columns": columns}  # fmt: skip


def components() -> dict[str, list[OpColumns | Part]]:
    """The cases of every component by its name."""
    found: dict[str, list[OpColumns | Part]] = {}
    everything: list[OpColumns | Part] = [*map(OpColumns, CASES), *PARTS]
    for case in everything:
        found.setdefault(case.name, []).append(case)
    return dict(sorted(found.items(), key=lambda item: KINDS.index(item[1][0].kind)))


def chosen(names: Iterable[str]) -> list[str]:
    """The names of components that are meant: of one, or of a kind; all, if none is given."""
    found, names = components(), list(names)
    wanted: dict[str, None] = {}
    for name in names:
        one = [n for n, cases in found.items() if name in (n, cases[0].kind, f"{cases[0].kind}s")]
        if not one:
            raise ValueError(f"there is no component {name!r}{nearest(name, [*found, *KINDS])}")
        wanted |= dict.fromkeys(one)
    return list(wanted) if names else list(found)


def check(names: Iterable[str] = (), each_case: bool = False) -> Iterator[Row]:
    """One row after the other, of each component, or with `each_case` of each of its cases."""
    torch, found = the_torch(), components()
    for name in chosen(names):
        cases = found[name]
        if each_case:
            for case in cases:
                yield _row(f"{name}[{case.label}]" if case.label else name, case.kind, [case], torch)
        else:
            yield _row(name, cases[0].kind, cases, torch)


def _row(name: str, kind: str, cases: list[OpColumns | Part], torch: Any) -> Row:
    start = time.perf_counter()
    measures = {column: worst([measure(case, column, torch) for case in cases]) for column in COLUMNS}
    return Row(name, kind, measures, time.perf_counter() - start)


def measure(case: OpColumns | Part, column: str, torch: Any = None) -> Measure:
    """One cell."""
    if column == "pytorch" and torch is None:
        return absent(NO_TORCH)
    compare: dict[str, Callable[[], Measure]] = {
        "differences": case.differences,
        "smaller ops": case.smaller,
        "kernel": case.kernel,
        "pytorch": partial(case.pytorch, torch),
    }
    return careful(compare[column], LIMITS.get(column, SMALLER))


def the_torch() -> Any:
    """PyTorch, or None."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


def versions(with_torch: bool = True) -> dict[str, str | None]:
    """What the numbers were made with; None: not installed."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in ("minitx", "numpy", "numba", *(("torch",) if with_torch else ())):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
