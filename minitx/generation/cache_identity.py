"""Whose keys and values a cache holds: with another model's weights they are numbers without a meaning."""
from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, ref

import numpy as np

from minitx.models.card import WITHOUT_MEANING, Card
from minitx.nn.module import Module, Parameter
from minitx.ops.rotary_scaling import rotary_scaling


class Known(NamedTuple):
    """The hash of a model's weights, made once and not for every cache; and whether it is still that."""

    parameters: list[ref[Any]]
    versions: list[int]
    digest: str

    def of(self, parameters: list[Any], versions: list[int]) -> bool:
        same = len(parameters) == len(self.parameters) and all(r() is p for r, p in zip(self.parameters, parameters))
        return same and versions == self.versions


_known: WeakKeyDictionary[Any, Known] = WeakKeyDictionary()


class ModelIdentity:
    """A model at one moment: its configuration, the type of its numbers, and its weights.

    That the weights have not changed since is seen at every step (each parameter counts its changes), and also that
    every layer and parameter is still the one that stood there. Their hash is made when somebody asks, once.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.config = ref(model), model.config
        self.parameters = list(model.parameters())
        self.versions = [p.version for p in self.parameters]
        self.parts = list(zip(*_parts(model)))  # attributes and lists, their keys, and what they held
        self.dtype: np.dtype[Any] = self.parameters[0].dtype
        self._digest: str | None = None

    def __deepcopy__(self, memo: Any) -> ModelIdentity:
        return self  # a copy of a cache is of the same model

    @property
    def changed(self) -> bool:
        return [p.version for p in self.parameters] != self.versions or self.replaced

    @property
    def replaced(self) -> bool:
        """Does another layer or parameter stand where one of them stood?"""
        holders, names, held = self.parts
        try:
            return not all(map(operator.is_, map(operator.getitem, holders, names), held))
        except (KeyError, IndexError):  # it is gone
            return True

    @property
    def digest(self) -> str:
        """A hash of all weights."""
        if self._digest is None:
            self.check_unchanged()
            model = self.model()
            known = None if model is None else _known.get(model)
            if known is None or not known.of(self.parameters, self.versions):
                known = Known([ref(p) for p in self.parameters], self.versions, _hash_of(self.parameters))
                if model is not None:
                    _known[model] = known
            self._digest = known.digest
        return self._digest

    @property
    def fingerprint(self) -> str:
        """A hash of the card, the type of the numbers and the weights: equal ones may share a cache."""
        return hashlib.sha256(f"{Card(self.config).fingerprint()} {self.dtype} {self.digest}".encode()).hexdigest()

    def same(self, other: Any) -> bool:
        """Are these the very same parameters at the same moment?"""
        mine, its = self.parameters, other.parameters
        return self.versions == other.versions and len(mine) == len(its) and all(a is b for a, b in zip(mine, its))

    def check_unchanged(self) -> None:
        if self.changed:
            raise ValueError(
                "the weights of the model have changed since this cache was begun (by an optimizer, by loading "
                "others, or with a layer that was replaced), and its keys and values are those of the old ones: begin "
                "again"
            )

    def check(self, model: Any) -> None:
        """ValueError, naming what differs, unless `model` is this one, or equal to it."""
        self.check_unchanged()
        other = ModelIdentity(model)
        if self.same(other):
            return
        mine, its = self._meaning(), other._meaning()
        for name in mine:
            if mine[name] != its[name]:
                raise ValueError(
                    f"this cache is of another model: its {name} is {mine[name]!r}, and here it is {its[name]!r}"
                )
        if self.digest != other.digest:
            raise ValueError("this cache is of a model with the same configuration and other weights: begin again")

    def _meaning(self) -> dict[str, Any]:
        said = {"dtype": str(self.dtype), **self.config.resolved()}
        for name in WITHOUT_MEANING:
            del said[name]
        said["rope_scaling"] = rotary_scaling(said["rope_scaling"])
        if said["attention_kernel"] == "tiled":
            said["attention_kernel"] = "textbook"
        return said


def _parts(model: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Whatever holds a layer or a parameter, the name or place there, and the layer or parameter."""
    for _, module in model.modules():
        holders: list[Any] = [vars(module)]
        for holder in holders:  # which grows by the lists and dicts inside
            for name, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
                if isinstance(value, Module | Parameter):
                    yield holder, name, value
                elif isinstance(value, list | tuple | dict):
                    holders.append(value)


def _hash_of(parameters: list[Any]) -> str:
    hashed = hashlib.sha256()
    for p in parameters:
        hashed.update(str(p.shape).encode())
        hashed.update(np.ascontiguousarray(p.data).data)
    return hashed.hexdigest()
