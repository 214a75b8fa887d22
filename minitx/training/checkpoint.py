"""The checkpoint folder, and what is in each of its files.

    config.json           the configuration card (models/card.py) with its fingerprint
    tokenizer.json        where there is a vocabulary
    model.safetensors     the weights of the best model so far (until the first evaluation: of the latest)
    training.safetensors  everything needed to go on: weights, moments, step, random states, best score
    log.jsonl             see log.py

Each file is replaced by one rename, and training.safetensors is one consistent state of all that changes while
training: whenever the power fails, what is there can be resumed. Lines of the log beyond it are cut off then. Nothing
is ever unpickled.

The fingerprint covers everything that changes what weights mean. It stands in config.json and in model.safetensors, and
is computed anew at every load: a card that was edited, weights of another model, another vocabulary are all refused.
Folders of format 1, whose config.json was flat and without it, are still read.
"""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from minitx.data.vocabulary import Tokenizer, tokenizer_from_dict
from minitx.files import write_json
from minitx.models import Card, Transformer, TransformerConfig
from minitx.models.card import PATHS, WITHOUT_MEANING, hash_of, is_flat
from minitx.tensor import Array
from minitx.training import tensorfile
from minitx.training.tensorfile import CheckpointError

FORMAT = 2  # of the .safetensors files: larger numbers are refused
CARD, TOKENIZER, MODEL, TRAINING = "config.json", "tokenizer.json", "model.safetensors", "training.safetensors"


class Loaded(NamedTuple):
    model: Transformer  # in evaluation mode
    tokenizer: Tokenizer | None
    card: Card


@dataclass
class TrainingState:
    """What training.safetensors holds."""

    weights: dict[str, Array]
    optimizer: dict[str, Any]  # Optimizer.state_dict()
    values: dict[str, Any]  # plain ones: step, seconds, best score, schedule, random states


# ---------------------------------------------------------------------- the model


def save_model(directory: str | Path, model: Any, tokenizer: Any = None, **sections: Any) -> None:
    """Card, vocabulary and weights: all that `load_model` and `minitx generate` need. `sections` as in `save_card`."""
    save_card(directory, model, tokenizer, **sections)
    save_weights(directory, model, tokenizer)


def save_card(
    directory: str | Path,
    model: Any,
    tokenizer: Any = None,
    training: Mapping[str, Any] | None = None,
    task: Mapping[str, Any] | None = None,
) -> Card:
    """config.json and tokenizer.json. `training`: the settings of a run; `task`: what makes its task again."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    known = None if tokenizer is None else tokenizer.to_dict()
    card = Card.of_run(model.config, known, training, task)
    values = card.to_dict()
    if known is not None:
        write_json(folder / TOKENIZER, known)
    write_json(folder / CARD, {"version": values.pop("version"), "fingerprint": card.fingerprint(), **values})
    return card


def save_weights(directory: str | Path, model: Any, tokenizer: Any = None) -> None:
    """model.safetensors. It says itself which model it is of, so that it cannot be mistaken for another's."""
    card = Card.of_run(model.config, None if tokenizer is None else tokenizer.to_dict())
    about = {"format": FORMAT, "fingerprint": card.fingerprint(), "model": model.config.to_dict()}
    tensorfile.write(Path(directory) / MODEL, model.state_dict(), about)


def load_card(directory: str | Path) -> Card:
    """config.json. Raises CheckpointError where it is none, is too new, or fits neither itself nor tokenizer.json."""
    path = Path(directory) / CARD
    if not path.is_file():
        folder = path.parent
        fault = "has no config.json" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
        raise CheckpointError(f"{directory} is not a checkpoint folder: it {fault}; `minitx train` makes one")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise CheckpointError(f"{path} is not the card of a checkpoint: it is no JSON") from None
    tokenizer = load_tokenizer(directory)
    known = None if tokenizer is None else tokenizer.to_dict()
    flat = isinstance(values, dict) and is_flat(values)
    if flat:
        _check_format(path, values)
    try:
        card = Card.of_flat(values, known) if flat else Card.from_dict(values)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    if card.tokenizer_hash != (None if known is None else hash_of(known)):
        fault = "is missing" if known is None else "is not the one that this model was made with"
        raise CheckpointError(f"{path.with_name(TOKENIZER)} {fault} (tokenizer_hash): ids would mean other symbols")
    return card


def load_model(directory: str | Path) -> Loaded:
    """(model, tokenizer, card) of the best model in a folder. Raises CheckpointError, naming what does not fit."""
    card = load_card(directory)
    arrays, about = tensorfile.read(Path(directory) / MODEL)
    path = Path(directory) / MODEL
    _check_format(path, about)
    if about.get("fingerprint", card.fingerprint()) != card.fingerprint() or _differ(path, about, card.config):
        differing = _differ(path, about, card.config) or "the vocabulary"
        raise CheckpointError(f"{path} is of another configuration than the config.json beside it: {differing}")
    model = build_model(card)
    load_weights(model, arrays, path)
    model.eval()
    return Loaded(model, load_tokenizer(directory), card)


