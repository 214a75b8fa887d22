"""The words a learner sees, in English and in Chinese: data under words/, chosen by --lang or the locale.

    python -m minitx.learn.language SLUG ...     marks the two files of a slug as translations of each other
"""
from __future__ import annotations

import hashlib
import locale
import os
import string
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "zh")
WORDS = Path(__file__).parent / "words"
Words = dict[str, Any]


def chosen(lang: str | None = None) -> str:
    """The language asked for, else that of the locale, else English."""
    if lang:
        if lang not in LANGUAGES:
            raise ValueError(f"--lang is one of {', '.join(LANGUAGES)}, not {lang!r}")
        return lang
    names = [os.environ.get(name, "") for name in ("LC_ALL", "LC_MESSAGES", "LANG")]
    said = next((name for name in names if name), "") or (locale.getlocale()[0] or "")  # (Windows has only the latter)
    return "zh" if said.lower().startswith(("zh", "chinese")) else "en"


_added: dict[str, Words] = {}


def add(name: str, words: Words) -> None:
    """Words that are in no file here: a teacher's."""
    _added[name] = words


@cache
def words(name: str, lang: str) -> Words:
    """words/LANG/NAME.toml: that of an exercise by its slug, the frame's own by `frame`, `glossary`."""
    if name in _added:
        return _added[name]
    return tomllib.loads((WORDS / lang / f"{name}.toml").read_text("utf-8"))


def say(lang: str, key: str, **values: Any) -> str:
    """A sentence of the frame: `diagnosis.factor` and the values of its placeholders."""
    return str(find(words("frame", lang), key)).format(**values)


def find(table: Words, key: str) -> Any:
    value: Any = table
    for part in key.split("."):
        value = value[part]
    return value


# ---------------------------------------------------------------------- two languages, one content


def leaves(table: Any, path: str = "") -> dict[str, str]:
    """All texts of a file by their path: `hints.0`, `terms.x.1`."""
    if not isinstance(table, dict | list):
        return {path: str(table)}
    parts = table.items() if isinstance(table, dict) else enumerate(table)
    return {k: v for name, part in parts for k, v in leaves(part, f"{path}.{name}" if path else str(name)).items()}


def placeholders(text: str) -> set[str]:
    """The names in braces: what the frame fills in."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def digest(name: str, lang: str) -> str:
    """Of a file's texts, its own mark left out."""
    texts = leaves(tomllib.loads((WORDS / lang / f"{name}.toml").read_text("utf-8")))
    texts.pop("mark", None)
    return hashlib.sha256(repr(sorted(texts.items())).encode()).hexdigest()[:12]


def mark(name: str) -> None:
    """Each file of the pair takes the digest of the other one: `mark = "..."` in its first line."""
    for lang, other in (LANGUAGES, LANGUAGES[::-1]):
        path = WORDS / lang / f"{name}.toml"
        lines = path.read_text("utf-8").splitlines(keepends=True)
        if lines and lines[0].startswith("mark ="):
            lines = lines[1:]
        path.write_text("".join([f'mark = "{digest(name, other)}"\n', *lines]), "utf-8", newline="\n")


if __name__ == "__main__":
    for slug in sys.argv[1:]:
        mark(slug)
