"""Checks again at every save."""
from __future__ import annotations

import time
from pathlib import Path

from minitx.learn.exercise import Exercise
from minitx.learn.flow import Course
from minitx.learn.folder import ensure, file_of, shown
from minitx.learn.shelf import exercise

PAUSE = 0.1  # seconds between two looks at the file


def watch(course: Course, slug: str | None = None, rounds: int | None = None) -> int:
    """The exercise that is open now, at every save; after a pass the next one. `rounds`: so many checks, for tests."""
    done = 0
    while rounds is None or done < rounds:
        now = slug or course.unsolved()
        if now is None:
            return course.next()
        wanted = exercise(now)
        ensure(course.folder, wanted, course.lang)
        seen = stamp(file_of(course.folder, wanted))
        passed = course.checked(wanted) == 0
        done += 1
        if passed and not slug:
            continue
        course.out("\n" + course.say("watching", file=shown(file_of(course.folder, wanted))))
        if rounds is None or done < rounds:
            wait(course, wanted, seen)
    return 0


def wait(course: Course, wanted: Exercise, seen: tuple[int, int]) -> None:
    """Until the file is another one (an editor may remove it for a moment)."""
    path = file_of(course.folder, wanted)
    while stamp(path) in (seen, (0, 0)):
        time.sleep(PAUSE)


def stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
