"""From files and `--set key=value` to three tables, for the model, the training and the task.

A key may say where it belongs, `model.d_model`, `training.lr`, `task.longest`, or leave it to be found out. Later wins:
the defaults of the task, then the file of --config, then --set, then --steps and --seed. The file may also be a
configuration card (models/card.py), which says its version; what it leaves out has the defaults of the task.
"""
from __future__ import annotations

import ast
import dataclasses
import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from minitx.cli.common import UserError
from minitx.models import Card, TransformerConfig
from minitx.models.card import PATHS, TOKENIZER, VERSION, check_version, model_fields
from minitx.models.rules import CHOICES
from minitx.models.run_section import PLACES, run_settings
from minitx.tasks import task_options
from minitx.training.config import TrainingConfig, nearest

Tables = dict[str, dict[str, Any]]
PARTS = ("model", "training", "task")
ABOUT = ("format", "inference")  # of a flat config.json: it may serve as a --config file
AS_IN_A_CARD = {f"model.{path}": f"model.{name}" for name, path in PATHS.items()} | {
    f"training.{path}": f"training.{name}" for name, path in PLACES.items() if "." in path
}  # model.attention.heads is model.heads: what is read in config.json may be said so
RECORDED = ("name", "options", "objective", "data_boundary", "sha256")  # of its table about the task


def read_file(path: str | Path) -> dict[str, Any]:
    """A .toml or .json file: tables model, training and task, or keys without a table; or a card."""
    path = Path(path)
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise UserError(f"{path} is not valid {'TOML' if path.suffix == '.toml' else 'JSON'}: {error}") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} holds a table of settings, not {type(values).__name__}")
    if "version" in values:
        try:
            return flattened(values)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
    model = values.get("model")
    for key, value in model.items() if isinstance(model, dict) else ():
        if isinstance(value, dict) and key != "rope_scaling":
            raise UserError(f"{path}: model.{key} is a table, as in a card; a card begins with version = {VERSION}")
    return {k: v for k, v in values.items() if k not in ABOUT}


def flattened(card: Mapping[str, Any]) -> dict[str, Any]:
    """A card, or a part of one, as flat tables. Its tokenizer is the task's, and its fingerprint is for its weights."""
    check_version(card)
    Card.from_dict({k: v for k, v in card.items() if k in ("version", "training", "inference")})  # words and tables
    for group in card:
        if group not in ("version", "fingerprint", "model", "training", "inference"):
            raise ValueError(f"a card has no {group}{nearest(group, ('model', 'training', 'inference'))}")
    model = {name: value for name, value in model_fields(card.get("model", {})).items() if name not in TOKENIZER}
    training = card.get("training", {})
    return {"model": model, "training": run_settings(training), "task": training.get("task") or {}}


def task_name(values: Mapping[str, Any]) -> str | None:
    """Which task a configuration file is of, if it says so."""
    task = values.get("task")
    name = task.get("name") if isinstance(task, dict) else task
    return name if isinstance(name, str) else None


def gather(task: str, files: Iterable[Mapping[str, Any]], settings: Iterable[str]) -> Tables:
    """All that was asked for, sorted into the three tables."""
    tables: Tables = {part: {} for part in PARTS}
    known = {
        "model": [f.name for f in dataclasses.fields(TransformerConfig)],
        "training": [f.name for f in dataclasses.fields(TrainingConfig)],
        "task": [key for key in task_options(task) if key != "file"],
    }

    def put(key: str, value: Any) -> None:
        part, dot, rest = AS_IN_A_CARD.get(key, key).partition(".")
        if dot and part in PARTS:
            candidates, name = [part], rest
        else:
            candidates, name = [p for p in PARTS if key in known[p]], key
        if len(candidates) > 1:
            raise UserError(f"{key} may belong to {' or '.join(candidates)}: write {candidates[0]}.{key}")
        if not candidates or name not in known[candidates[0]]:
            near = nearest(name, known[candidates[0]] if candidates else [k for p in PARTS for k in known[p]])
            raise UserError(f"no setting is called {key!r}{near}")
        tables[candidates[0]][name] = value

    for values in files:
        for key, value in values.items():
            if key == "task":
                table = value if isinstance(value, dict) else {}
                asked = {k: v for k, v in table.items() if k not in RECORDED}
                for name, option in (asked | table.get("options", {})).items():
                    if name != "file":
                        put(f"task.{name}", option)
            elif key in PARTS:
                if not isinstance(value, dict):
                    raise UserError(f"{key} is a table of settings, not {value!r}")
                for name in value:
                    put(f"{key}.{name}", value[name])
            else:
                put(key, value)
    for text in settings:
        key, equals, word = text.partition("=")
        if not equals or not key:
            raise UserError(f"--set takes key=value, like lr=0.001, not {text!r}")
        put(key.strip(), parse(word.strip(), key.strip()))
    return tables


def parse(word: str, key: str = "") -> Any:
    """`12`, `1e-3`, `true`, `none`, `[0.9, 0.98]`, `(0.9, 0.98)` are what they look like; anything else is a word.

    Where "none" is itself a choice of the setting `key`, position or head, it is that word.
    """
    if word.lower() == "none" and "none" in CHOICES.get(AS_IN_A_CARD.get(key, key).rpartition(".")[2], ()):
        return "none"
    constants = {"true": True, "false": False, "none": None, "null": None}
    if word.lower() in constants:
        return constants[word.lower()]
    try:
        return ast.literal_eval(word)  # reads literals only, and runs nothing
    except (ValueError, SyntaxError):
        return word
