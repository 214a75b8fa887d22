"""Figures as JSON: what `--json [FILE]` writes."""
from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from minitx.cli.common import UserError
from minitx.files import write_bytes


def expect(where: str | None) -> None:
    """Refuse what cannot be written to before the work is done, not after it."""
    if where not in (None, "-") and not Path(str(where)).absolute().parent.is_dir():
        raise UserError(f"--json: there is no folder {Path(str(where)).parent} to write {Path(str(where)).name} into")


def write(figures: dict[str, Any], where: str) -> None:
    """To a file, or to the terminal where it is `-`."""
    text = json.dumps(figures, indent=1, allow_nan=False) + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        write_bytes(where, text.encode("utf-8"))
