"""What an exercise is: a function to write, numbers to try it on, and what is known about right and wrong answers.

Words (title, task, hints, names of the terms) are not here: they are data, words/en/SLUG.toml and words/zh/SLUG.toml.
"""
from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitx.op import Array as Array
from minitx.op import registry

Rng = np.random.Generator
Arguments = dict[str, Any]  # name → value, in the order of the signature; floats are float64
Cases = dict[str, Arguments]  # a key of the words' [cases] → arguments
Solution = Callable[..., Any]  # the arguments by position → the value, or (value, backward)
Gradients = dict[str, Array]
Said = tuple[str, dict[str, Any]]  # a key of the words' [says], and the values of its placeholders


def no_cases(rng: Rng) -> Cases:
    return {}


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One function that a learner writes; how to write an exercise: exercises/__init__.py."""

    slug: str
    part: int  # 0 the instrument, 1 the ops, 2 hunts, 3 questions
    minutes: int  # 10, 30 or 90
    needs: tuple[str, ...] = ()  # slugs of what has to be solved before
    idioms: tuple[str, ...] = ()  # the NumPy that it takes, as code: "x.max(-1, keepdims=True)"
    equation: str = ""  # the forward pass; one line, or several
    shapes: dict[str, str] = field(default_factory=dict)  # symbol → shape: arguments, results, and what is in between

    function: str  # the name in the learner's file
    signature: str | None  # its parameters as Python: "x, weight, bias, eps=1e-5"; None: a value, no function
    results: tuple[str, ...] = ("y",)  # what the forward pass returns
    gradients: tuple[str, ...] = ()  # the arguments with a gradient, in the order of backward's answer

    op: str = ""  # the minitx op that is the solution, called with the arguments by name; or:
    solution: Solution | None = None  # called with the arguments by position, as the learner's function is

    arguments: Callable[[Rng], Arguments]  # fresh; sizes distinct primes, away from kinks and ties, gains random
    forward_cases: Callable[[Rng], Cases] = no_cases  # where the value is easily wrong: large logits, masked rows
    adversarial: Callable[[Rng], Cases] = no_cases  # value and gradient are the solution's: ties, repeats, T_q != T_k
    numbers: Callable[..., dict[str, float]] | None = None  # (*arguments) → what a wrong factor may be: {"N": 13}
    terms: Callable[..., dict[str, list[Array]]] | None = None  # (dy, *arguments) → {"x": [term 1, term 2]}, signed
    intermediates: Callable[..., dict[str, Array]] | None = None  # (dy, *arguments) → {"dxhat": ...}, as computed
    mutants: dict[str, Any] = field(default_factory=dict)  # key of [mutants] → a wrong solution
    unusual: dict[str, Solution] = field(default_factory=dict)  # correct solutions by other ways; must pass

    starter: str = ""  # hunts: the file that the learner gets, with the fault in it, instead of a stub
    mended: str = ""  # the same file without the fault
    judge: Callable[[Any, Rng], Said | None] | None = None  # where comparing with a solution is not the question
    answer: Any = None  # of a question; its `mutants` are the wrong answers that have a sentence of their own

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names in the signature."""
        function: Any = ast.parse(f"def f({self.signature or ''}): pass").body[0]
        return tuple(a.arg for a in function.args.args)

    @property
    def backward(self) -> bool:
        return bool(self.gradients)

    def solve(self, arguments: Arguments, function: Solution | None = None) -> tuple[Any, Callable[[Any], Gradients]]:
        """The value, and the gradients by name: the solution's, or those of a function with the learner's signature."""
        arguments = {name: copied(a) for name, a in arguments.items()}
        function = function or self.solution
        slots = list(range(len(self.gradients)))
        backward: Any = None
        if function is not None:
            value = function(*arguments.values())
            if self.backward:
                value, backward = value
        else:
            value, backward = registry[self.op].rule(**arguments)
            slots = [registry[self.op].slot[name] for name in self.gradients]

        def pull(dy: Any) -> Gradients:
            if not self.backward:
                return {}
            given = backward(copied(dy))
            parts = given if isinstance(given, tuple) else (given,)
            return {name: np.asarray(parts[i]) for name, i in zip(self.gradients, slots)}

        return value, pull


def question(slug: str, answer: Any, misses: dict[str, Any] | None = None, **more: Any) -> Exercise:
    """A question with a number, a word or a tuple for an answer; misses: a key of [says] → the wrong answer it is for.

    Any other wrong answer is met with the words' [says] `other`.
    """

    def judge(given: Any, rng: Rng) -> Said | None:
        same = same_answer(given, answer)
        return None if same else next(((key, {}) for key, m in (misses or {}).items() if same_answer(given, m)), OTHER)

    return Exercise(
        slug=slug, part=3, minutes=10, function="answer", signature=None, arguments=lambda rng: {}, judge=judge,
        answer=answer, mutants=misses or {}, **more,
    )  # fmt: skip


def copied(a: Any) -> Any:
    """An array, or a tuple of them, that may be written into."""
    if isinstance(a, tuple):
        return tuple(map(copied, a))
    return a.copy() if isinstance(a, np.ndarray) else a


OTHER: Said = ("other", {})


def same_answer(given: Any, right: Any) -> bool:
    """Numbers to five digits, words without regard to case and blanks, tuples and lists entry by entry."""
    if isinstance(right, str):
        return isinstance(given, str) and "".join(given.lower().split()) == "".join(right.lower().split())
    if isinstance(given, str):
        return False
    try:
        a, b = np.asarray(given, float), np.asarray(right, float)
    except (TypeError, ValueError):
        return False
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-5, atol=0))
