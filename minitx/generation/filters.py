"""What may be said next: small functions from logits to logits, one after the other.

    A filter takes  logits (V,)  the scores of one row's next id
                    ids (n,)     what the row has read and said so far (of an encoder-decoder: BOS and what was said)
    and returns     logits (V,)  changed; -inf: this id is not to be said

They come in this order: banned ids, repetition penalty, filters of one's own, temperature, top-k, top-p, min-p. One of
one's own is three lines, and what it gets is a copy that it may write into:

    def never_twice_in_a_row(logits, ids):
        logits[ids[-1]] = -np.inf
        return logits
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from minitx.tensor import Array

Filter = Callable[[Array, Array], Array]


def log_softmax(logits: Array) -> Array:
    """log p, on the last axis, in float64: the logits minus log Σ exp(logits)."""
    z = logits - logits.max(-1, keepdims=True).astype(np.float64)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))  # type: ignore[no-any-return]


def likeliest_first(logits: Array) -> Array:
    """All ids in order of their logits; of equal ones the lower id first."""
    return np.argsort(-logits, axis=-1, kind="stable")


def only_first(logits: Array, order: Array, n: Any) -> Array:
    """The logits of the first n (one number, or (..., 1)) ids of `order`; -inf elsewhere."""
    keep = np.zeros(logits.shape, bool)
    np.put_along_axis(keep, order, np.arange(logits.shape[-1]) < n, axis=-1)
    return np.where(keep, logits, -np.inf)


def cumulated(logits: Array, order: Array) -> Array:
    """Σ exp(logits) up to each id of `order`, which has the likeliest first; exp(0) = 1 is the first."""
    z = np.take_along_axis(logits, order, axis=-1)
    return np.cumsum(np.exp(z - z[..., :1]), axis=-1)


# ---------------------------------------------------------------------- constraints


def banned(ids: Iterable[int]) -> Filter:
    """These ids are never said. Ban the EOS, and a row goes on to its last symbol."""
    never = np.array(sorted({whole(i, "a banned id", 0) for i in ids}), np.int64)

    def banned(logits: Array, _: Array) -> Array:
        if len(never) and never[-1] >= len(logits):
            raise ValueError(f"banned id {never[-1]} is outside the vocabulary of {len(logits)}")
        logits[never] = -np.inf
        return logits

    return banned


def repetition_penalty(penalty: float) -> Filter:
    """Ids that were read or said already: positive logits are divided by the penalty, negative ones multiplied.

    Above 1 discourages. It works on logits as the model happens to scale them (adding 1 to all leaves softmax as it is,
    and changes what this does), and it punishes the space as much as a rare word: 1.1 to 1.3 is usual.

    source: Keskar et al. 2019 (CTRL), section 4.1.
    """
    number(penalty, "repetition_penalty", lambda p: 0 < p < math.inf, "above 0; 1 changes nothing")

    def repetition_penalty(logits: Array, ids: Array) -> Array:
        said = np.unique(ids)
        z = logits[said]
        logits[said] = np.where(z > 0, z / penalty, z * penalty)
        return logits

    return repetition_penalty


# ---------------------------------------------------------------------- how bold: of any number of rows, (..., V)


def temperature(t: float) -> Filter:
    """softmax(logits / t): below 1 bolder in favour of the likeliest, above 1 more even.

    As t goes to 0 only the likeliest remain; 0 is the likeliest alone, the lowest id of equal ones.
    """
    number(t, "temperature", lambda t: 0 <= t < math.inf, "at least 0; 0 is greedy")

    def temperature(logits: Array, _: Array) -> Array:
        if t == 0:
            return only_first(logits, likeliest_first(logits), 1)
        # Relative to the maximum, which stays 0 however small t is. Far below it, overflow to -inf is what is meant.
        with np.errstate(over="ignore"):
            return (logits - logits.max(-1, keepdims=True)) / t  # type: ignore[no-any-return]

    return temperature


def top_k(k: int) -> Filter:
    """The k likeliest ids; of equal ones at the border, the lower.

    source: Fan et al. 2018, section 5.4.
    """
    whole(k, "top_k", 1)

    def top_k(logits: Array, _: Array) -> Array:
        return logits if k >= logits.shape[-1] else only_first(logits, likeliest_first(logits), k)

    return top_k


def top_p(p: float) -> Filter:
    """The fewest likeliest ids that together have probability p or more: the one that crosses p is among them.

    source: Holtzman et al. 2020, section 3.1 (nucleus sampling).
    """
    number(p, "top_p", lambda p: 0 < p <= 1, "above 0 and at most 1; 1 keeps all")

    def top_p(logits: Array, _: Array) -> Array:
        if p == 1:
            return logits  # the sum below may reach 1 by rounding before the last id
        order = likeliest_first(logits)
        mass = cumulated(logits, order)  # (in this order, so that the same ids are kept whatever their numbers are)
        short = (mass < p * mass[..., -1:]).sum(-1, keepdims=True)  # so many do not reach p; the next one does
        return only_first(logits, order, short + 1)

    return top_p


def min_p(p: float) -> Filter:
    """The ids with at least p times the probability of the likeliest: few where the model is sure, many where not.

    source: Nguyen et al. 2024, section 3.
    """
    number(p, "min_p", lambda p: 0 <= p <= 1, "between 0 and 1; 0 keeps all")

    def min_p(logits: Array, _: Array) -> Array:
        if p == 0:
            return logits
        return np.where(logits >= logits.max(-1, keepdims=True) + math.log(p), logits, -np.inf)

    return min_p


# ---------------------------------------------------------------------- arguments


def number(value: Any, name: str, fits: Callable[[float], bool], rule: str) -> float:
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not fits(float(value)):
        raise ValueError(f"{name} is a number {rule}, not {value!r}")
    return float(value)


def whole(value: Any, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} is a whole number, at least {least}, not {value!r}")
    return int(value)
