"""Plain data as TOML: the standard library reads TOML and does not write it."""
from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def write_toml(table: Mapping[str, Any]) -> str:
    """Strings, numbers, booleans, lists of them, and tables. TOML has no null: what would be null is left out."""
    return "\n".join(_lines(table, "")).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: str) -> list[str]:
    """Values first, then the tables, each under its header."""
    lines = [f"{k} = {_value(v)}" for k, v in table.items() if not isinstance(v, Mapping) and v is not None]
    for key, value in table.items():
        if isinstance(value, Mapping):
            inside = _lines(value, f"{path}{key}.")
            lines += ["", f"[{path}{key}]", *inside] if inside else []
    return lines


def _value(value: Any) -> str:
    """JSON's strings, lists and numbers are TOML's as well, but for 1e-05, which is 1.0e-05 there."""
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text
