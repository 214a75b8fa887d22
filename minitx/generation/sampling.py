"""Which id a row says: filters change its logits, then the likeliest is taken or one is drawn.

Every row draws from a generator of its own, made of the seed and the row's number, one uniform number an id: so what a
row says does not depend on which others are in the batch, or on when they end.
"""
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from minitx.generation import filters
from minitx.generation.filters import Filter, cumulated, likeliest_first, whole
from minitx.tensor import Array

NOTHING = np.zeros(0, np.int64)


class NothingLeft(ValueError):
    """Filters have ruled out every id."""


@dataclass(frozen=True)
class Sampling:
    """How the next id follows from its logits. As it stands: greedy."""

    temperature: float | None = None  # 0, which is greedy; 1 where top_k, top_p or min_p asks for drawing
    top_k: int | None = None  # all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    banned: Sequence[int] = ()
    filters: Sequence[Filter] = ()  # of one's own
    seed: int = 0

    def __post_init__(self) -> None:
        whole(self.seed, "seed", 0)
        _ = self.steps  # made now, so that what is wrong is said now

    @property
    def draws(self) -> bool:
        """Is there chance in it?"""
        if self.temperature is None:
            return self.top_k is not None or self.top_p != 1 or self.min_p != 0
        return self.temperature > 0

    @cached_property
    def constraints(self) -> list[Filter]:
        """What changes the likeliest id too."""
        penalty = filters.repetition_penalty(self.repetition_penalty)
        out = [filters.banned(self.banned)] if len(self.banned) else []
        return [*out, *([penalty] if self.repetition_penalty != 1 else []), *self.filters]

    @cached_property
    def boldness(self) -> list[Filter]:
        """What says how far from the likeliest one may go; these work on all rows at once."""
        t = self.temperature
        warm = filters.temperature((1.0 if self.draws else 0.0) if t is None else t)
        narrow = [] if self.top_k is None else [filters.top_k(self.top_k)]
        top_p, min_p = filters.top_p(self.top_p), filters.min_p(self.min_p)
        return [warm, *narrow, *(step for step, acts in ((top_p, self.top_p < 1), (min_p, self.min_p > 0)) if acts)]

    @property
    def steps(self) -> list[Filter]:
        """All filters, in their order."""
        return [*self.constraints, *self.boldness]

    def generator(self, *number: int) -> np.random.Generator:
        """Of the row with this number."""
        return np.random.default_rng((self.seed, *number))

    def choose(self, logits: Array, ids: Sequence[Array], rngs: Sequence[Any]) -> list[int | Exception]:
        """logits (B, V), of each row its ids so far and its generator → what each row says, or why it cannot."""
        if not (self.draws or self.constraints) and np.isfinite(logits.max(-1)).all():
            return logits.argmax(-1).tolist()  # type: ignore[no-any-return]
        z = logits.astype(np.float64)
        errors: dict[int, Exception] = {}
        for n, row in enumerate(logits):
            try:
                if self.constraints or not math.isfinite(row.max()):
                    z[n] = filtered(row, ids[n], self.constraints)
            except (ValueError, IndexError, ArithmeticError) as error:
                z[n], errors[n] = 0, error
        if self.draws:
            for step in self.boldness:
                z = step(z, NOTHING)
            said = draw(z, np.array([rng.random() for rng in rngs]))
        else:
            said = z.argmax(-1)
        return [errors.get(n, int(i)) for n, i in enumerate(said)]

    def to_dict(self) -> dict[str, Any]:
        """What differs from greedy, as plain values."""
        said = {k: v for k, v in asdict(self).items() if k != "filters" and v != getattr(Sampling, k)}
        own = [getattr(f, "__name__", type(f).__name__) for f in self.filters]
        return said | ({"filters": own} if own else {})


def filtered(logits: Array, ids: Array, steps: Sequence[Filter]) -> Array:
    """logits (V,) → (V,) in float64 after all the filters. An error where there is nothing that could be said."""
    z = logits.astype(np.float64)  # a copy: filters may write into it
    if not math.isfinite(z.max(initial=-np.inf)):
        checked(logits)
    for step in steps:
        z = step(z, ids)
        if not isinstance(z, np.ndarray) or z.shape != logits.shape:
            what = f"an array {z.shape}" if isinstance(z, np.ndarray) else type(z).__name__
            name = getattr(step, "__name__", step)
            raise ValueError(f"a filter returns logits {logits.shape}, and {name} returned {what}")
    best = z.max(initial=-np.inf)
    if best == -np.inf:
        raise NothingLeft(f"no id is left to say: every one of the {len(z)} is banned or filtered out")
    if not math.isfinite(best):
        raise ValueError(f"after the filters the best logit is {best}; a filter may lower logits to -inf, not make NaN")
    return z


def checked(logits: Array) -> Array:
    """The logits (..., V), where they are scores: numbers or -inf, and not -inf everywhere."""
    if np.isnan(logits).any():
        raise ValueError("the model's logits are not numbers (NaN): its weights are damaged, or training has diverged")
    best = logits.max(-1, initial=-np.inf)
    if np.isinf(best).any():
        kind = "all -inf" if (best < 0).any() else "infinite"
        raise ValueError(f"the model's logits are {kind}: its weights are damaged, or training has diverged")
    return logits


def draw(logits: Array, u: Any) -> Array:
    """(..., V), uniform numbers (...) → an id with probability softmax(logits): where u falls in the cumulated ones.

    The likeliest stand first, so that an id of probability 0 is never hit.
    """
    order = likeliest_first(logits)
    mass = cumulated(logits, order)
    at = (mass <= np.asarray(u)[..., None] * mass[..., -1:]).sum(-1)
    possible = (logits > -np.inf).sum(-1)
    return np.take_along_axis(order, np.minimum(at, possible - 1)[..., None], axis=-1)[..., 0]
