"""One trial of an exercise: arguments, a cotangent, and what the solution says."""
from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from minitx.checking.cotangent import cotangent
from minitx.learn.attempt import Attempt
from minitx.learn.compare import same, size
from minitx.learn.exercise import Arguments, Exercise
from minitx.op import Array


@dataclass(frozen=True)
class Draw:
    exercise: Exercise
    arguments: Arguments
    values: tuple[Array, ...]
    dy: Any  # an array, or a tuple where there are several results
    right: dict[str, Array]  # the gradients of the solution, by name

    @property
    def sizes(self) -> dict[str, int]:
        """What the symbols of the exercise's shapes are here: {"n": 5, "rows": 6}."""
        arrays = {n: a for n, a in self.arguments.items() if isinstance(a, np.ndarray)}
        return symbols(self.exercise.shapes, arrays)

    @property
    def factors(self) -> dict[str, float]:
        """Numbers that a wrong factor may be, by name: sizes, their products, the exercise's own."""
        sizes = {symbol: n for symbol, n in self.sizes.items() if n > 1}
        found: dict[str, float] = {"1": 1.0, "2": 2.0, "3": 3.0} | sizes
        found |= {f"({symbol}-1)": n - 1 for symbol, n in sizes.items() if n > 3}
        found |= {f"{a} {b}": m * n for (a, m), (b, n) in combinations(sizes.items(), 2)}
        for name, a in self.arguments.items():
            if isinstance(a, float) and 0 < a < 1:
                found |= {name: a, f"(1-{name})": 1 - a}
        return found | (self.exercise.numbers(*self.arguments.values()) if self.exercise.numbers else {})

    @property
    def known(self) -> dict[str, Array]:
        """What a learner may have taken for something else: the arguments, y, dy."""
        arrays = {n: a for n, a in self.arguments.items() if isinstance(a, np.ndarray) and a.dtype.kind == "f"}
        return arrays if isinstance(self.dy, tuple) else arrays | {"y": self.values[0], "dy": self.dy}

    def agrees(self, name: str, g: Array, tolerance: float) -> bool:
        """Is this the gradient of `name`? One that is 0 is compared to the size of dy."""
        return same(g, self.right[name], tolerance, self.floor)

    @property
    def floor(self) -> float:
        parts = self.dy if isinstance(self.dy, tuple) else (self.dy,)
        return 1e-3 * max((size(g) for g in parts), default=0.0)

    def given(self, attempt: Attempt) -> dict[str, Array]:
        """The learner's gradients here."""
        return attempt.run(self.arguments)[1](self.dy)


def symbols(shapes: dict[str, str], arrays: dict[str, Array]) -> dict[str, int]:
    """From "(..., n)" and an array (2, 3, 5): n is 5, and there are 6 rows."""
    found: dict[str, int] = {}
    for name, array in arrays.items():
        inside = re.search(r"\(([^()]*)\)", shapes.get(name, ""))  # what stands behind is a remark: "(out, in)  W"
        axes = [s.strip() for s in inside[1].split(",") if s.strip()] if inside else []
        sized = array.shape
        if axes and axes[0] == "..." and len(sized) >= len(axes) - 1:
            axes = axes[1:]
            found.setdefault("rows", prod(sized[: len(sized) - len(axes)]))
            sized = sized[len(sized) - len(axes) :]
        if len(axes) == len(sized):
            for symbol, n in zip(axes, sized):
                if symbol.isidentifier():
                    found.setdefault(symbol, n)
    return found


def draw(exercise: Exercise, seed: int, arguments: Arguments | None = None) -> Draw:
    """The same seed, the same numbers."""
    rng = np.random.default_rng([3, seed])
    arguments = exercise.arguments(rng) if arguments is None else arguments
    value, pull = exercise.solve(arguments)
    values = tuple(np.array(v) for v in (value if len(exercise.results) > 1 else (value,)))
    if not exercise.backward:
        return Draw(exercise, arguments, values, None, {})
    dy = cotangents(exercise, rng, Draw(exercise, arguments, values, None, {}))
    return Draw(exercise, arguments, values, dy, {n: np.array(g, np.float64) for n, g in pull(dy).items()})


def cotangents(exercise: Exercise, rng: np.random.Generator, made: Draw) -> Any:
    """A random dy for every result."""
    inputs = [a for a in made.arguments.values() if isinstance(a, np.ndarray) and a.dtype == np.float64]
    dy = tuple(cotangent(rng, v.shape, inputs) for v in made.values)
    return dy if len(exercise.results) > 1 else dy[0]
