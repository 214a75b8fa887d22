"""For teachers: every exercise of every folder, each in a process of its own, with points for each rung."""
from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from minitx.learn import exercises as exercises_package
from minitx.learn import progress
from minitx.learn.exercise import Exercise
from minitx.learn.finding import Verdict
from minitx.learn.folder import file_of
from minitx.learn.language import say
from minitx.learn.render import sentence
from minitx.learn.runner import LIMIT, check_file
from minitx.learn.shelf import every, exercise, variants_folder

SCHEMA = 1
FORWARD, GRADIENTS, ODD = 30.0, 50.0, 20.0  # points for rungs 1-2, 3-6, 7
COLUMNS = ["folder", "slug", "points", "of", "failed", "attempts", "hints", "solution", "passed", "seconds"]


def grade(
    folders: Sequence[str], only: Sequence[str] = (), seed: int = 0, lang: str = "en", limit: float = LIMIT
) -> dict[str, Any]:
    """The whole result, as it is written to JSON."""
    paths = [Path(folder) for folder in dict.fromkeys(folders)]
    if missing := [str(path) for path in paths if not path.is_dir()]:
        raise ValueError(f"{missing[0]} is no folder; grade takes the folders in which learners' files are")
    chosen = list({wanted.slug: wanted for wanted in map(exercise, only)}.values()) if only else every()
    jobs = [(path, wanted) for path in paths for wanted in chosen]
    with ThreadPoolExecutor(max_workers=max(1, min(4, (os.cpu_count() or 2) // 2))) as pool:
        rows = list(pool.map(lambda job: row(*job, seed=seed, lang=lang, limit=limit), jobs))
    return {
        "schema": SCHEMA,
        "versions": {"minitx": _version(), "numpy": np.__version__, "python": platform.python_version()},
        "exercises": digest(),
        "seed": seed,
        "results": rows,
        "totals": {str(path): _total([r for r in rows if r["folder"] == str(path)]) for path in paths},
    }


def row(folder: Path, wanted: Exercise, *, seed: int, lang: str, limit: float) -> dict[str, Any]:
    """One exercise of one learner."""
    path = file_of(folder, wanted)
    result = check_file(wanted, path, seed=seed, limit=limit, quiet=True)
    entry = _noted(folder, wanted.slug)
    diagnosis = [" ".join(sentence(found, wanted.slug, lang).split()) for found in result.told]
    return {
        "folder": str(folder),
        "slug": wanted.slug,
        "points": points(result, wanted),
        "of": 100.0,
        "failed": result.failed,
        "attempts": entry.get("attempts", 0),
        "hints": entry.get("hints", 0),
        "solution": entry.get("solution", ""),
        "passed": entry.get("passed", ""),
        "seconds": round(result.seconds, 3),
        "diagnosis": diagnosis if path.is_file() else [say(lang, "grade.absent")],
        "findings": [{"key": found.key, "values": _plain(found.values)} for found in result.findings],
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
    }


def points(result: Verdict, wanted: Exercise) -> float:
    """100 for all rungs; without a backward pass what it would bring goes to the forward pass."""
    if wanted.judge is not None:
        return 100.0 if result.passed else 0.0
    worth = {1: FORWARD / 2, 2: FORWARD / 2, 3: 5.0, 4: 5.0, 5: 10.0, 6: GRADIENTS - 20.0, 7: ODD}
    if not wanted.backward:
        worth = {1: (FORWARD + GRADIENTS) / 2, 2: (FORWARD + GRADIENTS) / 2, 7: ODD}
    return sum(worth[n] for n in result.climbed)


def _noted(folder: Path, slug: str) -> dict[str, Any]:
    """What the learner's progress file says; a teacher's run changes nothing in the folder."""
    try:
        data = json.loads((folder / progress.NAME).read_text("utf-8"))
        entry = data["exercises"][slug]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """NaN and infinity as words: JSON has no such numbers."""
    return {n: str(v) if isinstance(v, float) and not math.isfinite(v) else v for n, v in values.items()}


def _total(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {"points": sum(r["points"] for r in rows), "of": sum(r["of"] for r in rows)}


def _version() -> str:
    try:
        return version("minitx")
    except PackageNotFoundError:
        return "unknown"


def digest() -> str:
    """Of the exercise set: two grades are comparable where this is the same."""
    folders = [Path(exercises_package.__file__).parent, *filter(None, [variants_folder()])]
    found = hashlib.sha256()
    for file in sorted(path for folder in folders for path in folder.glob("*.py")):
        found.update(file.name.encode() + b"\0" + file.read_bytes().replace(b"\r\n", b"\n") + b"\0")
    return found.hexdigest()[:16]


# ---------------------------------------------------------------------- files


def as_csv(result: dict[str, Any]) -> str:
    """One line a learner and exercise."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [*COLUMNS, "diagnosis"], extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for r in result["results"]:
        writer.writerow(r | {"diagnosis": " | ".join(r["diagnosis"])})
    return out.getvalue()


def as_table(result: dict[str, Any]) -> str:
    """For the terminal: every exercise that is not whole, and the totals."""
    lines = []
    for folder, total in result["totals"].items():
        lines.append(f"{folder}: {total['points']:g} of {total['of']:g}")
        for r in result["results"]:
            if r["folder"] == folder and r["points"] < r["of"]:
                said = r["diagnosis"][0] if r["diagnosis"] else ""
                lines.append(f"    {r['slug']:24}{r['points']:6g}  {said[:110]}")
    return "\n".join(lines)


def dumped(result: dict[str, Any]) -> str:
    return json.dumps(result, indent=1, ensure_ascii=False, default=str, allow_nan=False) + "\n"

