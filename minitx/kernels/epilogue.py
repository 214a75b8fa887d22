"""The epilogue of a product: what is done to each piece of a row of C while it is still in the cache (matmul.py)."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from minitx.kernels.compile import inline
from minitx.kernels.packing import fetch_rows
from minitx.kernels.pointer import elements, pointer
from minitx.kernels.slopes import gelu, gelu_tanh, relu, sigmoid, silu

# What happens to C at the end ("epilogue"): nothing; C is added to what stands there; an activation, its slope stored
# beside it; a second matrix is multiplied with or added, or C is 0 where that is not positive; a gate (see finish).
NOTHING, MORE, RELU, GELU, GELU_TANH, SILU, SIGMOID, TIMES, PLUS, OPEN, GATE, GATE_BACKWARD = range(12)


@inline
def fetch_for_epilogue(like, how, extra, slope, at, further, rows, columns, n):
    """Ask for what `finish` will read and write for these rows besides C."""
    if how >= TIMES:
        fetch_rows(like, extra + at, n, rows, columns)
    if how == GATE_BACKWARD:
        fetch_rows(like, extra + further + at, n, rows, columns)
    if slope:
        fetch_rows(like, slope + at, n, rows, columns)


@inline
def finish(row, how, extra, further, slope):
    """The epilogue on a piece of a row of C, which has just been computed and is still in the cache.

    GATE:           C is the second projection of a gated network, extra the activated first one, slope its slope:
                    slope = slope * C, which is what the first one's gradient will need, and C = C * extra
    GATE_BACKWARD:  C is the gradient of their product; extra as above, and what `slope` became stands `further` behind:
                    slope = C * that, the gradient of the first, and C = C * extra, the gradient of the second
    """
    like, n = row[0], len(row)
    slopes, factor = elements(like, slope, n), pointer(like, extra)
    if how == TIMES:
        for j in range(n):
            row[j] *= factor[j]
    elif how == PLUS:
        for j in range(n):
            row[j] += factor[j]
    elif how == OPEN:
        for j in range(n):
            row[j] = row[j] if factor[j] > 0 else 0
    elif how == GATE:
        for j in range(n):
            slopes[j] *= row[j]
            row[j] *= factor[j]
    elif how == GATE_BACKWARD:
        other = pointer(like, extra + further)
        for j in range(n):
            slopes[j] = row[j] * other[j]
            row[j] *= factor[j]
    elif how == RELU:
        for j in range(n):
            y, d = relu(row[j])
            row[j], slopes[j] = y, d
    elif how == GELU:
        for j in range(n):
            y, d = gelu(row[j])
            row[j], slopes[j] = y, d
    elif how == GELU_TANH:
        for j in range(n):
            y, d = gelu_tanh(row[j])
            row[j], slopes[j] = y, d
    elif how == SILU:
        for j in range(n):
            y, d = silu(row[j])
            row[j], slopes[j] = y, d
    elif how == SIGMOID:
        for j in range(n):
            y, d = sigmoid(row[j])
            row[j], slopes[j] = y, d
