"""How fast each pair of features turns with the position, and how to slow it for texts longer than those of training.

A pair is a clock hand. The first one turns by about 1 radian a position and tells neighbours apart; the last one hardly
moves and tells the beginning from the end. A model knows the angles that occurred in training: past the trained length
the slow hands reach angles that it never saw. Each scaling turns some hands more slowly, so that a longer text makes
the same angles again; what it costs is resolution, and no scaling makes a model use what stands far away.

A scaling is a plain dict, `{"type": "llama3", "factor": 8.0, "original_length": 8192}`:

    linear   factor                                      all hands slower; short texts lose as well
    dynamic  factor, original_length, length=None        a larger base once the text is longer than original_length
    yarn     factor, original_length, beta_fast=32.0, beta_slow=1.0, attention_factor=None, truncate=True
    llama3   factor, original_length, low_freq_factor=1.0, high_freq_factor=4.0
"""
from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from minitx.op import Array

Scaling = Mapping[str, Any]
_NEEDED = object()

PARAMETERS: dict[str, dict[str, Any]] = {
    "linear": {"factor": _NEEDED},
    "dynamic": {"factor": _NEEDED, "original_length": _NEEDED, "length": None},
    "yarn": {
        "factor": _NEEDED, "original_length": _NEEDED, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": None,
        "truncate": True,
    },
    "llama3": {"factor": _NEEDED, "original_length": _NEEDED, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}  # fmt: skip


def rotary_frequencies(
    rotary_dim: int, base: float = 10000.0, scaling: Scaling | None = None, length: Any = None
) -> tuple[Array, float]:
    """
    for: the angle a position, ω_i = base^(-2i / rotary_dim) before scaling, and the factor of yarn's temperature.

    Returns (ω, m): ω float64 (rotary_dim / 2,), and m, by which cosines and sines are multiplied (1 but for yarn).
    `length` is the number of positions of the text at hand, which only "dynamic" asks for; one per batch row (B,) gives
    ω (B, rotary_dim / 2).
    """
    if isinstance(rotary_dim, bool) or not isinstance(rotary_dim, int | np.integer) or rotary_dim < 2 or rotary_dim % 2:
        raise ValueError(f"rotary: features turn in pairs, so rotary_dim is even and at least 2, not {rotary_dim!r}")
    if not base > 1:
        raise ValueError(f"rotary: base is above 1 (10000 usually), so that each pair turns more slowly, not {base!r}")
    rates = float(base) ** (-np.arange(0, rotary_dim, 2) / rotary_dim)  # (rotary_dim / 2,)
    scaling = rotary_scaling(scaling)
    if scaling is None:
        return rates, 1.0
    given = {name: value for name, value in scaling.items() if name != "type"}
    if scaling["type"] == "linear":
        return linear(rates, **given), 1.0
    if scaling["type"] == "llama3":
        return llama3(rates, **given), 1.0
    if scaling["type"] == "dynamic":
        given["length"] = length if given["length"] is None else given["length"]
        return dynamic(rates, **given), 1.0
    m = given.pop("attention_factor")
    return yarn(rates, base, **given), 0.1 * math.log(given["factor"]) + 1 if m is None else float(m)


def linear(rates: Array, factor: float) -> Array:
    """ω / factor: position p counts as p / factor.

    source: Chen et al. 2023, "Extending context window of large language models via positional interpolation".
    """
    return rates / factor


def dynamic(rates: Array, factor: float, original_length: int, length: Any) -> Array:
    """
    ω_i s^(-i / (n - 1)),   s = max(1, factor length / original_length - (factor - 1)),   i = 0 ... n - 1

    The same as a larger base, base · s^(d / (d - 2)) for d = 2n: the fastest hand is left alone, the slowest turns s
    times more slowly, and up to original_length nothing changes. The angles of all positions depend on the length of
    the text: keys that were turned for a shorter text do not go with queries of a longer one, so there can be no cache
    of turned keys past original_length, unless the final `length` is fixed beforehand.

    source: "NTK-aware" and "dynamic" scaling, published by their authors on a forum in 2023; Peng et al. 2023, "YaRN",
        sections 3.1 and 3.3. The stretch s is that of the widely used code; YaRN's is max(1, length / original_length).
    """
    if length is None:
        raise ValueError("rotary: dynamic scaling follows the length of the text; give length")
    stretch = np.maximum(1.0, factor * np.asarray(length) / original_length - (factor - 1))  # () or (B,)
    n = len(rates)
    return np.asarray(rates * stretch[..., None] ** (-np.arange(n) / max(n - 1, 1)))


def yarn(
    rates: Array, base: float, factor: float, original_length: int, beta_fast: float, beta_slow: float, truncate: bool
) -> Array:
    """
    ω_i ((1 - γ_i) + γ_i / factor),   γ_i from 0 to 1 between the two pairs below

    A hand that turns more than beta_fast times within original_length has shown all its angles and is left alone (γ 0);
    one that turns less than beta_slow times has not, and is slowed (γ 1). Between, γ rises linearly with i, as in the
    authors' code and the models trained with it (in the paper it rises with the number of turns); `truncate` rounds the
    two borders outwards to whole pairs. Scores are sharpened besides: see `m` of rotary_frequencies, 0.1 ln(factor) + 1
    for queries and for keys.

    source: Peng et al. 2023, "YaRN: efficient context window extension of large language models", 3.2 - 3.4.
    """
    n = len(rates)

    def pair_that_turns(times: float) -> float:  # original_length * base^(-i / n) = 2π times, solved for i
        return n * math.log(original_length / (2 * math.pi * times)) / math.log(base)

    low, high = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * n - 1)
    gamma = np.clip((np.arange(n) - low) / (high - low if high != low else 0.001), 0, 1)
    return np.asarray(rates * (1 - gamma) + rates / factor * gamma)


