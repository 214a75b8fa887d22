"""All exercises in their order: found by slug, imported when they are asked for; a teacher's variants after them."""
from __future__ import annotations

import difflib
import importlib
import os
import re
from functools import cache
from pathlib import Path

from minitx.learn import language
from minitx.learn.exercise import Exercise
from minitx.learn.exercises import ORDER
from minitx.learn.variants import variant

VARIANTS = "MINITX_VARIANTS"  # the folder of a teacher's own exercises; --variants sets it


def variants_folder() -> Path | None:
    given = os.environ.get(VARIANTS)
    return Path(given) if given else None


class Unknown(ValueError):
    """There is no exercise of this slug; `near` is one that is spelt almost so."""

    def __init__(self, slug: str, near: str) -> None:
        hint = f"; did you mean {near}?" if near else ""
        super().__init__(f"there is no exercise {slug!r}{hint} (minitx learn list shows them all)")
        self.slug, self.near = slug, near

    def said(self, lang: str) -> str:
        return language.say(lang, "flow.unknown-near" if self.near else "flow.unknown", slug=self.slug, near=self.near)


def slugs() -> list[str]:
    """All of them, in order; the place in this list is the number that is shown."""
    return [*ORDER, *_variants()]


def _variants() -> dict[str, Path]:
    folder = variants_folder()
    if folder is None:
        return {}
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; --variants (or {VARIANTS}) names a folder of Python files")
    found = {path.stem.replace("_", "-"): path for path in sorted(folder.glob("[a-z]*.py"))}
    if taken := [path for slug, path in found.items() if slug in ORDER]:
        raise ValueError(f"{taken[0]}: there is an exercise of this name already; give the variant another one")
    return found


@cache
def exercise(slug: str) -> Exercise:
    """The exercise of this slug (layer_norm finds layer-norm; so do the learner's file and the number in the list)."""
    known = slugs()
    wanted = re.split(r"[/\\]", slug.strip().lower())[-1].removesuffix(".py").replace("_", "-")
    if wanted.isdigit() and 1 <= int(wanted) <= len(known):
        wanted = known[int(wanted) - 1]
    if wanted not in known:
        raise Unknown(slug, next(iter(difflib.get_close_matches(wanted, known, 1, 0.5)), ""))
    if wanted not in ORDER:
        made, words = variant(_variants()[wanted])
        language.add(wanted, words)
        return made
    found: Exercise = importlib.import_module(f"minitx.learn.exercises.{wanted.replace('-', '_')}").EXERCISE
    if found.slug != wanted:
        raise ValueError(f"exercises/{wanted.replace('-', '_')}.py holds {found.slug!r}: file and slug have one name")
    return found


def every() -> list[Exercise]:
    return [exercise(slug) for slug in slugs()]


def number(slug: str) -> int:
    """For display only: it changes when exercises are added."""
    return slugs().index(slug) + 1
