"""The configuration card: all that has to be known to make a model again, in three groups of plain data.

    model      architecture, layers, width; attention, position, norm, ffn, vocabulary, output, initialisation, dropout
    training   objective, data boundary, precision, optimizer, seeds; of a run also schedule, run, task
    inference  cache, quantization, batch, prompt and output lengths

The model group says the same as a flat TransformerConfig, in other words and in tables: PATHS is the dictionary (and
run_section.py that of the training group). A value that is left out has its default; null means that it follows from
others, or that nothing is said. `config.json` of a checkpoint folder is a card with its fingerprint.
"""
from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minitx.models.config import TransformerConfig
from minitx.models.rules import POSITIVE
from minitx.models.run_section import training_group
from minitx.models.toml import write_toml
from minitx.ops.rotary_scaling import rotary_scaling

VERSION = 1
OBJECTIVES = ("next-token", "masked-tokens", "sequence-to-sequence", "classification", "token-labels")
PRECISIONS = ("fp64", "fp32", "fp16", "bf16")
QUANTIZATIONS = ("none", "fp16", "int8")

# field of TransformerConfig → where it stands in the model group
PATHS: dict[str, str] = {
    "architecture": "architecture", "layers": "layers", "d_model": "width", "bias": "bias",
    "heads": "attention.heads", "kv_heads": "attention.kv_heads", "head_dim": "attention.head_dim",
    "value_dim": "attention.value_dim", "window": "attention.window", "window_every": "attention.window_every",
    "attention_kernel": "attention.kernel", "attention_scale": "attention.scale",
    "attention_softcap": "attention.softcap", "qk_norm": "attention.qk_norm", "attention_bias": "attention.bias",
    "attention_out_bias": "attention.out_bias",
    "position": "position.method", "rope_base": "position.base", "rope_dim": "position.rotary_dim",
    "rope_interleaved": "position.interleaved", "rope_scaling": "position.scaling",
    "relative_buckets": "position.buckets", "relative_max_distance": "position.max_distance",
    "max_length": "position.trained_length",
    "norm": "norm.type", "norm_placement": "norm.placement", "norm_eps": "norm.epsilon", "norm_bias": "norm.bias",
    "norm_offset": "norm.offset", "embedding_norm": "norm.embedding",
    "activation": "ffn.activation", "d_ff": "ffn.width", "ff_bias": "ffn.bias", "experts": "ffn.experts",
    "experts_per_token": "ffn.experts_per_token", "shared_experts": "ffn.shared_experts",
    "vocab_size": "vocabulary.size", "tie_embeddings": "vocabulary.tied", "scale_embeddings": "vocabulary.scaled",
    "segments": "vocabulary.segments", "patch_dim": "vocabulary.patch_dim",
    "head": "output.head", "head_bias": "output.bias", "head_dense": "output.dense", "classes": "output.classes",
    "pooling": "output.pooling", "logit_scale": "output.scale", "logit_softcap": "output.softcap",
    "init": "initialisation.method", "init_std": "initialisation.std",
    "scale_residual_init": "initialisation.residual_scale",
    "dropout": "dropout.residual", "attention_dropout": "dropout.attention", "ff_dropout": "dropout.ffn",
}  # fmt: skip
TOKENIZER = {"tokenizer": "vocabulary.tokenizer", "tokenizer_hash": "vocabulary.tokenizer_hash"}
PLAIN_TABLES = ("position.scaling",)  # values that are tables themselves

# What trained weights mean does not depend on how they started, on what was dropped while training, or (unless there is
# a table of positions) on the length of the training texts.
WITHOUT_MEANING = ("init", "init_std", "scale_residual_init", "dropout", "attention_dropout", "ff_dropout")


@dataclasses.dataclass(frozen=True)
class Training:
    """How the weights were made; None: not said."""

    objective: str | None = None
    data_boundary: str | None = None  # what one row is: a sample, a window of a text, packed documents
    precision: str | None = None
    optimizer: dict[str, Any] | None = None  # its name, and its settings
    seeds: list[int] | None = None
    schedule: dict[str, Any] | None = None  # of the learning rate: its name, and its settings
    run: dict[str, Any] | None = None  # steps, batch size, and when to look
    task: dict[str, Any] | None = None  # its name and options; of one on a file also a hash


@dataclasses.dataclass(frozen=True)
class Inference:
    """How the model is run; None: not said."""

    cache: str | None = None
    quantization: str | None = None
    batch: int | None = None
    prompt_length: int | None = None
    output_length: int | None = None


