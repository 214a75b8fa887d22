"""The course as a learner walks it: the next exercise, checks, hints, the list, a fresh start, the solution."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from minitx.learn import progress
from minitx.learn.console import colour, pad, sign, width, wrap
from minitx.learn.exercise import Exercise
from minitx.learn.folder import ensure, file_of, folder, reset, shown
from minitx.learn.language import say, words
from minitx.learn.progress import Progress
from minitx.learn.render import rendered
from minitx.learn.runner import LIMIT, check_file
from minitx.learn.shelf import every, exercise, number, slugs
from minitx.learn.source import compared, solution_place, solution_source

Print = Callable[[str], None]


class Course:
    """A learner's folder, progress and language; every method is one command and returns its exit status."""

    def __init__(self, lang: str, where: str | None = None, limit: float = LIMIT, out: Print = print) -> None:
        self.lang, self.limit, self.out = lang, limit, out
        self.folder: Path = folder(where)

    def say(self, key: str, **values: object) -> str:
        return say(self.lang, f"flow.{key}", **values)

    def progress(self) -> Progress:
        found = progress.read(self.folder)
        if found.aside is not None:
            self.out(colour(self.say("damaged", aside=shown(found.aside)), "yellow"))
        return found

    def save(self, known: Progress) -> bool:
        """Only beside exercises: a hint asked for in some other folder leaves nothing there. Was it saved?"""
        if not self.folder.is_dir():
            return False
        try:
            known.save()
        except OSError as error:  # a folder that may only be read: all else goes on
            self.out(colour(self.say("unsaved", why=error.strerror or error), "yellow"))
            return False
        return True

    # ------------------------------------------------------------------ the next one, and a check

    def next(self) -> int:
        slug = self.unsolved()
        if slug is None:
            self.out(self.say("all-done"))
            return 0
        return self.one(exercise(slug))

    def unsolved(self) -> str | None:
        """The first in order that has not passed."""
        known = self.progress()
        return next((slug for slug in slugs() if not known.solved(slug)), None)

    def one(self, wanted: Exercise) -> int:
        path, new = ensure(self.folder, wanted, self.lang)
        if new:
            self.out(self.say("new", file=shown(path)))
        return self.checked(wanted)

    def check(self, slug: str) -> int:
        wanted = exercise(slug)
        if not self.folder.is_dir():
            raise ValueError(say(self.lang, "no.folder", folder=shown(self.folder)))
        return self.checked(wanted)

    def checked(self, wanted: Exercise) -> int:
        """Check a file, show the verdict, note it; 0 if it passed, 1 if not."""
        path = file_of(self.folder, wanted)
        self.out(f"{colour(wanted.slug, 'bold')}  {words(wanted.slug, self.lang)['title']}  ({shown(path)})\n")
        result = check_file(wanted, path, limit=self.limit)
        self.out(rendered(result, self.lang) + "\n")
        known = self.progress()
        if path.is_file():
            text = path.read_text("utf-8", errors="replace")
            known.note_check(wanted.slug, result.passed, result.failed, text)
            self.save(known)
        if not result.passed:
            if missing := [slug for slug in wanted.needs if slug in slugs() and not known.solved(slug)]:
                self.out(colour(self.say("needs", needs=", ".join(missing)), "dim"))
            self.out(self.say("hint", slug=wanted.slug))
            return 1
        self.out(colour(self.say("passed", slug=wanted.slug), "green") + "\n")
        if note := self.note(wanted):
            self.out(note + "\n")
        following = next((slug for slug in slugs() if not known.solved(slug)), None)
        title = words(following, self.lang)["title"] if following else ""
        self.out(self.say("next", slug=following, title=title) if following else self.say("all-done"))
        return 0

    def note(self, wanted: Exercise) -> str:
        if not words(wanted.slug, self.lang)["note"]:
            return ""
        return f"{self.say('note')}\n{wrap(words(wanted.slug, self.lang)['note'], indent='    ')}"

    # ------------------------------------------------------------------ hint, solution, reset

    def hint(self, slug: str, degree: int | None = None) -> int:
        """The next one, or the one asked for."""
        wanted = exercise(slug)
        hints = words(wanted.slug, self.lang)["hints"]
        if not hints:
            self.out(self.say("no-hints", slug=wanted.slug))
            return 0
        known = self.progress()
        n = known.note_hint(wanted.slug, len(hints), degree)
        kept = self.save(known)
        self.out(f"{self.say('hint-of', n=n, all=len(hints))}\n{wrap(hints[n - 1], indent='    ')}\n")
        last = "no-more-hints" if n == len(hints) else "more-hints"
        asked = wanted.slug if kept and degree is None else f"{wanted.slug} {n + 1}"
        self.out(colour(self.say(last, slug=wanted.slug if n == len(hints) else asked), "dim"))
        return 0

    def solution(self, slug: str) -> int:
        wanted = exercise(slug)
        place, text = solution_place(wanted), solution_source(wanted)
        if not place and not words(wanted.slug, self.lang)["hints"]:
            self.out(self.say("no-solution", slug=wanted.slug))
            return 0
        known = self.progress()
        if not known.solved(wanted.slug):
            known.note_solution(wanted.slug)
            if self.save(known):
                self.out(colour(self.say("seen"), "dim"))
        path = file_of(self.folder, wanted)
        if place:
            self.out(self.say("solution", where=place) + "\n")
            self.out(text)
            own = path.read_text("utf-8", errors="replace") if path.is_file() else ""
            if own:
                lines = compared(own, wanted)
                self.out(self.say("diff" if lines else "no-diff"))
                self.out("\n".join(_coloured(line) for line in lines) + "\n")
        else:
            self.out(wrap(words(wanted.slug, self.lang)["hints"][-1], indent="    ") + "\n")
        self.out(self.note(wanted))
        return 0

    def reset(self, slug: str) -> int:
        path, old = reset(self.folder, exercise(slug), self.lang)
        said = self.say("reset", file=shown(path), old=shown(old)) if old else self.say("reset-new", file=shown(path))
        self.out(said)
        return 0

    # ------------------------------------------------------------------ the list

    def list(self) -> int:
        known = self.progress()
        all_exercises = every()
        column = max(width(e.slug) for e in all_exercises) + 2
        part = None
        for wanted in all_exercises:
            if wanted.part != part:
                part = wanted.part
                self.out(f"\n{colour(say(self.lang, f'part.{part}'), 'bold')}")
            done = known.solved(wanted.slug)
            mark = colour(sign("✓", "+"), "green") if done else " "
            title = words(wanted.slug, self.lang)["title"]
            line = f" {mark} {number(wanted.slug):3}  {pad(wanted.slug, column)}{pad(title, 44)}{wanted.minutes:3} min"
            self.out(f"{line}  {colour(self.remark(known, wanted), 'dim')}".rstrip())
        solved = sum(known.solved(slug) for slug in slugs())
        self.out("\n" + self.say("solved", n=solved, all=len(slugs())))
        return 0

    def remark(self, known: Progress, wanted: Exercise) -> str:
        """What the progress file says beside passed or not."""
        if wanted.slug not in known.data.get("exercises", {}):
            return ""
        entry, path = known.of(wanted.slug), file_of(self.folder, wanted)
        parts = [self.say("attempts", n=entry["attempts"])] if entry.get("attempts") else []
        parts += [self.say("hints-seen", n=entry["hints"])] if entry.get("hints") else []
        parts += [self.say("looked")] if entry.get("solution") else []
        text = path.read_text("utf-8", errors="replace") if path.is_file() else ""
        if text and entry.get("passed") and progress.digest(text) != entry.get("digest"):
            parts.append(self.say("edited"))
        return ", ".join(parts)


def _coloured(line: str) -> str:
    return colour(line, "red") if line.startswith("-") else colour(line, "green") if line.startswith("+") else line
