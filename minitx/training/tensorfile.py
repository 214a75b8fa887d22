"""One .safetensors file: named arrays and one JSON value. No code can hide in it, as it can in a pickle."""
from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from minitx.files import write_bytes
from minitx.tensor import Array
from minitx.training.extra import need

KEY = "minitx"  # under which the JSON value stands in the file's metadata, a table of strings


class CheckpointError(ValueError):
    """A folder or file that cannot be read as what it should be; the message says which, why, and what to do."""


def write(path: str | Path, arrays: Mapping[str, Array], value: Any) -> None:
    """Whole or not at all."""
    arrays = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    metadata = {KEY: json.dumps(value, ensure_ascii=False, allow_nan=False)}
    write_bytes(path, need("safetensors.numpy").save(arrays, metadata))


def read(path: str | Path) -> tuple[dict[str, Array], Any]:
    """(arrays, the JSON value). Raises CheckpointError for a file that is cut short, or that another program made."""
    path = Path(path)
    safetensors = need("safetensors")
    if not path.is_file():
        raise CheckpointError(f"{path}: there is no such file")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is not a dict)
    except safetensors.SafetensorError as error:
        raise CheckpointError(f"{path} is cut short, or not a safetensors file ({error})") from None
    if KEY not in metadata:
        raise CheckpointError(f"{path} was not written by minitx: its tensors are named {_some(arrays)}")
    return arrays, json.loads(metadata[KEY])


def _some(names: Mapping[str, Any]) -> str:
    first = ", ".join(list(names)[:3])
    return first + (f" and {len(names) - 3} more" if len(names) > 3 else "") or "nothing"