@dataclasses.dataclass(frozen=True)
class Card:
    config: TransformerConfig
    tokenizer: str | None = None  # its kind, and the hash of all that it knows
    tokenizer_hash: str | None = None
    training: Training = Training()
    inference: Inference = Inference()

    def __post_init__(self) -> None:
        t, i = self.training, self.inference
        _choice("training.objective", t.objective, OBJECTIVES)
        _choice("training.precision", t.precision, PRECISIONS)
        _choice("inference.quantization", i.quantization, QUANTIZATIONS)
        for path, text in (
            ("training.data_boundary", t.data_boundary), ("inference.cache", i.cache),
            ("model.vocabulary.tokenizer", self.tokenizer), ("model.vocabulary.tokenizer_hash", self.tokenizer_hash),
        ):  # fmt: skip
            if text is not None and not isinstance(text, str):
                raise ValueError(f"{path} is a word or a sentence, not {text!r}")
        if t.optimizer is not None and not (_is_table(t.optimizer) and isinstance(t.optimizer.get("name"), str)):
            raise ValueError(f'training.optimizer is a table with its name, {{"name": "adamw"}}, not {t.optimizer!r}')
        for path, table in (("schedule", t.schedule), ("run", t.run), ("task", t.task)):
            if table is not None and not _is_table(table):
                raise ValueError(f"training.{path} is a table, not {table!r}")
        if t.seeds is not None and not (isinstance(t.seeds, list) and all(_whole(seed, 0) for seed in t.seeds)):
            raise ValueError(f"training.seeds is a list of whole numbers, [0], not {t.seeds!r}")
        for name in ("batch", "prompt_length", "output_length"):
            value = getattr(i, name)
            if value is not None and not _whole(value, 1):
                raise ValueError(f"inference.{name} is a whole number, at least 1, not {value!r}")

    # ------------------------------------------------------------------ plain data

    def to_dict(self) -> dict[str, Any]:
        """Tables in tables, as JSON and TOML have them."""
        return self._tables(self.config.to_dict())

    def _tables(self, fields: dict[str, Any]) -> dict[str, Any]:
        model: dict[str, Any] = {}
        said = {"tokenizer": self.tokenizer, "tokenizer_hash": self.tokenizer_hash} | fields
        for name, path in (PATHS | TOKENIZER).items():
            *tables, key = path.split(".")
            place = model
            for table in tables:
                place = place.setdefault(table, {})
            place[key] = said[name]
        groups = {"training": dataclasses.asdict(self.training), "inference": dataclasses.asdict(self.inference)}
        return {"version": VERSION, "model": model, **groups}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Card:
        """Raises ValueError for what is unknown or cannot be built, naming its path: model.attention.heads.

        A fingerprint, where there is one, has to be that of the rest. A flat config.json of an older run is read too.
        """
        if not _is_table(values):
            raise ValueError(f"a card is a table with version, model, training and inference, not {values!r}")
        if is_flat(values):
            return cls.of_flat(values)
        check_version(values)
        for group in values:
            _known("", group, ("version", "fingerprint", "model", "training", "inference"))
        fields = model_fields(values.get("model", {}))
        vocabulary = {name: fields.pop(name) for name in TOKENIZER if name in fields}
        groups: dict[str, Any] = {}
        for group, kind in (("training", Training), ("inference", Inference)):
            table = values.get(group, {})
            if not _is_table(table):
                raise ValueError(f"{group} is a table, not {table!r}")
            for key in table:
                _known(f"{group}.", key, [field.name for field in dataclasses.fields(kind)])
            groups[group] = kind(**table)
        try:
            config = TransformerConfig.from_dict(fields)
        except ValueError as error:
            first = str(error).split()[0].rstrip(":,")
            raise ValueError(f"model.{PATHS[first]}: {error}" if first in PATHS else f"model: {error}") from None
        card = cls(config, **vocabulary, **groups)
        said, of_model = card.training.objective, objective(config)
        if "model" in values and None not in (said, of_model) and said != of_model:
            raise ValueError(
                f"training.objective of an architecture {config.architecture!r} with head {config.head!r} is "
                f"{of_model}, not {said}: leave it out, or change the model"
            )
        if values.get("fingerprint") not in (None, card.fingerprint()):
            raise ValueError(
                f"fingerprint is {str(values['fingerprint'])[:12]}..., and that of this card is "
                f"{card.fingerprint()[:12]}...: it was changed after its weights were made, and they do not mean that; "
                "undo the change, or leave the fingerprint out for a new model"
            )
        return card

    @classmethod
    def of_run(
        cls,
        config: TransformerConfig,
        tokenizer: Mapping[str, Any] | None = None,
        training: Mapping[str, Any] | None = None,
        task: Mapping[str, Any] | None = None,
    ) -> Card:
        """Of a model with its tokenizer as a dict, the flat settings of its run, and what makes its task again."""
        said: dict[str, Any] = {}
        if training or task:
            task = dict(task or {})
            said = training_group(training or {}) | {
                "objective": objective(config), "data_boundary": task.pop("data_boundary", None), "task": task or None
            }  # fmt: skip
        longest = config.max_length
        inference = Inference("none" if config.architecture == "encoder" else "keys and values", "none", None, longest,
                              None if config.architecture == "encoder" else longest)  # fmt: skip
        kind, number = (None, None) if tokenizer is None else (str(tokenizer.get("kind")), hash_of(tokenizer))
        return cls(config, kind, number, Training(**said), inference)

    @classmethod
    def of_flat(cls, values: Mapping[str, Any], tokenizer: Mapping[str, Any] | None = None) -> Card:
        """From a config.json of format 1: its model and training sections were flat, its task stood beside them."""
        task = dict(values.get("task") or {})
        task.pop("objective", None)
        return cls.of_run(TransformerConfig.from_dict(dict(values["model"])), tokenizer, values.get("training"), task)

    def in_effect(self) -> dict[str, Any]:
        """As `to_dict`, with what follows from others filled in, and None for what has nothing to act on."""
        return self._tables(self.config.resolved())

    # ------------------------------------------------------------------ text

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def to_toml(self) -> str:
        """As TOML, which has no null: what would be null is left out."""
        return write_toml(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Card:
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_toml(cls, text: str) -> Card:
        return cls.from_dict(tomllib.loads(text))

    @classmethod
    def read(cls, path: str | Path) -> Card:
        """A .toml or .json file."""
        path = Path(path)
        text = path.read_text(encoding="utf-8")
        try:
            return cls.from_toml(text) if path.suffix == ".toml" else cls.from_json(text)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    # ------------------------------------------------------------------ identity

    def fingerprint(self) -> str:
        """A hash of everything that changes what weights mean: equal ones may share weights, or cached keys and values.

        Two ways of saying the same (kv_heads left out or equal to heads, the tiled kernel or the textbook one) give the
        same; the tokenizer is in it, training and inference are not. What has its default is left out: a field that is
        added later changes no fingerprint of what was there before.
        """
        said = self.config.resolved()
        for name in WITHOUT_MEANING:
            del said[name]
        if self.config.position != "learned":
            del said["max_length"]
        if said["attention_kernel"] == "tiled":
            said["attention_kernel"] = "textbook"
        said |= {name: float(said[name]) for name in (*POSITIVE, "norm_offset") if said.get(name) is not None}
        said["rope_scaling"] = rotary_scaling(said["rope_scaling"])
        default = {field.name: field.default for field in dataclasses.fields(self.config)}
        said = {name: value for name, value in said.items() if value is not None and value != default[name]}
        return hash_of({"tokenizer": self.tokenizer, "tokenizer_hash": self.tokenizer_hash, **said})


def is_flat(values: Mapping[str, Any]) -> bool:
    """Is this the config.json of a run of format 1?"""
    return "format" in values and "version" not in values and _is_table(values.get("model"))


def check_version(values: Mapping[str, Any]) -> None:
    number = values.get("version")
    if not _whole(number, 1) or number > VERSION:  # type: ignore[operator]
        raise ValueError(f"version is that of a card, and this minitx reads up to {VERSION}, not {number!r}")


def model_fields(model: Any) -> dict[str, Any]:
    """The model group as fields of TransformerConfig and TOKENIZER, as far as it says them."""
    names = {path: name for name, path in (PATHS | TOKENIZER).items()}
    return {names[path]: value for path, value in _leaves(model, "", names).items()}


def objective(config: TransformerConfig) -> str | None:
    """What a model with this head is trained for."""
    of = {"masked-lm": "masked-tokens", "classification": "classification", "tokens": "token-labels"}
    if config.head == "language-model":
        return "sequence-to-sequence" if config.architecture == "encoder-decoder" else "next-token"
    return of.get(config.head)


def flat(values: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Tables in tables as one: {"model.attention.heads": 8, ...}."""
    out: dict[str, Any] = {}
    for key, value in values.items():
        if _is_table(value) and path + key not in ("model.position.scaling", "training.optimizer"):
            out |= flat(value, f"{path}{key}.")
        else:
            out[path + key] = value
    return out


def _leaves(table: Any, path: str, names: Mapping[str, str]) -> dict[str, Any]:
    """The model group as {path: value}; unknown paths are errors."""
    if not _is_table(table):
        raise ValueError(f"model{'.' + path[:-1] if path else ''} is a table, not {table!r}")
    out: dict[str, Any] = {}
    here = list(dict.fromkeys(p[len(path) :].split(".")[0] for p in names if p.startswith(path)))
    for key, value in table.items():
        _known(f"model.{path}", key, here)
        if f"{path}{key}" in names:
            out[f"{path}{key}"] = value
        else:
            out |= _leaves(value, f"{path}{key}.", names)
    return out


def _known(path: str, key: str, names: Any) -> None:
    if key not in names:
        close = difflib.get_close_matches(key, names, 1)
        hint = f"did you mean {path}{close[0]}?" if close else f"there are {', '.join(names)}"
        raise ValueError(f"a card has no {path}{key}: {hint}")


def _choice(path: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        close = difflib.get_close_matches(str(value), allowed, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{path} is one of {', '.join(allowed)}, not {value!r}{hint}")


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def hash_of(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
