"""Dropout: noise that keeps units from relying on each other."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.kernels.hash import draw_key, keep, keep_at
from minitx.op import Array, Forward, op
from minitx.ops.checks import generator, probability


@op("x")
def dropout(x: Array, p: float, rng: np.random.Generator | None, training: bool = True) -> Forward:
    """
    for: regularisation: in training every element is zeroed with probability p, and the rest makes up for it.

    equation:
        y_i = m_i x_i,   m_i = 0 with probability p, otherwise 1 / (1 - p)

    where:
        x         (...)
        p         probability of dropping, 0 to 1; p = 1 gives zeros
        rng       numpy Generator; one 64-bit key is drawn from it, and m_i follows from a hash of (key, i)
        training  False: y is x, bit for bit

    by hand:
        >>> dropout(np.array([1.0, 2.0, 3.0]), 0.5, np.random.default_rng(8)).numpy()
        array([2., 4., 0.])

    backward:
        dx_i = m_i dy_i

    why:
        m is a constant of the pass: it depends on the key, not on x. Since E[m_i] = (1 - p) / (1 - p) = 1, y is x on
        average, and nothing has to be rescaled at inference ("inverted" dropout).

    saved: m.

    cost: a hash and a product per element forward, a product back.

    differs from: PyTorch, where the mask depends on the order in which a generator is read. Here element i of the array
        in C order has its own hash, so that a tiled kernel makes the same mask. A key is drawn only where chance has a
        say: training with 0 < p < 1. Otherwise rng may be None.

    goes wrong: left on in evaluation, it makes results noisy and a little worse; with the backward scaled by p, or not
        at all, gradients have the wrong size, which Adam hides.

    exercise: dropout

    source: Srivastava et al. 2014, "Dropout: a simple way to prevent neural networks from overfitting".
    """
    p = probability(p, "dropout: p")
    if not training or p == 0:
        return x, lambda dy: dy
    m = dropout_factors(x.shape, p, rng, x.dtype)
    return m * x, lambda dy: m * dy


def dropout_factors(shape: tuple[int, ...], p: float, rng: np.random.Generator | None, dtype: Any) -> Array:
    """m: 0 with probability p, otherwise 1 / (1 - p)."""
    return _factors(keep(dropout_key(p, rng), shape, p), p, dtype)


def dropout_factors_at(index: Array, p: float, key: int, dtype: Any) -> Array:
    """m at the elements with these numbers (in C order) of the whole array: what a tile needs of it."""
    return _factors(keep_at(key, index, p), p, dtype)


def dropout_key(p: float, rng: np.random.Generator | None) -> int:
    """A key from rng, which is asked only where chance has a say."""
    if p in (0, 1):
        return 0
    return draw_key(generator(rng, "dropout"))


def _factors(kept: Array, p: float, dtype: Any) -> Array:
    m = kept.astype(dtype)
    if p < 1:
        m *= 1 / (1 - p)
    return m
