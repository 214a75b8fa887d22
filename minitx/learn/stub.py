"""The file that a learner starts from: the task in words, the equation, the shapes, and the places to fill in."""
from __future__ import annotations

from minitx.learn.console import pad, width, wrap
from minitx.learn.exercise import Exercise
from minitx.learn.language import say, words

HOLE = "..."  # in the learner's file: not written yet


def stub(exercise: Exercise, lang: str) -> str:
    """The text of a new file."""
    head = f'"""{_heading(exercise, lang)}\n"""\n'
    if exercise.starter:
        return head + "\n" + exercise.starter.strip("\n") + "\n"
    if exercise.signature is None:
        return f"{head}\n{exercise.function} = {HOLE}  # {say(lang, 'stub.answer')}\n"
    return f"{head}import numpy as np\n\n\n{_function(exercise, lang)}"


def _heading(exercise: Exercise, lang: str) -> str:
    text = words(exercise.slug, lang)
    parts = [f"{text['title']} ({say(lang, 'stub.minutes', minutes=exercise.minutes)})", wrap(text["task"])]
    if exercise.equation:
        parts.append("\n".join(f"    {line}" for line in exercise.equation.splitlines()))
    if exercise.shapes:
        column = max(map(width, exercise.shapes)) + 2
        lines = [f"    {pad(name, column)}{shape}" for name, shape in exercise.shapes.items()]
        parts.append("\n".join([say(lang, "stub.shapes"), *lines]))
    parts.append(wrap(text["why"]))
    if exercise.idioms:
        parts.append("\n".join([say(lang, "stub.idioms"), *(f"    {idiom}" for idiom in exercise.idioms)]))
    if names := {n: what for n, what in text.get("names", {}).items() if n not in exercise.results}:
        column = max(map(width, names)) + 2
        lines = [f"    {pad(name, column)}{what}" for name, what in names.items()]
        parts.append("\n".join([say(lang, "stub.names"), *lines]))
    if exercise.needs:
        parts.append(say(lang, "stub.needs", needs=", ".join(exercise.needs)))
    parts.append(say(lang, "stub.check", slug=exercise.slug))
    return "\n\n".join(part.replace("\\", "\\\\").replace('"""', "'''") for part in parts if part)


def _function(exercise: Exercise, lang: str) -> str:
    """`def softmax(x): y = ... def backward(dy): ...`"""
    shapes = exercise.shapes
    lines = [f"def {exercise.function}({exercise.signature}):"]
    results = ", ".join(exercise.results)
    for i, name in enumerate(exercise.results):
        shape = f"  # {shapes[name]}" if name in shapes else ""
        here = say(lang, "stub.forward" if exercise.backward else "stub.here")
        lines.append(f"    {name} = {HOLE}" + (f"{shape or '  #'}  {here}" if i == 0 else shape))
    if not exercise.backward:
        return "\n".join([*lines, f"    return {results}", ""])
    dy = cotangent_name(exercise)
    lines += ["", f"    def backward({dy}):"]
    if len(exercise.results) > 1:
        lines.append(f"        {', '.join(f'd{n}' for n in exercise.results)} = {dy}")
    for i, name in enumerate(exercise.gradients):
        shape = f"  # {shapes[name]}" if name in shapes else ""
        remark = f"{shape or '  #'}  {say(lang, 'stub.backward')}" if i == 0 else shape
        lines.append(f"        d{name} = {HOLE}{remark}")
    lines.append(f"        return {', '.join(f'd{n}' for n in exercise.gradients)}")
    value = f"({results})" if len(exercise.results) > 1 else results
    return "\n".join([*lines, "", f"    return {value}, backward", ""])


def cotangent_name(exercise: Exercise) -> str:
    """dy for a result called y; `cotangents` where there are several."""
    return f"d{exercise.results[0]}" if len(exercise.results) == 1 else "cotangents"
