"""A learner's function, called with care: copies go in, and what comes out is checked before it is used."""
from __future__ import annotations

import inspect
import linecache
import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.learn.blocked import Blocked
from minitx.learn.exercise import Arguments, Exercise
from minitx.learn.finding import Stop
from minitx.learn.stub import cotangent_name
from minitx.op import Array

Pull = Callable[[Any], dict[str, Array]]


class Attempt:
    """`function` as an answer to `exercise`; `file` is where its lines are, for messages."""

    def __init__(self, exercise: Exercise, function: Any, file: str = "") -> None:
        self.exercise, self.function, self.file = exercise, function, file

    def fits(self) -> None:
        """It is a function, and takes what the exercise passes."""
        name, wanted = self.exercise.function, len(self.exercise.parameters)
        if not callable(self.function):
            raise Stop("no.callable", name=name, type=type(self.function).__name__)
        takes(self.function, wanted, name, self.exercise.signature or "")

    def value(self, arguments: Arguments) -> tuple[Array, ...]:
        return self.run(arguments)[0]

    def run(self, arguments: Arguments) -> tuple[tuple[Array, ...], Pull]:
        """The values, checked, and a function from cotangents to gradients by name, checked too."""
        exercise, name = self.exercise, self.exercise.function
        result = self.guarded(self.function, [_copy(a) for a in arguments.values()])
        if result is None:
            raise Stop("no.none", name=name, wanted=self.returned())
        if result is ... or (isinstance(result, tuple) and any(part is ... for part in result)):
            raise Stop("no.unwritten", name=name, file=self.file)
        backward: Any = None
        if exercise.backward:
            if not (isinstance(result, tuple) and len(result) == 2 and callable(result[1])):
                raise Stop("no.pair", name=name, wanted=self.returned(), arrived=shown(result))
            result, backward = result
        several = len(exercise.results) > 1
        if several and not (isinstance(result, tuple | list) and len(result) == len(exercise.results)):
            raise Stop("no.results", name=name, wanted=", ".join(exercise.results), arrived=shown(result))
        parts = tuple(result) if several else (result,)
        values = tuple(self.number(v, n) for v, n in zip(parts, exercise.results))

        def pull(dy: Any) -> dict[str, Array]:
            takes(backward, 1, "backward", cotangent_name(exercise))
            answer = self.guarded(backward, [_copy(dy) if not isinstance(dy, tuple) else tuple(map(_copy, dy))])
            return self.gradients(answer)

        return values, pull

    def gradients(self, answer: Any) -> dict[str, Array]:
        """What backward answered, by name."""
        names = self.exercise.gradients
        wanted = ", ".join(f"d{n}" for n in names)
        if answer is None:
            raise Stop("no.none", name="backward", wanted=wanted)
        parts = tuple(answer) if isinstance(answer, tuple | list) else (answer,)
        if any(part is ... for part in parts):
            raise Stop("no.unwritten", name="backward", file=self.file)
        if len(names) == 1 and isinstance(answer, list) and len(answer) != 1:
            raise Stop("no.array", name=wanted, arrived=shown(answer))
        if len(parts) != len(names):
            raise Stop("no.gradients", wanted=wanted, n=len(names), arrived=shown(answer))
        for n, part in zip(names, parts):
            if part is None:
                raise Stop("no.none", name="backward", wanted=f"d{n}")
        return {n: self.number(part, f"d{n}") for n, part in zip(names, parts)}

    def number(self, value: Any, name: str) -> Array:
        """A float64 array (a NumPy scalar or a Python float will do for one without axes)."""
        if not isinstance(value, np.ndarray | np.generic | float | int) or isinstance(value, bool):
            raise Stop("no.array", name=name, arrived=shown(value))
        array = np.asarray(value)
        if array.dtype.kind in "iub" and (self.whole(name) or not array.any()):  # (zeros of any kind are zeros)
            return array if self.whole(name) else array.astype(np.float64)
        if array.dtype.kind not in "iuf":
            raise Stop("no.kind", name=name, dtype=str(array.dtype))
        if array.dtype.kind in "iu" and not isinstance(value, int):
            raise Stop("no.integers", name=name, dtype=str(array.dtype))
        if array.dtype.kind == "f" and array.dtype != np.float64:
            raise Stop("no.dtype", name=name, dtype=str(array.dtype))
        return array.astype(np.float64, copy=False)

    def whole(self, name: str) -> bool:
        """May this result be of integers? (ids, places: results without a gradient pass)"""
        return not self.exercise.backward and name in self.exercise.results

    def guarded(self, function: Callable[..., Any], args: list[Any]) -> Any:
        try:
            return function(*args)
        except (Stop, KeyboardInterrupt):
            raise
        except BaseException as error:
            raise raised(error, self.file) from error

    def returned(self) -> str:
        """What the function has to return, as code."""
        results = ", ".join(self.exercise.results)
        if not self.exercise.backward:
            return results
        return f"{f'({results})' if len(self.exercise.results) > 1 else results}, backward"


def takes(function: Any, n: int, name: str, wanted: str) -> None:
    """Can it be called with n arguments by position?"""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*range(n))
    except TypeError as error:
        raise Stop("no.signature", name=name, given=str(signature), wanted=f"({wanted})") from error


def raised(error: BaseException, file: str) -> Stop:
    """An exception as a finding: at the learner's own line, with the shapes of what stood there."""
    own = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    text, kind = text_of(error), type(error).__name__
    said = f"{kind}: {text}" if text else kind
    if isinstance(error, SyntaxError) and error.filename == file:
        return Stop("no.syntax", file=file, line=error.lineno or 0, code=(error.text or "").strip(), text=error.msg)
    if not own:
        return Stop("no.raised", kind=kind, said=said)
    frame, line = own[-1]
    source = linecache.getline(file, line).strip()
    if isinstance(error, Blocked):
        return Stop("no.blocked", module=text, file=file, line=line, code=source)
    arrays = {n: v for n, v in frame.f_locals.items() if isinstance(v, np.ndarray) and re.search(rf"\b{n}\b", source)}
    shapes = ", ".join(f"{n} {v.shape}" for n, v in arrays.items())
    key = "no.raised-at-shapes" if shapes else "no.raised-at"
    return Stop(key, kind=kind, said=said, file=file, line=line, code=source, shapes=shapes)


def text_of(error: BaseException) -> str:
    """What an exception says, in one line; "" for exit() and `assert x`, which say nothing."""
    if isinstance(error, SystemExit) and error.code is None:
        return ""
    try:
        return " ".join(str(error).split())[:300]
    except Exception:  # a class of the learner's own, whose __str__ fails
        return ""


def shown(value: Any, deep: bool = False) -> str:
    """What arrived, in a few words; never the numbers of a large array."""
    if isinstance(value, np.ndarray):
        return f"array {value.shape}, {value.dtype}"
    if isinstance(value, tuple | list):
        if deep:
            return f"{type(value).__name__} of {len(value)}"
        parts = [shown(part, True) for part in value[:5]] + ["..."] * (len(value) > 5)
        return f"{type(value).__name__} ({', '.join(parts)})"
    return f"{type(value).__name__} {value!r:.40}" if isinstance(value, int | float | str) else type(value).__name__


def _copy(a: Any) -> Any:
    return a.copy() if isinstance(a, np.ndarray) else a
