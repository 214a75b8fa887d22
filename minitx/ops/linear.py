"""The linear layer's product: y = x Wᵀ + b."""
from __future__ import annotations

import math
from typing import Any

from minitx.op import Array, Forward, op


@op("x", "weight", "bias")
def linear(x: Array, weight: Array, bias: Array | None = None) -> Forward:
    """
    for: a learned mixture of features, the same for every row: most of a Transformer's parameters and arithmetic.

    equation:
        y = x Wᵀ + b

    where:
        x       (..., in)   any number of leading axes, also none: every vector along the last axis is a row
        weight  (out, in)   W; row o holds what output o takes from each input
        bias    (out,)      b, or None
        y       (..., out)

    by hand:
        >>> linear([1.0, 2.0], [[1.0, 1.0], [0.0, 3.0]], [10.0, 20.0]).numpy()
        array([13., 26.], dtype=float32)

    backward:
        dx = dy W
        dW = Σ_rows dyᵀ x
        db = Σ_rows dy

    why:
        For one row, y_o = Σ_i W_oi x_i + b_o. Input i reaches every output o with the weight W_oi, so
        dx_i = Σ_o dy_o W_oi. Weight W_oi reaches only y_o, scaled by x_i, so dW_oi = dy_o x_i, an outer product. W and
        b serve all rows, so their gradients are sums over the rows; for W the sum is inside the matrix product.

    saved: x, weight.

    cost: 2 * rows * in * out FLOPs forward, twice that back.

    differs from: nothing; weight lies as in PyTorch, (out, in).

    goes wrong: with weight (in, out) a square layer runs and learns, but a checkpoint from elsewhere gives nonsense; a
        bias gradient that is averaged over the rows, not summed, is a learning rate that shrinks with the batch.

    exercise: linear

    source: Rumelhart, Hinton and Williams 1986, "Learning representations by back-propagating errors".
    """
    _check(x, weight, bias)
    n_out, n_in = weight.shape
    rows = math.prod(x.shape[:-1])
    x_rows = x.reshape(rows, n_in)
    y = x_rows @ weight.T  # (rows, out)
    if bias is not None:
        y += bias

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        dy_rows = dy.reshape(rows, n_out)
        # y = x Wᵀ + b
        dx = (dy_rows @ weight).reshape(x.shape) if need.x else None
        dweight = dy_rows.T @ x_rows if need.weight else None  # (out, in)
        dbias = dy_rows.sum(0) if need.bias else None  # (out,)
        return dx, dweight, dbias

    return y.reshape(*x.shape[:-1], n_out), backward


def _check(x: Array, weight: Array, bias: Array | None) -> None:
    if weight.ndim != 2:
        raise ValueError(f"linear: weight has two axes, (out, in), not the shape {weight.shape}")
    if x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        transposed = x.ndim > 0 and x.shape[-1] == weight.shape[0]
        raise ValueError(
            f"linear: the last axis of x goes into weight (out, in): x is {x.shape}, weight {weight.shape} takes "
            f"{weight.shape[1]}{'; is weight transposed?' if transposed else ''}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"linear: one bias per output, {weight.shape[:1]} for weight {weight.shape}, not {bias.shape}")
