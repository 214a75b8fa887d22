"""A teacher's own exercises: a folder of files, each with one forward function; the gradient is found by differences.

    \"\"\"Softmax with a temperature.

    Write softmax(x / temperature) along the last axis, and its backward.
    \"\"\"
    import numpy as np

    def softmax_temperature(x: "(..., n)", temperature=0.7):
        e = np.exp((x - x.max(-1, keepdims=True)) / temperature)
        return e / e.sum(-1, keepdims=True)

is an exercise: the file's name is its slug (and the function's), the docstring its words, and the shapes say what to
draw: every symbol is a prime of its own, `...` two axes more. Parameters with a shape have a gradient, the others keep
their default. Optional in the file, as in minitx/learn/exercises: `arguments(rng)`, `forward_cases(rng)`,
`adversarial(rng)`, `terms(dy, *arguments)`, `intermediates(dy, *arguments)`, `mutants`, `gradients`, and for the words
`why`, `hints`, `note`.
"""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Exercise, Rng, no_cases
from minitx.op import Array

PART = 4
PRIMES = (5, 7, 11, 3, 13, 17)
LEADING = (2, 3)  # what `...` stands for
STEP = 2.0**-10  # of the five-point rule, which is good to about 1e-11


def variant(path: Path) -> tuple[Exercise, dict[str, Any]]:
    """The exercise of a file, and its words (the same in every language)."""
    module = load(path)
    name = path.stem
    forward = getattr(module, name, None)
    if not inspect.isfunction(forward):
        raise ValueError(
            f"{path}: a variant holds one function with the name of its file, `def {name}(...)`"
            " (a file whose name begins with _ is no variant)"
        )
    slug = name.replace("_", "-")
    shapes = annotated(forward)
    gradients = tuple(getattr(module, "gradients", shapes))
    arguments = getattr(module, "arguments", None) or drawn(forward, shapes, path)
    exercise = Exercise(
        slug=slug, part=PART, minutes=30, function=name, signature=bare(forward), gradients=gradients,
        equation=getattr(module, "equation", ""), shapes=shapes, arguments=arguments,
        solution=with_differences(forward, gradients),
        forward_cases=getattr(module, "forward_cases", no_cases), adversarial=getattr(module, "adversarial", no_cases),
        terms=getattr(module, "terms", None), intermediates=getattr(module, "intermediates", None),
        mutants=getattr(module, "mutants", {}),
    )  # fmt: skip
    title, _, task = (module.__doc__ or name).strip().partition("\n")
    words = {"title": title.strip(" ."), "task": inspect.cleandoc(task) or title, "why": getattr(module, "why", "")}
    hints = getattr(module, "hints", [])
    words |= {"hints": [hints] if isinstance(hints, str) else list(hints), "note": getattr(module, "note", "")}
    tried(exercise, forward, path)
    return exercise, words | {"cases": getattr(module, "cases", {})}


def load(path: Path) -> ModuleType:
    module = ModuleType(f"variant_{path.stem}")
    module.__file__ = str(path)
    try:
        exec(compile(path.read_text("utf-8"), str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path}: the variant does not load: {type(error).__name__}: {error}") from error
    return module


def tried(exercise: Exercise, forward: Callable[..., Any], path: Path) -> None:
    """Called once: what is amiss with it is the teacher's to hear, not a learner's."""
    if unknown := [n for n in exercise.gradients if n not in exercise.parameters]:
        raise ValueError(f"{path}: `gradients` names {unknown[0]!r}, which is no parameter of {exercise.function}")
    try:
        arguments = exercise.arguments(np.random.default_rng(0))
        given = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arguments.items()}
        with np.errstate(all="ignore"):
            value = forward(*given.values())
    except Exception as error:
        raise ValueError(f"{path}: {exercise.function} stops with {type(error).__name__}: {error}") from error
    value = np.asarray(value) if isinstance(value, float) else value
    if not isinstance(value, np.ndarray) or value.dtype != np.float64 or not np.isfinite(value).all():
        what = f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
        wanted = "is to return one array of float64, all of it finite"
        raise ValueError(f"{path}: {exercise.function} {wanted}; it returned {what}")
    for n, a in arguments.items():
        if isinstance(a, np.ndarray) and not np.array_equal(a, given[n], equal_nan=a.dtype.kind == "f"):
            raise ValueError(f"{path}: {exercise.function} writes into {n}; let it work on a copy")


def annotated(forward: Callable[..., Any]) -> dict[str, str]:
    """Parameter → shape, of those that have one."""
    parameters = inspect.signature(forward).parameters.items()
    return {name: p.annotation.strip("\"'") for name, p in parameters if isinstance(p.annotation, str)}


def bare(forward: Callable[..., Any]) -> str:
    """The parameters without annotations: what a stub shows."""
    parameters = inspect.signature(forward).parameters.values()
    return ", ".join(str(p.replace(annotation=p.empty)) for p in parameters)


def drawn(forward: Callable[..., Any], shapes: dict[str, str], path: Path) -> Callable[[Rng], Arguments]:
    """Random arrays of the annotated shapes."""
    found = {s for shape in shapes.values() for s in axes(shape)} - {"..."}
    symbols = sorted(s for s in found if s.isidentifier())
    size = {s: int(s) for s in found if s.isdecimal()} | dict(zip(symbols, PRIMES))
    parameters = inspect.signature(forward).parameters
    if not shapes or len(size) < len(found):
        raise ValueError(f'{path}: say the shapes as annotations, x: "(..., n)", or write arguments(rng)')
    for name, p in parameters.items():
        if p.kind is not p.POSITIONAL_OR_KEYWORD or (name not in shapes and p.default is p.empty):
            raise ValueError(f"{path}: the parameter {p} needs a shape or a default")

    def arguments(rng: Rng) -> Arguments:
        made: Arguments = {}
        for name, p in parameters.items():
            if name not in shapes:
                made[name] = p.default
                continue
            shape = [n for s in axes(shapes[name]) for n in (LEADING if s == "..." else (size[s],))]
            made[name] = np.array(rng.standard_normal(shape))
        return made

    return arguments


def axes(shape: str) -> list[str]:
    return [s.strip() for s in re.sub(r"[()]", "", shape).split(",") if s.strip()]


def with_differences(forward: Callable[..., Any], gradients: tuple[str, ...]) -> Callable[..., Any]:
    """(value, backward) from a forward pass alone: every entry moved by h and 2h to both sides."""
    names = list(inspect.signature(forward).parameters)

    def function(*arguments: Any) -> Any:
        given = [np.array(a, float) if names[i] in gradients else a for i, a in enumerate(arguments)]

        def backward(dy: Array) -> tuple[Array, ...]:
            return tuple(slopes(lambda: (dy * forward(*given)).sum(), given[names.index(n)]) for n in gradients)

        return forward(*given), backward

    return function


def slopes(f: Callable[[], Any], x: Array) -> Array:
    """∂f/∂x for f that reads x, which is moved in place and put back."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        old = x[i]
        values = []
        for k in (-2, -1, 1, 2):
            x[i] = old + k * STEP
            values.append(float(f()))
        x[i] = old
        found[i] = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * STEP)
    return found
