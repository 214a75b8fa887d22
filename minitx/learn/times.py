"""How long a learner waits.

    python -m minitx.learn.times        medians of five: start-up, a check in the terminal, what a save sets off
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from minitx.learn.flow import Course
from minitx.learn.folder import file_of
from minitx.learn.ladder import climb
from minitx.learn.report import as_function
from minitx.learn.runner import environment
from minitx.learn.shelf import every, exercise
from minitx.learn.walk import versions
from minitx.learn.watch import watch

REPEATS = 5


def main() -> int:
    """Each line: what, and the seconds."""
    with tempfile.TemporaryDirectory() as scratch:
        texts = {slug: text for slug, text, _ in versions()}  # the last of each is right
        for slug, text in texts.items():
            file_of(Path(scratch), exercise(slug)).write_text(text, "utf-8")
        said("start-up: minitx learn --help", lambda: command("--help"))
        said("start-up: minitx learn list", lambda: command("list", "--folder", scratch))
        for slug in texts:
            said(f"minitx learn check {slug}", lambda slug=slug: command("check", slug, "--folder", scratch))  # type: ignore[misc]
        said("watch: from a save to the verdict", lambda: reaction(scratch))
    slowest = max((climb(e, as_function(e)).seconds, e.slug) for e in every() if e.judge is None)
    print(f"{'the slowest check of a solution itself, ' + slowest[1]:60}{slowest[0]:8.2f} s")
    return 0


def said(what: str, run: Callable[[], float | None]) -> None:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        measured = run()
        times.append(time.perf_counter() - start if measured is None else measured)
    print(f"{what:60}{median(times):8.2f} s", flush=True)


def command(*words: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "minitx", "learn", *words], check=True, env=environment(), stdout=subprocess.DEVNULL
    )


def reaction(scratch: str) -> float:
    """A save while `watch` waits: the time until the verdict is there."""
    saved = [0.0]
    seen: list[float] = []
    path = file_of(Path(scratch), exercise("softmax"))

    def save() -> None:
        saved[0] = time.perf_counter()
        os.utime(path)

    def out(text: str) -> None:
        if text.startswith("\n") and not saved[0]:  # it waits from now on
            threading.Timer(0.3, save).start()
        elif saved[0]:
            seen.append(time.perf_counter() - saved[0])

    watch(Course("en", scratch, out=out), "softmax", rounds=2)
    return seen[1]  # the first is the heading, the second the verdict


if __name__ == "__main__":
    raise SystemExit(main())
