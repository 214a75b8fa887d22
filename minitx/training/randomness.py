"""The generators of a run, one for each use, from one seed; and their states as JSON."""
from __future__ import annotations

from typing import Any

import numpy as np

USES = ("model", "data")  # weights and dropout; the order of the data. Appending a use changes no other


def generator(seed: int, use: str) -> np.random.Generator:
    """Independent streams: drawing more for dropout does not change the data."""
    return np.random.default_rng([seed, USES.index(use)])


def get_state(rng: np.random.Generator) -> dict[str, Any]:
    return dict(rng.bit_generator.state)


def set_state(rng: np.random.Generator, state: dict[str, Any]) -> None:
    rng.bit_generator.state = state