def build_model(card: Card, rng: np.random.Generator | None = None) -> Transformer:
    """The model that a card describes, with fresh weights."""
    return Transformer(card.config, rng=rng if rng is not None else np.random.default_rng(0))


def load_weights(model: Any, arrays: Mapping[str, Array], path: str | Path) -> None:
    """Names and shapes have to fit; the model takes on the dtype of the arrays."""
    dtypes = {a.dtype for a in arrays.values()}
    if len(dtypes) != 1 or not dtypes <= {np.dtype(np.float32), np.dtype(np.float64)}:
        raise CheckpointError(f"{path}: weights are all float32 or all float64, not {', '.join(map(str, dtypes))}")
    model.astype(dtypes.pop())
    try:
        model.load_state_dict(arrays)
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"{path} does not fit this model: {error.args[0]}") from None


def load_tokenizer(directory: str | Path) -> Tokenizer | None:
    path = Path(directory) / TOKENIZER
    if not path.exists():
        return None
    try:
        return tokenizer_from_dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from None


# ---------------------------------------------------------------------- training


def save_training(directory: str | Path, state: TrainingState, config: Mapping[str, Any]) -> None:
    """training.safetensors: arrays under weights/NAME and optimizer/NAME/MOMENT, everything else in the JSON value."""
    arrays = {f"weights/{name}": a for name, a in state.weights.items()}
    plain: dict[str, dict[str, Any]] = {}
    for name, entry in state.optimizer["state"].items():
        arrays |= {f"optimizer/{name}/{key}": v for key, v in entry.items() if isinstance(v, np.ndarray)}
        plain[name] = {key: v for key, v in entry.items() if not isinstance(v, np.ndarray)}
    about = {
        "format": FORMAT,
        "model": dict(config),
        "optimizer": {**state.optimizer, "state": plain},
        **state.values,
    }
    tensorfile.write(Path(directory) / TRAINING, arrays, about)


def load_training(directory: str | Path, config: Mapping[str, Any] | None = None) -> TrainingState:
    """The state to go on from. With `config`, the model section that it has to be of (else that of config.json)."""
    config = load_card(directory).config.to_dict() if config is None else config
    path = Path(directory) / TRAINING
    if not path.is_file():
        raise CheckpointError(f"{directory} has no {TRAINING}, so no run to resume; --from begins one with its weights")
    arrays, values = tensorfile.read(path)
    _check_format(path, values)
    if differing := differences(_config(path, values).to_dict(), config):
        raise CheckpointError(f"{path} is of another configuration: {differing}")
    del values["model"]
    optimizer = values.pop("optimizer")
    weights: dict[str, Array] = {}
    for key, array in arrays.items():
        kind, _, name = key.partition("/")
        if kind == "weights":
            weights[name] = array
        else:
            name, _, moment = name.rpartition("/")
            optimizer["state"][name][moment] = array
    return TrainingState(weights, optimizer, values)


# ---------------------------------------------------------------------- words


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """`d_model 64 there, 128 here; layers ...`, or "" where all is equal."""
    there, here = (json.loads(json.dumps(dict(d))) for d in (there, here))  # a file has no tuples
    absent = "absent"
    keys = sorted(k for k in there.keys() | here.keys() if there.get(k, absent) != here.get(k, absent))
    return "; ".join(f"{k} {there.get(k, absent)} there, {here.get(k, absent)} here" for k in keys)


def _differ(path: Path, about: Mapping[str, Any], config: TransformerConfig) -> str:
    """What is different in the meaning of the weights of a file, which is `about` itself, and those of `config`."""
    there = _config(path, about)
    if Card(there).fingerprint() == Card(config).fingerprint():
        return ""
    mean = {name: path for name, path in PATHS.items() if name not in WITHOUT_MEANING}
    return differences(*({f"model.{mean[k]}": v for k, v in c.to_dict().items() if k in mean} for c in (there, config)))


def _config(path: Path, about: Mapping[str, Any]) -> TransformerConfig:
    try:
        return TransformerConfig.from_dict(about["model"])
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def _check_format(path: Path, about: Any) -> None:
    number = about.get("format") if isinstance(about, dict) else None
    if not isinstance(number, int) or not isinstance(about.get("model"), dict):
        raise CheckpointError(f"{path} is not of a minitx checkpoint: it names no format and model")
    if number > FORMAT:
        raise CheckpointError(f"{path} has format {number}, and this minitx reads up to {FORMAT}: update minitx")
