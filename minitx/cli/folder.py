"""Where a run goes: a folder of its own, never over another run."""
from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from minitx.cli.common import UserError

TRACES = ("config.json", "log.jsonl", "model.safetensors", "training.safetensors")


def new_folder(asked: str | None, task: str) -> tuple[Path, str]:
    """(the folder, made and writable; what is to be said about the choice). By default runs/TASK, runs/TASK-2, ..."""
    if asked is not None:
        if not asked.strip():
            raise UserError("--out is the folder to keep the run in, and it is empty; leave it out for runs/TASK")
        folder = Path(asked)
        if holds_run(folder):
            raise UserError(f"{folder} holds a run already: --resume {folder} goes on with it, or choose another --out")
        said = ""
    else:
        first = Path("runs") / task
        folder = first if not holds_run(first) else next(
            path for n in count(2) if not holds_run(path := Path("runs") / f"{task}-{n}")
        )  # fmt: skip
        said = f"{first} holds a run already, so this one goes to {folder}" if folder != first else ""
    _make(folder)
    return folder, said


def holds_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in TRACES)


def _make(folder: Path) -> None:
    """With its parents; if it cannot be written to, an OSError now and nothing left behind."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / f".{os.getpid()}.part"
        trial.write_bytes(b"")
        trial.unlink()
    except OSError:
        for path in made:
            with suppress(OSError):
                path.rmdir()
        raise
