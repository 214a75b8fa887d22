"""What a text costs to remember and to learn: a Transformer's cache beside a recurrent network's state."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minitx.bench.generate import Shape
from minitx.bench.recurrent import Recurrent
from minitx.bench.timing import Timing, measure, summary
from minitx.models import Transformer
from minitx.models.cost import cache_elements
from minitx.ops import cross_entropy
from minitx.settings import no_grad

TEXTS = (1024, 2048, 4096, 8192, 16384)  # tokens
NUMBER = 4  # bytes of a float32


class Remembered(NamedTuple):
    """Bytes for one text of so many tokens."""

    tokens: int
    cache: int
    state: int


class Learned(NamedTuple):
    """Forward and backward over one batch of texts of so many tokens."""

    tokens: int
    parallel: Timing  # the Transformer, all tokens at once
    serial: Timing  # the recurrent network, one after the other


def network_like(shape: Shape) -> Recurrent:
    return Recurrent(shape.V, shape.d, shape.layers, rng=np.random.default_rng(0))


def remembered(shape: Shape, texts: Sequence[int] = TEXTS) -> list[Remembered]:
    with no_grad():
        _, states = network_like(shape)(np.zeros((1, 1), np.int64))
    state = sum(h.data.nbytes for h in states)
    return [Remembered(T, cache_elements(shape._replace(longest=T).config(), 1, T) * NUMBER, state) for T in texts]


def recurrent_step(shape: Shape, times: int = 200) -> Timing:
    """One more token, behind however many: always the same work."""
    network, ids = network_like(shape), np.zeros((shape.B, 1), np.int64)
    with no_grad():
        states: Any = network(ids)[1]
        return summary(measure(lambda: network(ids, states), times))


def learned(shape: Shape, texts: Sequence[int] = (128, 512), times: int = 5) -> list[Learned]:
    """Both in turn, on the same ids."""
    out = []
    for T in texts:
        ids = np.random.default_rng(0).integers(0, shape.V, (shape.B, T + 1))
        transformer = Transformer(shape._replace(longest=T).config(), rng=np.random.default_rng(0))
        sides = [_pass(transformer, ids), _pass(network_like(shape), ids)]
        for side in sides:
            side()  # (warm)
        taken = [[measure(side, 1)[0] for side in sides] for _ in range(times)]
        out.append(Learned(T, *(summary(list(side)) for side in zip(*taken))))
    return out


def _pass(model: Any, ids: Any) -> Callable[[], None]:
    return lambda: cross_entropy(model(ids[:, :-1])[0], ids[:, 1:]).backward()  # both return their logits first
