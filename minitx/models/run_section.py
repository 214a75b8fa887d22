"""A run's settings, which are flat (training/config.py), in the training group of a card: PLACES is the dictionary."""
from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

# setting of a run → where it stands in the training group
PLACES: dict[str, str] = {
    "dtype": "precision", "seed": "seeds",
    "optimizer": "optimizer.name", "lr": "optimizer.lr", "betas": "optimizer.betas", "eps": "optimizer.eps",
    "momentum": "optimizer.momentum", "weight_decay": "optimizer.weight_decay", "clip": "optimizer.clip",
    "schedule": "schedule.name", "warmup": "schedule.warmup", "min_lr_ratio": "schedule.min_lr_ratio",
    "steps": "run.steps", "batch_size": "run.batch_size", "accumulate": "run.accumulate",
    "label_smoothing": "run.label_smoothing", "balance_weight": "run.balance_weight",
    "router_z_weight": "run.router_z_weight", "eval_every": "run.eval_every", "log_every": "run.log_every",
    "detail_every": "run.detail_every", "save_every": "run.save_every",
}  # fmt: skip
SAID = ("objective", "data_boundary")  # what a reader wants to know, and no setting
PRECISION = {"float32": "fp32", "float64": "fp64"}


def training_group(settings: Mapping[str, Any]) -> dict[str, Any]:
    """{"lr": 0.1, "seed": 3, ...} → {"optimizer": {"lr": 0.1}, "seeds": [3], ...}"""
    group: dict[str, Any] = {}
    for name, path in PLACES.items():
        if name in settings:
            value = settings[name]
            value = PRECISION.get(value, value) if name == "dtype" else [value] if name == "seed" else value
            table, _, key = path.rpartition(".")
            (group.setdefault(table, {}) if table else group)[key] = value
    return group


def run_settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """The way back, of what is said (None is not). Raises ValueError for what is no setting of a run."""
    names, said = {path: name for name, path in PLACES.items()}, {}
    for path, value in _leaves(group):
        if path not in names:
            close = difflib.get_close_matches(path, names, 1)
            hint = f"did you mean training.{close[0]}?" if close else f"there are {', '.join(names)}"
            raise ValueError(f"no setting of a run is called training.{path}: {hint}")
        if path == "precision":
            known = {there: here for here, there in PRECISION.items()}
            if value not in known:
                raise ValueError(f"training.precision of a run is {' or '.join(known)}, not {value!r}")
            value = known[value]
        elif path == "seeds":
            if not isinstance(value, list) or len(value) != 1:
                raise ValueError(f"training.seeds of a run is one number in a list, [0], not {value!r}")
            value = value[0]
        said[names[path]] = value
    return said


def _leaves(group: Mapping[str, Any], above: str = "") -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for key, value in group.items():
        if isinstance(value, Mapping) and above == "" and key != "task":
            out += _leaves(value, f"{key}.")
        elif value is not None and above + key not in (*SAID, "task"):
            out.append((above + key, value))
    return out