def llama3(
    rates: Array, factor: float, original_length: int, low_freq_factor: float, high_freq_factor: float
) -> Array:
    """
    ω_i (κ_i + (1 - κ_i) / factor),   κ_i = (original_length ω_i / 2π - low) / (high - low), cut to 0 ... 1

    A hand that turns more than high_freq_factor times within original_length is left alone (κ 1), less than
    low_freq_factor times: slowed (κ 0), between: κ is linear in the number of turns, so nothing jumps.

    source: the model code published with Llama 3.1, 2024.
    """
    turns = original_length * rates / (2 * math.pi)
    kappa = np.clip((turns - low_freq_factor) / (high_freq_factor - low_freq_factor), 0, 1)
    return np.asarray(rates * kappa + rates / factor * (1 - kappa))


# ---------------------------------------------------------------------- what a scaling may say


def rotary_scaling(scaling: Scaling | None) -> dict[str, Any] | None:
    """The scaling with its defaults filled in, checked; None stays None.

    Raises ValueError, naming the right ones, for an unknown type or parameter, one that is missing, or a value that
    cannot be meant: a scaling that is read and not applied would show only in long texts.
    """
    if scaling is None:
        return None
    types = ", ".join(PARAMETERS)
    if not isinstance(scaling, Mapping) or "type" not in scaling:
        raise ValueError(f'rotary: scaling is a dict with a "type" ({types}) and its parameters, not {scaling!r}')
    kind = scaling["type"]
    if kind not in PARAMETERS:
        raise ValueError(f'rotary: the scaling "type" is one of {types}, not {kind!r}{_nearest(kind, PARAMETERS)}')
    known = PARAMETERS[kind]
    for name in scaling:
        if name != "type" and name not in known:
            raise ValueError(
                f"rotary: {kind} scaling has no parameter {name!r}, only {', '.join(known)}{_nearest(name, known)}"
            )
    filled = {name: scaling.get(name, default) for name, default in known.items()}
    for name, value in filled.items():
        _check(kind, name, value)
    if kind == "yarn" and not filled["beta_slow"] < filled["beta_fast"]:
        raise ValueError(f"rotary: yarn needs beta_slow < beta_fast (both count turns), not {dict(scaling)}")
    if kind == "llama3" and not filled["low_freq_factor"] < filled["high_freq_factor"]:
        raise ValueError(f"rotary: llama3 needs low_freq_factor < high_freq_factor, not {dict(scaling)}")
    return {"type": kind} | filled


def _check(kind: str, name: str, value: Any) -> None:
    what = f"rotary: {name} of {kind} scaling"
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if value is _NEEDED:
        raise ValueError(f"{what} is missing")
    if name == "truncate":
        if not isinstance(value, bool):
            raise ValueError(f"{what} is True or False, not {value!r}")
    elif name in ("length", "original_length"):
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not (whole and value >= 1) and not (name == "length" and value is None):
            raise ValueError(f"{what} counts positions, at least 1, not {value!r}")
    elif name == "factor":
        if not (number and 1 <= value < math.inf):
            raise ValueError(f"{what} says how many times longer texts may be, at least 1, not {value!r}")
    elif not (number and 0 < value < math.inf) and not (name == "attention_factor" and value is None):
        raise ValueError(f"{what} is a positive number, not {value!r}")


def _nearest(name: Any, names: Any) -> str:
    close = difflib.get_close_matches(str(name), list(names), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
