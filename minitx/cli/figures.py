"""Figures as JSON: what `--json [FILE]` writes."""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from minitx.cli.common import UserError
from minitx.files import write_bytes


def expect(where: str | None) -> None:
    """Refuse what cannot be written to before the work is done, not after it."""
    if where in (None, "-"):
        return
    path = Path(os.path.realpath(str(where)))
    if path.is_dir():
        raise UserError(f"{where} is a folder; name a file")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {Path(str(where)).parent} to write {Path(str(where)).name} into")
    if not os.access(path if path.exists() and not path.is_file() else path.parent, os.W_OK):
        raise UserError(f"{where} cannot be written: the folder {path.parent} does not allow it")


def write(figures: dict[str, Any], where: str) -> None:
    """To a file, or to the terminal where it is `-`."""
    text = json.dumps(figures, indent=1, allow_nan=False) + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        write_bytes(where, text.encode("utf-8"))
