"""Embedding: a token's id picks its row of a table."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.op import Array, Forward, op
from minitx.ops.checks import inside, integers, padding_row


@op("weight")
def embedding(ids: Any, weight: Array, padding_idx: int | None = None) -> Forward:
    """
    for: turning token ids into vectors that can be learned.

    equation:
        y_n = W[ids_n]

    where:
        ids          (...)     integers from 0 to V - 1 (no gradient); copied, for backward needs them unchanged
        weight       (V, d)    W, one row per token
        padding_idx  an id whose row gets no gradient (its value is read like any other), or None
        y            (..., d)

    by hand:
        >>> embedding([2, 0], np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).numpy()
        array([[5., 6.],
               [1., 2.]])

    backward:
        dW[v] = Σ_{n: ids_n = v} dy_n
        dW[padding_idx] = 0

    why:
        Picking row v is the product of a one-hot row with W, a linear layer whose input is almost all zeros. Of its
        gradient (one-hot)ᵀ dy only the picked rows are not zero. An id that occurs k times receives k contributions, so
        rows have to be added, not assigned.

    saved: ids.

    cost: a copy of n * d numbers forward; n * d additions and a table of zeros back.

    differs from: PyTorch, where a negative padding_idx counts from the end; here it is refused, as negative ids are.

    goes wrong: `dW[ids] += dy` in NumPy keeps one contribution per id, so that frequent tokens learn as slowly as rare
        ones; and it takes id -1 for the last token without a word.

    exercise: embedding

    source: Bengio et al. 2003, "A neural probabilistic language model", section 2.
    """
    ids = integers(ids, "embedding: ids")
    if weight.ndim != 2:
        raise ValueError(f"embedding: weight has two axes, (V, d), not the shape {weight.shape}")
    padding_idx = padding_row(padding_idx, len(weight))
    inside(ids, len(weight), "embedding: ids", "rows")
    y = weight[ids]  # (..., d)

    def backward(dy: Array) -> Array:
        dweight = np.zeros_like(weight)  # (V, d)
        np.add.at(dweight, ids, dy)  # the same id may occur twice
        if padding_idx is not None:
            dweight[padding_idx] = 0
        return dweight

    return y, backward
