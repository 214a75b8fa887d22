"""What has been solved, kept in one small file beside the exercises, by slug.

Entries that this version does not know (an exercise renamed, a newer package) are kept as they are. A file that cannot
be read is moved aside, never overwritten.
"""
from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from minitx.files import write_bytes

NAME = "progress.json"
SCHEMA = 1


@dataclass
class Progress:
    path: Path
    data: dict[str, Any] = field(default_factory=dict)
    aside: Path | None = None  # where a damaged file was put

    def of(self, slug: str) -> dict[str, Any]:
        """The entry of an exercise, which may be changed; `save` writes it."""
        entries: dict[str, Any] = self.data.setdefault("exercises", {})
        entry = entries.setdefault(slug, {})
        if not isinstance(entry, dict):
            entry = entries[slug] = {"unreadable": entry}
        return entry

    def solved(self, slug: str) -> bool:
        entry = self.data.get("exercises", {}).get(slug)
        return isinstance(entry, dict) and bool(entry.get("passed"))

    def note_check(self, slug: str, passed: bool, rung: int | None, text: str) -> None:
        entry = self.of(slug)
        entry["attempts"] = _count(entry, "attempts") + 1
        entry["rung"] = rung  # the one that failed last, None: all climbed
        if passed:
            entry.setdefault("passed", now())
            entry["digest"] = digest(text)

    def note_hint(self, slug: str, most: int, wanted: int | None = None) -> int:
        """The number of the hint wanted, else of the next one, from 1; the last one again when all have been seen."""
        entry = self.of(slug)
        seen = _count(entry, "hints")
        n = min(seen + 1 if wanted is None else wanted, most)
        entry["hints"] = max(seen, n) if wanted else n
        return n

    def note_solution(self, slug: str) -> None:
        """Only before a pass is it worth a note."""
        if not self.solved(slug):
            self.of(slug).setdefault("solution", now())

    def save(self) -> None:
        self.data["schema"] = SCHEMA
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(self.path, (json.dumps(self.data, indent=1, ensure_ascii=False) + "\n").encode("utf-8"))


def read(folder: Path) -> Progress:
    path = folder / NAME
    try:
        data = json.loads(path.read_text("utf-8"))
        if not isinstance(data, dict) or not isinstance(data.get("exercises", {}), dict):
            raise ValueError("not what minitx writes")
    except FileNotFoundError:
        return Progress(path)
    except (ValueError, RecursionError):
        return Progress(path, {}, set_aside(path, "damaged"))
    return Progress(path, data)


def set_aside(path: Path, why: str) -> Path:
    """Rename a file to one that is not there yet: progress.damaged-1.json."""
    n = 1
    while (other := path.with_name(f"{path.stem}.{why}-{n}{path.suffix}")).exists():
        n += 1
    path.rename(other)
    return other


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def now() -> str:
    return datetime.now().isoformat(timespec="minutes")


def _count(entry: dict[str, Any], name: str) -> int:
    value = entry.get(name, 0)
    return max(value, 0) if isinstance(value, int) else 0
