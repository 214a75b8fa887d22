"""What a function must not do, whatever the numbers: mind the memory order, remember, write into what it was given."""
from __future__ import annotations

import os
from typing import Any

import numpy as np

from minitx.learn.attempt import Attempt
from minitx.learn.compare import same
from minitx.learn.draw import Draw, draw
from minitx.learn.finding import Stop
from minitx.op import Array


def check(attempt: Attempt, made: Draw, before: dict[str, Any]) -> None:
    """Raises Stop at the first thing that is amiss. `before`: the `state` before the function was ever called."""
    keeps_its_arguments(attempt, made)
    other_memory_order(attempt, made)
    called_twice(attempt, made)
    after = state()
    if changed := [name for name in before if before[name] != after[name]]:
        raise Stop("odd.state", name=attempt.exercise.function, what=changed[0])


def keeps_its_arguments(attempt: Attempt, made: Draw) -> None:
    """Arguments and dy are afterwards what they were, and no gradient is a view of an argument."""
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in made.arguments.values()]
    result = attempt.guarded(attempt.function, given)
    _unchanged(attempt, given, made)
    if not attempt.exercise.backward:
        return
    dy = tuple(map(np.copy, made.dy)) if isinstance(made.dy, tuple) else made.dy.copy()
    answer = attempt.gradients(attempt.guarded(result[1], [dy]))
    _unchanged(attempt, given, made)
    for g, old in zip(dy if isinstance(dy, tuple) else (dy,), made.dy if isinstance(dy, tuple) else (made.dy,)):
        if not np.array_equal(g, old):
            raise Stop("odd.changed", name="dy")
    for name, g in answer.items():
        for other, a in zip(attempt.exercise.parameters, given):
            if isinstance(a, np.ndarray) and a.size and np.shares_memory(g, a):
                raise Stop("odd.alias", name=f"d{name}", other=other)


def _unchanged(attempt: Attempt, given: list[Any], made: Draw) -> None:
    for name, a, old in zip(attempt.exercise.parameters, given, made.arguments.values()):
        if isinstance(a, np.ndarray) and not np.array_equal(a, old, equal_nan=a.dtype.kind == "f"):
            raise Stop("odd.changed", name=name)


def other_memory_order(attempt: Attempt, made: Draw) -> None:
    """The same numbers in every second place of memory, and a dy that is one number everywhere, read-only."""
    sparse = {n: _sparse(a) for n, a in made.arguments.items()}
    values, backward = _raw(attempt, sparse)
    for name, value, right in zip(attempt.exercise.results, values, made.values):
        if not same(value, right, 1e-8):
            raise Stop("odd.strided", name=name)
    if backward is None:
        return
    for key, dy in (("odd.strided", _each(made.dy, _sparse)), ("odd.constant", _each(made.dy, _constant))):
        plain = _each(dy, np.ascontiguousarray)
        solution = attempt.exercise.solve(made.arguments)[1](plain)
        for name, g in attempt.gradients(attempt.guarded(backward, [dy])).items():
            if not same(g, solution[name], 1e-8, made.floor):
                raise Stop(key, name=f"d{name}")


def called_twice(attempt: Attempt, made: Draw) -> None:
    """A second call does not disturb the first one's backward, and backward can be called again."""
    values, pull = attempt.run(made.arguments)
    kept = [v.copy() for v in values]
    other = draw(attempt.exercise, 10_007)
    attempt.run(other.arguments)
    for name, value, old in zip(attempt.exercise.results, values, kept):
        if not np.array_equal(value, old, equal_nan=value.dtype.kind == "f"):
            raise Stop("odd.overwritten", name=name)
    if not attempt.exercise.backward:
        return
    first = pull(made.dy)
    for name, g in first.items():
        if not made.agrees(name, g, 1e-7):
            raise Stop("odd.interleaved", name=f"d{name}")
    kept_gradients = {name: g.copy() for name, g in first.items()}
    for g in first.values():
        if g.flags.writeable:
            g += 1.0
    for name, g in pull(made.dy).items():
        if not same(g, kept_gradients[name], 1e-9, made.floor):
            raise Stop("odd.again", name=f"d{name}")


def _raw(attempt: Attempt, arguments: dict[str, Any]) -> tuple[list[Array], Any]:
    """Without the copies that `Attempt.run` makes, which would put the memory in order."""
    result = attempt.guarded(attempt.function, list(arguments.values()))
    value, backward = result if attempt.exercise.backward else (result, None)
    parts = value if len(attempt.exercise.results) > 1 else (value,)
    return [attempt.number(v, n) for v, n in zip(parts, attempt.exercise.results)], backward


def _each(dy: Any, f: Any) -> Any:
    return tuple(f(g) for g in dy) if isinstance(dy, tuple) else f(dy)


def _sparse(a: Any) -> Any:
    if not isinstance(a, np.ndarray) or not a.ndim:
        return a
    return np.asfortranarray(np.repeat(a, 2, axis=-1))[..., ::2]


def _constant(dy: Array) -> Array:
    return np.broadcast_to(np.float64(0.7), dy.shape)


def state() -> dict[str, Any]:
    """What belongs to everybody: NumPy's global random state and error settings, the working folder."""
    kind, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return {"np.random": (kind, bytes(np.asarray(keys)), rest), "np.seterr": np.geterr(), "os.getcwd()": os.getcwd()}
