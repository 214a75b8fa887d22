"""Files that are whole or not there: written beside their place, flushed to the disk, then renamed over it."""
from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def write_bytes(path: str | Path, content: bytes) -> None:
    """A reader sees the old file or the new one, never a part, whatever stops the program and when.

    A link is followed; what is no file (a pipe, a terminal) is written to as it is.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # (asked before links are followed: /dev/fd/1 is one)
        with open(path, "wb") as stream:
            stream.write(content)
        return
    path = Path(os.path.realpath(path))
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")  # a rename is atomic only within a disk
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    _sync_folder(path.parent)


def write_json(path: str | Path, value: Any) -> None:
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8"))


def _sync_folder(folder: Path) -> None:
    """The rename itself reaches the disk (where the system lets a folder be opened: not on Windows)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
