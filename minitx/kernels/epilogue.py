"""The epilogue of a product: what is done to each piece of a row of C while it is still in the cache (matmul.py)."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from minitx.kernels.compile import inline
from minitx.kernels.packing import fetch_rows
from minitx.kernels.pointer import elements, pointer
from minitx.kernels.slopes import gelu, gelu_tanh, relu, sigmoid, silu

# What is done to C at the end. NOTHING. MORE: it is added to what C holds. RELU to SIGMOID: the activation of C, and
# its slope in `slope`. TIMES, PLUS: C * extra, C + extra. OPEN: C where extra > 0, else 0. GATE and GATE_BACKWARD: see
# `finish`. The order counts: what comes after MORE is for `finish`, and from TIMES on `extra` is read.
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

    Of a gated network h = a * u, where a = φ(g), g and u are projections of x (`extra`, `slope`: addresses):

        GATE:           C = u, extra = a, and slope holds φ'(g):              slope *= C, kept for backward;  C *= a
        GATE_BACKWARD:  C = dh, extra = a, and u φ'(g) `further` bytes on:    slope = C * u φ'(g) = dg;  C *= a, now du
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
