"""Matrices in the order in which the tile reads them: panels of B, strips of A, and asking for them ahead of time."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from minitx.kernels.compile import inline
from minitx.kernels.pointer import ask_for, cast, elements, pointer, size_of
from minitx.kernels.tile import BYTES, ROWS, VECTORS, copy_vector, transpose

STRIP = 16 * ROWS  # rows of A that are packed together: of a transposed A half a KB in one line
LEAP = STRIP + 16  # from line to line: lines a power of 2 apart would all have to share a few places in the cache


@inline
def pack(like, b, b_step, b_column, depth, columns, width, to):
    """Panels of B, one behind the other: to[p * width + j] = B[p, j] in each; the last one is filled up with zeros.

    For B (2, 5) and panels 4 wide: b00 b01 b02 b03 b10 b11 b12 b13, b04 0 0 0 b14 0 0 0.
    """
    size = size_of(like)
    lanes, whole = BYTES // size, columns // width * width
    panel = depth * width * size
    if b_column == 1:
        for p in range(depth):
            source, target = b + p * b_step * size, to + p * width * size
            for j in range(0, whole, width):
                for v in range(VECTORS):
                    copy_vector(like, target + v * BYTES, source + (j + v * lanes) * size)
                target += panel
    elif b_step == 1:  # B is the transpose of what lies in memory
        for j in range(0, whole, width):
            pack_transposed(like, b + j * b_column * size, b_column, depth, width, to + j * depth * size)
    else:
        whole = 0
    for j in range(whole, columns, width):
        there = min(width, columns - j)
        for p in range(depth):
            row = elements(like, to + (j * depth + p * width) * size, width)
            source = pointer(like, b + (p * b_step + j * b_column) * size)
            for q in range(there):
                row[q] = source[q * b_column]
            for q in range(there, width):
                row[q] = 0


@inline
def pack_transposed(like, b, b_column, depth, width, to):
    """One panel of a B whose columns lie one number after the other: square by square, then the rows that are left."""
    size = size_of(like)
    lanes = BYTES // size
    squares = depth // lanes * lanes
    for p in range(0, squares, lanes):
        for j in range(0, width, lanes):
            transpose(like, b + (p + j * b_column) * size, b_column, to + (p * width + j) * size, width, cast(like, 1))
    for p in range(squares, depth):
        row, source = elements(like, to + p * width * size, width), pointer(like, b + p * size)
        for j in range(width):
            row[j] = source[j * b_column]


@inline
def pack_rows(like, a, a_row, a_step, depth, rows, to):
    """Up to STRIP rows of A in the order in which they lie: to[r * depth + p], or to[p * LEAP + r], = A[r, p].

    (What stands in rows that do not exist is never used.)
    """
    size = size_of(like)
    if a_step == 1:
        for r in range(rows):
            target, source = elements(like, to + r * depth * size, depth), pointer(like, a + r * a_row * size)
            for p in range(depth):
                target[p] = source[p]
        return
    for p in range(depth):
        target, source = elements(like, to + p * LEAP * size, STRIP), pointer(like, a + p * a_step * size)
        if a_row == 1 and rows == STRIP:
            for r in range(STRIP):
                target[r] = source[r]
        else:
            for r in range(rows):
                target[r] = source[r * a_row]


@inline
def fetch_strip(like, a, a_row, a_step, depth, rows, at):
    """Ask for the share of the next strip of A that is due while the tiles of rows `at` of this one are at work."""
    if a_step == 1:
        fetch_rows(like, a + at * a_row * size_of(like), a_row, min(ROWS, rows - at), depth)
    elif a_row == 1:
        p0, p1 = at * depth // STRIP, (at + ROWS) * depth // STRIP
        fetch_rows(like, a + p0 * a_step * size_of(like), a_step, p1 - p0, rows)


@inline
def fetch_rows(like, x, step, rows, columns):
    """Ask for a part of a matrix, to have it at hand soon."""
    size = size_of(like)
    for r in range(rows):
        ask_for(x + r * step * size, columns * size)
