"""A verdict in words: the rungs, what was found, a picture of the wrong entries."""
from __future__ import annotations

import os
import shutil
from typing import Any

from minitx.learn.console import blocks, colour, sign, wrap
from minitx.learn.finding import Finding, Verdict
from minitx.learn.language import find, say, words

INDENT = "    "


def rendered(verdict: Verdict, lang: str) -> str:
    """All that a check shows."""
    parts = [ladder(verdict, lang)]
    if verdict.held_back:
        parts.insert(0, INDENT + say(lang, "held-back", n=verdict.held_back))
    if not verdict.passed:
        columns = min(100, shutil.get_terminal_size((100, 24)).columns)
        parts += [wrap(sentence(found, verdict.slug, lang), columns, INDENT) for found in verdict.told]
        if verdict.heat is not None and (not verdict.explained or _partly(verdict.heat)):
            parts.append(picture(verdict.heat, lang))
    return "\n\n".join(parts)


def _partly(heat: dict[str, Any]) -> bool:
    """Some of the entries are right: then the picture shows a pattern."""
    return any(level == 0 for row in heat["rows"] for level in row)


def ladder(verdict: Verdict, lang: str) -> str:
    """The rungs that were climbed, by number, and the one that was not; by name when it was all of them."""
    good, bad = colour(sign("✓", "+"), "green"), colour(sign("✗", "x"), "red")
    if verdict.failed is None:
        return "\n".join(f"  {good} {n} {say(lang, f'rung.{n}')}" for n in verdict.climbed)
    climbed = "".join(f"{good} {n}  " for n in verdict.climbed)
    return f"  {climbed}{bad} {verdict.failed} {colour(say(lang, f'rung.{verdict.failed}'), 'bold')}"


def sentence(found: Finding, slug: str, lang: str) -> str:
    """A finding in the learner's language."""
    key = found.key if "." in found.key else f"found.{found.key}"
    values = dict(found.values)
    if not key.startswith("no."):  # (the text of an exception may begin with any sign)
        values = {name: _worded(value, slug, lang, values) for name, value in values.items()}
    values = {name: _shown(value) for name, value in values.items()}
    if key == "no.function" and values["near"]:
        values["near"] = say(lang, "no.near", name=values["near"])
    if key == "no.unwritten" and not values["file"]:  # in a notebook
        key = "no.unwritten-here"
    if key == "found.shape" and not values["symbols"]:
        key = "found.shape-plain"
    return say(lang, key, **values)


def _worded(value: Any, slug: str, lang: str, values: dict[str, Any]) -> Any:
    """A key of the exercise's words, "@cases.large", becomes its text."""
    if isinstance(value, list) and value and isinstance(value[0], str):
        return "; ".join(_worded(v, slug, lang, values) for v in value)
    if not (isinstance(value, str) and value.startswith("@")):
        return value
    try:
        text = str(find(words(slug, lang), value[1:]))
    except KeyError:
        return value.rpartition(".")[2]
    if not value.startswith("@says."):
        return text
    return text.format(**{n: _shown(v) for n, v in values.items() if n != "text"})


def _shown(value: Any) -> Any:
    """A shape that went through JSON is a tuple again; a path is as short as it can be said from here."""
    if isinstance(value, list):
        return f"({', '.join(map(str, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, str) and os.path.isabs(value) and os.path.exists(value):
        near = os.path.relpath(value)
        return value if near.startswith("..") else near
    return value


def picture(heat: dict[str, Any], lang: str) -> str:
    """Wrong entries of a matrix: the fuller the block, the larger the error; an empty place is right."""
    signs = blocks()
    where = f"[{', '.join(map(str, heat['slice']))}]" if heat["slice"] else ""
    rows = ["".join(signs[level] * 2 for level in row) for row in heat["rows"]]
    more = " ..." if heat["cut"] else ""
    frame = sign("│", "|")
    lines = [f"{INDENT}{heat['name']}{where}: {say(lang, 'picture', signs=' '.join(signs[1:]))}{more}"]
    return "\n".join([*lines, *(f"{INDENT}  {frame}{row}{frame}" for row in rows)])
