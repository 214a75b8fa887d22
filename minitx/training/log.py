"""log.jsonl: one JSON object a logged step, in the order of the steps, each line flushed when written.

    {"step": 100, "loss": 1.93, "lr": 0.001, "grad_norm": 0.8, "tokens": 412, "seconds": 3.1, "tokens_per_second": 132,
     "layers": {"decoder.0": {"residual_rms": 1.1, "attention_logit": 4.2, "activation": 6.0, "grad_norm": 0.3}, ...},
     "held_out": {"loss": 1.88, "exact_match": 0.02, ...}}

`loss` and `grad_norm` are of this one batch; `seconds` is time spent training, over all sittings. `layers` is there
every `detail_every` steps (see monitor.py), `held_out` where the model was evaluated. All numbers but the clocks
(`CLOCKS`) are the same whenever the run is repeated.
"""
from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from minitx.files import write_bytes

CLOCKS = ("seconds", "tokens_per_second")
Record = dict[str, Any]


class Log:
    """The file, open for appending. Lines of steps after `cut_after` are of a future that is redone: they are cut."""

    def __init__(self, path: str | Path, cut_after: int = 0) -> None:
        self.path = Path(path)
        if self.path.exists():
            kept = [line for line in _lines(self.path) if _step(line) <= cut_after]
            write_bytes(self.path, "".join(line + "\n" for line in kept).encode("utf-8"))
        self._file = open(self.path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115  (closed by close)

    def write(self, record: Record) -> None:
        self._file.write(json.dumps(_finite(record), ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()

    def sync(self) -> None:
        """Onto the disk, before a checkpoint that counts on these lines."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def read_log(path: str | Path) -> list[Record]:
    """The records, oldest first; a last line cut off by a crash is left out."""
    return [json.loads(line) for line in _lines(Path(path)) if _step(line) < math.inf]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # not a whole record


def _finite(value: Any) -> Any:
    """JSON knows neither NaN nor infinity nor NumPy's numbers."""
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
