"""An exercise or a symbol in words: the task, the equation, and the glossary's rows for its symbols."""
from __future__ import annotations

import re

from minitx.learn.console import pad, width, wrap
from minitx.learn.exercise import Exercise
from minitx.learn.flow import Course
from minitx.learn.language import words
from minitx.learn.shelf import exercise, slugs
from minitx.learn.source import solution_place

Row = dict[str, str]  # symbol, name, shape, file


def explain(course: Course, what: str) -> int:
    """A slug, a symbol (γ, dy), or a word of the glossary (logits)."""
    rows = glossary(course.lang)
    chosen = [row for row in rows if what.lower() in (row["symbol"].lower(), *_names(row))]
    if chosen and what.replace("_", "-") not in slugs():
        course.out(table(chosen))
        return 0
    wanted = exercise(what)
    text = words(wanted.slug, course.lang)
    course.out(f"{text['title']}\n\n{wrap(text['task'])}\n")
    if wanted.equation:
        course.out("\n".join(f"    {line}" for line in wanted.equation.splitlines()) + "\n")
    if wanted.shapes:
        column = max(map(width, wanted.shapes)) + 2
        course.out("\n".join(f"    {pad(name, column)}{shape}" for name, shape in wanted.shapes.items()) + "\n")
    if text["why"]:
        course.out(wrap(text["why"]) + "\n")
    if rows := [row for row in rows if row["symbol"] in symbols(wanted) - set(wanted.shapes)]:
        course.out(f"{course.say('glossary')}\n{table(rows)}\n")
    if place := solution_place(wanted):
        course.out(course.say("op-page", where=place.partition(":")[0]))
    return 0


def glossary(lang: str) -> list[Row]:
    rows: list[Row] = words("glossary", lang)["rows"]
    return rows


def symbols(wanted: Exercise) -> set[str]:
    """Every word of the equation and the shapes."""
    text = " ".join([wanted.equation, *wanted.shapes, *wanted.shapes.values()])
    found = set(re.findall(r"[^\W\d]\w*|[σμγβερŷ]̂?", text))
    return found | {name.partition("_")[0] for name in found}


def table(rows: list[Row]) -> str:
    columns = {name: max(width(row[name]) for row in rows) + 2 for name in ("symbol", "shape", "file")}
    return "\n".join(
        "    " + "".join(pad(row[name], wide) for name, wide in columns.items()) + row["name"] for row in rows
    )


def _names(row: Row) -> list[str]:
    return [name.strip().lower() for name in re.split(r"[,;(),;()]", row["name"]) if name.strip()]
