"""The learner's folder: one file an exercise, never overwritten."""
from __future__ import annotations

import os
from pathlib import Path

from minitx.learn.exercise import Exercise
from minitx.learn.progress import set_aside
from minitx.learn.stub import stub

NAME = "minitx-exercises"


def folder(given: str | None = None) -> Path:
    """--folder, else ./minitx-exercises; inside that folder it is the folder itself."""
    if given:
        return Path(given)
    here = Path.cwd()
    return Path() if here.name == NAME else Path(NAME)


def file_of(where: Path, exercise: Exercise) -> Path:
    """softmax.py; underscores, so that one file can import another."""
    return where / f"{exercise.slug.replace('-', '_')}.py"


def ensure(where: Path, exercise: Exercise, lang: str) -> tuple[Path, bool]:
    """The learner's file, written if it is absent; and whether it was."""
    path = file_of(where, exercise)
    if path.exists():
        return path, False
    where.mkdir(parents=True, exist_ok=True)
    write_new(path, stub(exercise, lang))
    return path, True


def reset(where: Path, exercise: Exercise, lang: str) -> tuple[Path, Path | None]:
    """A fresh stub; the old file is kept under another name, which is returned too."""
    path = file_of(where, exercise)
    old = set_aside(path, "old") if path.exists() else None
    where.mkdir(parents=True, exist_ok=True)
    write_new(path, stub(exercise, lang))
    return path, old


def write_new(path: Path, text: str) -> None:
    """Fails where the file exists."""
    with open(path, "x", encoding="utf-8", newline="\n") as file:
        file.write(text)


def shown(path: Path) -> str:
    """As short as it can be said from here."""
    relative = os.path.relpath(path)
    return relative if not relative.startswith("..") else str(path)
