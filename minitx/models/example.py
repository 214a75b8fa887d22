"""Random inputs and targets that fit a model, for trying one out: in `minitx trace`, checks and tests."""
from __future__ import annotations

from typing import NamedTuple

import numpy as np

from minitx.models.config import TransformerConfig
from minitx.op import Array


class Example(NamedTuple):
    """`cross_entropy(model(*inputs).logits, targets)` is a loss."""

    inputs: tuple[Array, ...]
    targets: Array


def example(config: TransformerConfig, batch: int, length: int, rng: np.random.Generator) -> Example:
    """T = length tokens in every sequence, in the source too; of an image, length - 1 patches."""
    c = config
    if c.patch_dim is not None:
        first: Array = rng.standard_normal((batch, length - 1, c.patch_dim))
    else:
        first = rng.integers(0, c.vocab_size, (batch, length))
    inputs: tuple[Array, ...] = (first,)
    if c.architecture == "encoder-decoder":
        inputs += (rng.integers(0, c.vocab_size, (batch, length)),)
    answers = {"none": c.d_model, "classification": c.classes, "tokens": c.classes}.get(c.head, c.vocab_size)
    shape = (batch,) if c.head == "classification" else (batch, length)
    return Example(inputs, rng.integers(0, answers or 1, shape))
