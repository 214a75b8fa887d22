"""A model as the audit sees it: ids in, logits out, and what else it can be told."""
from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from minitx.generation.mode import evaluating
from minitx.nn import Module
from minitx.op import Array
from minitx.settings import no_grad
from minitx.tensor import Tensor

FAMILIES = ("decoder", "encoder", "encoder-decoder")
PRECISE = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-5}  # of the largest logit: what counts as a move


class Subject:
    """Called as `subject(ids, **masks)` or `subject(ids, target_ids, ...)`: the logits (B, T, V), or (B, classes)."""

    def __init__(
        self, model: Any, family: str | None, vocab_size: int | None, length: int, rng: np.random.Generator
    ) -> None:
        config = getattr(model, "config", None)
        self.model, self.config = model, config
        self.family = family or getattr(config, "architecture", None) or "decoder"
        if self.family not in FAMILIES:
            raise ValueError(f"family is one of {', '.join(FAMILIES)}, not {self.family!r}")
        self.patch_dim: int | None = getattr(config, "patch_dim", None)
        self.head = getattr(config, "head", "language-model")
        self.vocab_size = vocab_size or getattr(config, "vocab_size", None) or 0
        if self.vocab_size < 2 and self.patch_dim is None:
            raise ValueError("audit: a model without a configuration has to be told vocab_size=, 2 or more")
        longest = getattr(config, "max_length", None) if self.bounded else None
        self.length = min(length, longest or length)
        if self.length < 4:
            raise ValueError(f"audit: sequences have at least 4 places, not {self.length}")
        self.rng = rng
        self.takes = _parameters(model)
        self.by_place = True  # logits (B, T, V); False: (B, classes)
        self.tolerance = PRECISE[np.dtype(np.float64)]  # until logits say otherwise

    @property
    def bounded(self) -> bool:
        """No position past the trained length?"""
        return getattr(self.config, "position", None) == "learned"

    @property
    def causal(self) -> bool:
        return self.family != "encoder"

    def __call__(self, *inputs: Array, **options: Any) -> Array:
        with self.calm():
            logits = self.array(self.model(*inputs, **options))
        B, T = inputs[-1].shape[0], inputs[-1].shape[1] + (self.patch_dim is not None)
        if logits.shape[: logits.ndim - 1] not in ((B, T), (B,)):
            raise ValueError(f"audit: logits of {B} rows, {T} places each, are (B, T, V) or (B, classes), not "
                             f"{logits.shape}")  # fmt: skip
        return logits

    def try_out(self) -> None:
        """Is the answer one a place or one a row? What no change can be seen in, chance and NaN, is refused."""
        inputs = [self.draw(1) for _ in range(1 + (self.family == "encoder-decoder"))]
        once, again = self(*inputs), self(*inputs)
        if np.isnan(once).any():
            raise ValueError("audit: the logits of ordinary tokens are NaN, and no change can be seen in those")
        if self.moves(again, once).max(initial=0) > self.tolerance:
            raise ValueError("audit: the same tokens give other logits the second time; turn off dropout, and whatever "
                             "else is drawn at random or remembered")  # fmt: skip
        self.by_place = once.ndim == 3

    def calm(self) -> AbstractContextManager[None]:
        """Inside: no dropout and no tape."""
        return evaluating(self.model) if isinstance(self.model, Module) else no_grad()

    def array(self, result: Any) -> Array:
        """Logits as an array, whatever they come in."""
        result = getattr(result, "logits", result)
        if hasattr(result, "detach"):  # a Tensor, or one of PyTorch
            result = result.detach()
        logits: Array = result.numpy() if isinstance(result, Tensor) else np.asarray(result)
        if logits.dtype.kind != "f" or logits.ndim not in (2, 3):
            raise TypeError(f"audit: logits are floats (B, T, V) or (B, classes), not {logits.dtype} {logits.shape}")
        self.tolerance = PRECISE.get(logits.dtype, 1e-2)
        return logits

    # ------------------------------------------------------------------ inputs

    def draw(self, batch: int, length: int | None = None) -> Array:
        """Random ids (B, T), or for a model of images patches: with the vector in front these are T tokens too."""
        length = length or self.length
        if self.patch_dim is not None:
            return self.rng.standard_normal((batch, length - 1, self.patch_dim))
        return self.rng.integers(0, self.vocab_size, (batch, length))

    def changed(self, ids: Array, where: Array) -> Array:
        """Other tokens at `where` (B, T), each different from what was there."""
        if self.patch_dim is not None:
            other = ids + self.rng.standard_normal(ids.shape)
            return np.asarray(np.where(where[:, 1:, None], other, ids))
        other = (ids + self.rng.integers(1, self.vocab_size, ids.shape)) % self.vocab_size
        return np.where(where, other, ids)

    def moves(self, after: Array, before: Array) -> Array:
        """By how much of the largest logit each place moves: (B, T), or (B, 1) where a row has one answer."""
        size = np.abs(before[np.isfinite(before)]).max(initial=1e-300)
        with np.errstate(invalid="ignore"):
            move = np.where(after == before, 0, np.nan_to_num(np.abs(after - before), nan=np.inf)).max(-1) / size
        return np.asarray(move.reshape(len(before), -1))


def _parameters(model: Any) -> frozenset[str]:
    """The names of what the model, or the function, can be given."""
    call: Callable[..., Any] = model.forward if isinstance(model, Module) else model
    try:
        return frozenset(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        return frozenset()
