"""The solution as text, without what only its page needs, and the way to it from the learner's function."""
from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minitx.learn.exercise import Exercise
from minitx.learn.variants import PART
from minitx.op import registry


def solution_function(exercise: Exercise) -> Callable[..., Any] | None:
    """None for a question, and for a variant, of which there is only a forward pass."""
    if exercise.part == PART:
        return None
    if exercise.solution is not None:
        return exercise.solution
    return registry[exercise.op].definition if exercise.op else None


def solution_place(exercise: Exercise) -> str:
    """minitx/ops/softmax.py:softmax; "" for an exercise without a solution function."""
    function = solution_function(exercise)
    if function is None:
        return ""
    file = Path(inspect.getsourcefile(function) or "").resolve()
    root = Path(__file__).resolve().parents[2]
    return f"{file.relative_to(root).as_posix()}:{function.__name__}"


def solution_source(exercise: Exercise) -> str:
    """The code of the solution, its comments kept."""
    function = solution_function(exercise)
    if function is None:
        return ""
    if exercise.mended:
        return "\n".join(_changes(exercise.starter, exercise.mended)) + "\n"
    return _plain(textwrap.dedent(inspect.getsource(function)))


def compared(own: str, exercise: Exercise) -> list[str]:
    """A diff from the learner's function to the solution; of a hunt, from file to file."""
    if exercise.mended:
        first = exercise.mended.partition("\n")[0]
        return _changes(own[max(own.find(first), 0) :], exercise.mended)
    try:
        tree = ast.parse(own)
        node = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == exercise.function)
        text = ast.get_source_segment(own, node) or own
    except (SyntaxError, StopIteration, ValueError):
        text = own
    old, new = text.strip("\n").splitlines(), solution_source(exercise).strip("\n").splitlines()
    return [line.rstrip("\n") for line in difflib.unified_diff(old, new, lineterm="", n=99)][2:]


def _changes(old: str, new: str) -> list[str]:
    """Where two files differ, two lines around it."""
    before, after = old.strip("\n").splitlines(), new.strip("\n").splitlines()
    return list(difflib.unified_diff(before, after, lineterm="", n=2))[2:]


def _plain(text: str) -> str:
    """Without docstring, decorator, annotations and remarks to the type checker."""
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    lines = text.splitlines()
    first = node.body[1] if ast.get_docstring(node, clean=False) is not None else node.body[0]
    head = f"def {node.name}({_parameters(node)}):"
    body = "\n".join(lines[first.lineno - 1 :])
    body = re.sub(r"^(\s*def \w+\().*?(\)) *(->.*)?:$", lambda m: _bare(m.group(0)), body, flags=re.M)
    body = re.sub(r"^(\s*\w+): [\w\[\], |.]+ = ", r"\1 = ", body, flags=re.M)
    return f"{head}\n{re.sub(r'  # type: ignore.*?(?=  #|$)', '', body, flags=re.M)}\n"


def _parameters(node: ast.FunctionDef) -> str:
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(node.args)


def _bare(line: str) -> str:
    """An inner `def` without annotations."""
    indent = line[: len(line) - len(line.lstrip())]
    node = ast.parse(line.strip() + " pass").body[0]
    assert isinstance(node, ast.FunctionDef)
    return f"{indent}def {node.name}({_parameters(node)}):"
