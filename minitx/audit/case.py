"""One application of an op to random arrays, and the other ways to its result: what tests, audits and mutants walk."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx import ops  # noqa: F401  (fills the registry)
from minitx.op import Op, registry

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # positional, and options by name


@dataclass(frozen=True)
class Case:
    """`op` at arguments whose sizes are distinct primes, away from kinks, with gain and bias random (never 1 and 0)."""

    op: str  # its name in the registry
    label: str  # "" or what is special: "axis=0", ...
    arguments: Callable[[np.random.Generator], Arguments]  # fresh float64 arrays, and options
    composition: Callable[..., Any] | None = None  # the same arguments as Tensors → the same result, from smaller ops
    torch: Callable[..., Any] | None = None  # (torch, arguments as PyTorch tensors) → its result; None where it differs

    def __str__(self) -> str:
        return f"{self.op}[{self.label}]" if self.label else self.op

    @property
    def implementation(self) -> Op:
        return registry[self.op]

    def draw(self, seed: int = 0) -> Arguments:
        """The arguments: the same seed, the same numbers."""
        return self.arguments(np.random.default_rng(seed))

    def lift(self, arguments: Arguments, f: Callable[[Any], Any]) -> Arguments:
        """The arguments with f applied to every array that has a gradient."""
        op, (args, options) = self.implementation, arguments
        slots = op._spread(args)[1] if op.variadic else op.by_position
        slots = (*slots, *[-1] * (len(args) - len(slots)))
        return (
            tuple(f(a) if slot >= 0 and isinstance(a, np.ndarray) else a for a, slot in zip(args, slots)),
            {n: f(a) if n in op.slot and isinstance(a, np.ndarray) else a for n, a in options.items()},
        )
