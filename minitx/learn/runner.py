"""Check a learner's file in a process of its own, with a limit on its time."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from minitx.learn.exercise import Exercise
from minitx.learn.finding import Finding, Verdict, verdict

LIMIT = 10.0  # seconds; a check takes less than one
GRACE = 5.0  # for starting Python, and for what cannot be interrupted


def check_file(exercise: Exercise, file: Path, *, limit: float = LIMIT, seed: int = 0, quiet: bool = False) -> Verdict:
    """The verdict on a file. What it prints is let through, unless quiet."""
    if not file.is_file():
        values = {"file": str(file), "slug": exercise.slug}
        return Verdict(exercise.slug, failed=0, findings=[Finding("no.file", values)])
    with tempfile.TemporaryDirectory(prefix="minitx-", ignore_cleanup_errors=True) as scratch:
        result = Path(scratch) / "verdict.json"
        command = [sys.executable, "-m", "minitx.learn.inside", str(file.resolve()), exercise.slug, str(result)]
        command += [str(limit), str(seed)]
        sys.stdout.flush()
        where = subprocess.DEVNULL if quiet else None
        try:
            status = subprocess.run(
                command, timeout=limit + GRACE, env=environment(), stdin=subprocess.DEVNULL, stdout=where, stderr=where
            ).returncode
        except subprocess.TimeoutExpired:
            return Verdict(exercise.slug, failed=0, findings=[Finding("no.time", {"limit": f"{limit:g}"})])
        try:
            return verdict(json.loads(result.read_text("utf-8")))
        except (OSError, ValueError):
            return Verdict(exercise.slug, failed=0, findings=[Finding("no.crash", {"status": status})])


def environment() -> dict[str, str]:
    """One thread is enough; this minitx is the one that is imported, whatever lies in the working folder."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    more = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    return os.environ | more | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
