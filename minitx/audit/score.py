"""The score of the checks: of the wrong backward passes that a machine makes, how many do they reject?

    made        one small change each, in the backward pass of one op
    caught      rejected by the gradient check, or by exact values at ties, kinks and infinities
    equivalent  rejected by neither, with the reason why it is not wrong (equivalent.py)
    usual       what `y.sum()` with gain 1 and bias 0 accepts, although it is wrong

Layers, blocks and models have no backward pass of their own: theirs is the engine, walking these.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from minitx.audit.equivalent import EQUIVALENT
from minitx.audit.mutants import Mutant, mutants
from minitx.audit.verdicts import passes_corners, passes_gradient_check, passes_usual_check
from minitx.op import Composite, Op, registry


def survives(mutant: Mutant) -> bool:
    """Do the gradient check and the corners accept it?"""
    op = registry[mutant.name]
    return passes_gradient_check(op, mutant.rule) and passes_corners(op, mutant.rule)


@dataclass(frozen=True)
class Score:
    """Of one op."""

    op: str
    made: int
    by_differences: int
    by_corners: int
    equivalent: dict[str, str]  # the mutant, and why it is not wrong
    missed: list[str]  # wrong, and accepted all the same: there should be none
    usual: list[str]  # wrong, and accepted by the usual check

    @property
    def caught(self) -> int:
        return self.by_differences + self.by_corners

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "caught": self.caught}


def all_ops() -> list[Op]:
    """Those with a backward pass of their own (a composite has that of its parts)."""
    return [op for op in registry.values() if not isinstance(op, Composite)]


def scores(ops: Iterable[Op] | None = None) -> Iterator[Score]:
    """One op after the other."""
    return map(score, all_ops() if ops is None else ops)


def score(op: Op) -> Score:
    made = mutants(op)
    left = [m for m in made if passes_gradient_check(op, m.rule)]
    alive = [str(m) for m in left if passes_corners(op, m.rule)]
    usual = [str(m) for m in made if passes_usual_check(op, m.rule)]
    return Score(
        op.name, len(made), len(made) - len(left), len(left) - len(alive),
        {m: EQUIVALENT[m] for m in alive if m in EQUIVALENT},
        [m for m in alive if m not in EQUIVALENT],
        [m for m in usual if m not in EQUIVALENT],
    )  # fmt: skip
