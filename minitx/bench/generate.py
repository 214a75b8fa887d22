"""Generation side by side: reading a prompt, and saying one more symbol behind so many that are there already.

(sides.py: how the two take turns.) One step of decoding is measured at a context of T tokens: the cache holds T, a few
steps are taken, and it is set back to T.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from minitx.bench.models import SIZES
from minitx.bench.sides import Side, in_turn
from minitx.bench.timing import Timing
from minitx.models import TransformerConfig
from minitx.tensor import Array

CONTEXTS = (128, 256, 512, 1024, 2048, 4096)
STEPS = 8  # of decoding, from T to T + STEPS tokens


class Shape(NamedTuple):
    """B rows, width d, heads for queries and for keys and values, layers, vocabulary V, and the longest text."""

    B: int
    d: int
    heads: int
    kv_heads: int
    layers: int
    V: int
    longest: int

    def __str__(self) -> str:
        return f"{self.B} rows, d {self.d}, {self.heads}/{self.kv_heads} heads, {self.layers} layers"

    def config(self) -> TransformerConfig:
        return TransformerConfig.gpt2(
            layers=self.layers, d_model=self.d, heads=self.heads, kv_heads=self.kv_heads, vocab_size=self.V,
            max_length=self.longest, dropout=0.0, tie_embeddings=False, activation="gelu",
        )  # fmt: skip


class Work(NamedTuple):
    """What a side is asked to do: "prefill" T tokens, or STEPS of decoding behind them, "cached"; or one "uncached"."""

    shape: Sequence[int]
    T: int
    what: str

    def prompt(self) -> Array:
        """The same ids for both sides, (B, T)."""
        shape = Shape(*self.shape)
        return np.random.default_rng(0).integers(0, shape.V, (shape.B, self.T))


ONE = Shape(1, 256, 8, 8, 4, 65, max(CONTEXTS) + STEPS)  # a single text that becomes long
SHARED = [ONE._replace(B=4, kv_heads=kv_heads) for kv_heads in (8, 2, 1)]  # MHA, GQA, MQA
# The models of `minitx bench train` with its batches, each behind texts of the length that it trains on.
TRAINED = [(Shape(s.B, s.d, s.heads, s.heads, s.layers, s.V, s.T + STEPS), s.T) for s in SIZES]


class Row(NamedTuple):
    """One shape at one context."""

    shape: Shape
    context: int
    prefill: dict[str, Timing]  # by side: cached, torch; where it was measured
    step: dict[str, Timing]  # one step of decoding, by side: cached, torch, uncached
    bytes: tuple[int, int]  # our cache behind the context and STEPS more: in use, allocated

    @property
    def ratio(self) -> float | None:
        """PyTorch's step over ours."""
        theirs = self.step.get("torch")
        return None if theirs is None else theirs.median / self.step["cached"].median

    def to_dict(self) -> dict[str, Any]:
        times = {name: {side: t._asdict() for side, t in getattr(self, name).items()} for name in ("prefill", "step")}
        shape = self.shape._asdict()
        return {"shape": shape, "context": self.context, **times, "bytes": list(self.bytes), "ratio": self.ratio}


def rows(
    shape: Shape,
    contexts: Sequence[int],
    against: str | None,
    threads: int,
    seconds: float,
    reading: bool = True,
    uncached: bool = True,
) -> Iterator[Row]:
    """A row for each context; about so many seconds of steps on each side, half as many of reading and uncached."""
    with Side("side_generate_minitx", threads) as ours:
        if against is None:
            yield from (_row(shape, T, {"cached": ours}, seconds, reading, uncached) for T in contexts)
            return
        with Side(f"side_generate_{against}", threads) as theirs:
            yield from (_row(shape, T, {"cached": ours, against: theirs}, seconds, reading, uncached) for T in contexts)


def _row(shape: Shape, T: int, sides: dict[str, Side], seconds: float, reading: bool, uncached: bool) -> Row:
    def measured(what: str, seconds: float) -> dict[str, Timing]:
        return dict(zip(sides, in_turn(list(sides.values()), Work(shape, T, what), seconds)))

    prefill = measured("prefill", seconds / 2) if reading else {}
    step = {name: Timing(*(t / STEPS for t in timing)) for name, timing in measured("cached", seconds).items()}
    ours = sides["cached"]
    used, allocated = ours.result
    if uncached:
        (step["uncached"],) = in_turn([ours], Work(shape, T, "uncached"), seconds / 2)
    return Row(shape, T, prefill, step, (used, allocated))
