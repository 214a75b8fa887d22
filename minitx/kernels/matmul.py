"""The matrix product C = A B, tile by tile (the tile: tile.py), with what is to be done to C while it is at hand.

A is (m, k), B (k, n), C (m, n). The work is cut twice:

    * k into chunks of DEPTH. Within a chunk a tile of C stays in registers; between chunks it waits in C.
    * C into blocks, the tasks that threads take. A block's columns of B, one chunk deep, are packed: copied into panels
      as wide as a tile, one row of a panel behind the other, so that the tile reads memory in one line.

         B, one chunk                packed
        ┌────┬────┬──┐      ┌────┐┌────┐┌────┐
        │ 0  │ 1  │ 2│  →   │ 0  ││ 1  ││ 2 0│   the last panel is filled up with zeros
        └────┴────┴──┘      └────┘└────┘└────┘

  Packing also turns a transposed B (W in y = x Wᵀ, K in Q Kᵀ) the right way round, and a B that is narrow and already
  lies as the tile wants it is read in place. A is read in place as long as its rows do not get into each other's way in
  the cache; then a strip of rows, one chunk deep, is packed too. What comes next is asked for ahead of time (the next
  strip of A, the piece of C that a tile adds to, what an epilogue reads), so that it travels while tiles are computed.

The law: C[i, j] = (Σ chunk 0) + (Σ chunk 1) + ..., each sum one chain of multiply-adds in the order of p, and chunks
begin at multiples of DEPTH. Nothing else (m, n, the place in the matrix, packing, threads) has a part in it, so row i
of a product has the same bits alone as among others.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, void

from minitx.kernels.compile import Worker, array, for_dtypes, inline, kernel, strided
from minitx.kernels.epilogue import MORE, NOTHING, fetch_for_epilogue, finish
from minitx.kernels.memory import NONE, PER_THREAD, memory_for
from minitx.kernels.packing import STRIP, fetch_strip, pack, pack_rows
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, elements, pointer, prefetch, size_of, where
from minitx.kernels.tile import BITS, BYTES, ROWS, VECTORS, tile

Array = np.ndarray[Any, Any]

DEPTH = 256  # of a chunk of k: 8 rows of A, 8 KB, stay in the first-level cache while the panels of B pass by
COLUMNS = 256  # of a block: its packed B, 256 KB, stays in the second-level cache
IN_PLACE = 16384  # elements: a chunk of B as small as this, 64 KB, is read where it is
NEAR = 256 * 1024  # bytes: a C as small as this is taken to be in the second-level cache
assert DEPTH * COLUMNS + STRIP * DEPTH + ROWS * 64 <= PER_THREAD  # packed B, packed A, a tile at the edge of C


# ---------------------------------------------------------------------- one block of C


@inline
def block(memory, a, a_row, a_step, b, b_step, b_column, bias, c, m, n, i0, i1, j0, j1, k, how, extra, slope, sums):
    """C[i0:i1, j0:j1] = A B + bias, and the epilogue.

    All matrices are addresses; bias, slope and sums may be 0, not there. C, extra and slope have rows of n elements.
    sums[i0:i1] = Σ_p A[:, p], for the gradient of a bias: this part of A is being read anyway.
    """
    like = memory[0]
    size = size_of(like)
    width = VECTORS * BYTES // size  # of a tile
    panels = where(memory)
    panel_a = panels + DEPTH * COLUMNS * size
    edge = panel_a + STRIP * DEPTH * size
    in_place = b_column == 1 and (b_step * min(k, DEPTH) <= IN_PLACE or i1 - i0 <= 2 * ROWS)
    # Rows of A at multiples of a page apart fall on the same cache lines.
    pack_a = (a_step > 64 or (a_row > 1 and a_row * size % 4096 == 0)) and j1 - j0 > 2 * width
    far = m * n * size > NEAR
    for p0 in range(0, k, DEPTH):
        depth = min(DEPTH, k - p0)
        last = p0 + depth == k
        b_chunk = b + p0 * b_step * size
        first = (j1 - j0) // width * width if in_place else 0
        pack(like, b_chunk + (j0 + first) * b_column * size, b_step, b_column, depth, j1 - j0 - first, width,
             panels + first * depth * size)  # fmt: skip
        for i in range(i0, i1, ROWS):
            rows = min(ROWS, i1 - i)
            a_at, row, step = a + (i * a_row + p0 * a_step) * size, a_row, a_step
            at = (i - i0) % STRIP
            if pack_a:
                if at == 0:
                    pack_rows(like, a_at, a_row, a_step, depth, min(STRIP, i1 - i), panel_a)
                if a_step == 1:
                    a_at, row = panel_a + at * depth * size, depth
                else:
                    a_at, row, step = panel_a + at * size, 1, STRIP
                ahead, ahead_p = i - at + STRIP, p0
                if ahead >= i1:
                    ahead, ahead_p = i0, p0 + DEPTH
                if ahead_p < k:
                    fetch_strip(like, a + (ahead * a_row + ahead_p * a_step) * size, a_row, a_step,
                                min(DEPTH, k - ahead_p), min(STRIP, i1 - ahead), at)  # fmt: skip
            if sums and j0 == 0 and at == 0:
                add_columns(like, a_at, row, step, depth, min(STRIP, i1 - i), sums + i * size, p0 > 0, edge)
            if far and last and how > MORE:
                fetch_for_epilogue(like, how, extra, slope, (i * n + j0) * size, m * n * size, rows, j1 - j0, n)
            for j in range(j0, j1, width):
                b_at, b_row = panels + (j - j0) * depth * size, width
                to, to_row, start, start_row = c + (i * n + j) * size, n, 0, 0
                if j + width > j1:
                    to, to_row = edge, width
                else:
                    if in_place:
                        b_at, b_row = b_chunk + j * size, b_step
                    if p0 > 0 or how == MORE:
                        start, start_row = to, n
                    elif bias:
                        start = bias + j * size
                if far:
                    for r in range(rows):
                        for v in range(1, VECTORS + 1):
                            prefetch(to + r * to_row * size + v * BYTES - size)
                tile(like, depth, a_at, row, step, b_at, b_row, start, start_row, to, to_row, rows)
                if j + width > j1:
                    bias_at = bias + j * size if bias else 0
                    add_edge(like, edge, width, bias_at, p0 > 0 or how == MORE, c + (i * n + j) * size, n, rows, j1 - j)
            if last and how > MORE:
                for r in range(i, i + rows):
                    here = (r * n + j0) * size
                    finish(elements(like, c + here, j1 - j0), how, extra + here, m * n * size,
                           slope + here if slope else edge)  # fmt: skip


@inline
def add_edge(like, edge, width, bias, more, c, n, rows, columns):
    """C = tile + bias, or C += tile where this is not the first chunk, for a tile that reaches beyond C."""
    for r in range(rows):
        x = elements(like, edge + r * width * size_of(like), columns)
        y = elements(like, c + r * n * size_of(like), columns)
        if more:
            for j in range(columns):
                y[j] += x[j]
        elif bias:
            b = elements(like, bias, columns)
            for j in range(columns):
                y[j] = b[j] + x[j]
        else:
            for j in range(columns):
                y[j] = x[j]


@inline
def add_columns(like, a, a_row, a_step, depth, rows, sums, more, edge):
    """sums (+)= Σ_p A[:, p] over one chunk, four p at a time."""
    size = size_of(like)
    total, sums = elements(like, edge, rows), elements(like, sums, rows)
    for i in range(rows):
        total[i] = 0
    for p in range(0, depth - 3, 4):
        w, x = pointer(like, a + p * a_step * size), pointer(like, a + (p + 1) * a_step * size)
        y, z = pointer(like, a + (p + 2) * a_step * size), pointer(like, a + (p + 3) * a_step * size)
        for i in range(rows):
            total[i] += (w[i * a_row] + x[i * a_row]) + (y[i * a_row] + z[i * a_row])
    for p in range(depth // 4 * 4, depth):
        w = pointer(like, a + p * a_step * size)
        for i in range(rows):
            total[i] += w[i * a_row]
    for i in range(rows):
        sums[i] = sums[i] + total[i] if more else total[i]


# ---------------------------------------------------------------------- whole products

# Products that do not wait for each other are shared as one work. Its args: where the table of tasks begins; a record
# for each product; and the table, for each task its product and the number of its block of C. A record says what
# `block` is told, then how large and how many the blocks are, and how many of the products after it have the same C and
# follow at once, block by block.
(A, A_ROW, A_STEP, B, B_STEP, B_COLUMN, BIAS, C, M, N, K, HOW, EXTRA, SLOPE, SUMS, HEIGHT, WIDTH, BLOCKS,
 FOLLOWING, FIELDS) = range(20)  # fmt: skip


@inline
def block_height(m, n, threads):
    """How many rows of C go into one block: each thread gets the same number of blocks, and one has at least 32 rows.

    That is one or two, where C is narrow: each block packs B anew, which takes as long as 7 rows of multiply-adds.
    """
    if threads == 1:
        return m
    across = -(-n // COLUMNS)
    pieces = max(1, (2 * threads if m >= 512 * threads else threads) // across)
    while pieces * across % threads:
        pieces += 1
    return max(32, -(-m // (pieces * ROWS)) * ROWS)


@inline
def block_width(n, tile_width):
    """How many columns: as equally many as tiles allow, at most COLUMNS."""
    return -(-n // (-(-n // COLUMNS) * tile_width)) * tile_width


@inline
def record(args, number, a, b, bias, how, extra, slope, sums, c, following, threads):
    """C = A B for arrays as record `number`; an empty bias, slope or sums is not there."""
    at, m, n, k, size = 1 + number * FIELDS, c.shape[0], c.shape[1], b.shape[0], c.itemsize
    height, width = block_height(m, n, threads), block_width(n, VECTORS * BYTES // size)
    blocks = -(-m // height) * -(-n // width)
    args[at + A], args[at + A_ROW], args[at + A_STEP] = address(a), a.strides[0] // size, a.strides[1] // size
    args[at + B], args[at + B_STEP], args[at + B_COLUMN] = address(b), b.strides[0] // size, b.strides[1] // size
    args[at + BIAS], args[at + C] = address(bias) if len(bias) else 0, address(c)
    args[at + M], args[at + N], args[at + K] = m, n, k
    args[at + HOW], args[at + EXTRA], args[at + SLOPE] = how, address(extra), address(slope) if len(slope) else 0
    args[at + SUMS], args[at + HEIGHT], args[at + WIDTH] = address(sums) if len(sums) else 0, height, width
    args[at + BLOCKS], args[at + FOLLOWING] = blocks, following


@Worker
def product_block(memory, args, task):
    entry = args[0] + 2 * task
    first, number = 1 + args[entry] * FIELDS, args[entry + 1]
    for at in range(first, first + (1 + args[first + FOLLOWING]) * FIELDS, FIELDS):
        m, n, k, height, width = args[at + M], args[at + N], args[at + K], args[at + HEIGHT], args[at + WIDTH]
        across = -(-n // width)
        i, j = number // across * height, number % across * width
        block(memory, args[at + A], args[at + A_ROW], args[at + A_STEP], args[at + B], args[at + B_STEP],
              args[at + B_COLUMN], args[at + BIAS], args[at + C], m, n, i, min(m, i + height), j, min(n, j + width),
              k, args[at + HOW], args[at + EXTRA], args[at + SLOPE], args[at + SUMS])  # fmt: skip


@inline
def share_products(worker, args, records, memory, threads):
    """Run the records. Of every product, each thread has its part of the blocks at hand before those of others."""
    args[0] = 1 + records * FIELDS
    task = 0
    for thread in range(threads):
        which = 0
        while which < records:
            blocks, following = args[1 + which * FIELDS + BLOCKS], args[1 + which * FIELDS + FOLLOWING]
            for number in range(blocks * thread // threads, blocks * (thread + 1) // threads):
                args[args[0] + 2 * task], args[args[0] + 2 * task + 1] = which, number
                task += 1
            which += 1 + following
    share(worker, memory, args, task, threads)


@inline
def room(c, threads):
    """How many numbers of args a product with this C needs."""
    m, n = c.shape
    return FIELDS + 2 * (-(-m // block_height(m, n, threads)) * -(-n // COLUMNS))


@inline
def multiply(worker, a, b, bias, how, extra, slope, sums, c, memory, threads):
    """C = A B for arrays, by the worker `product_block`; an empty bias, slope or sums is not there."""
    args = np.empty(1 + room(c, threads), np.int64)
    record(args, 0, a, b, bias, how, extra, slope, sums, c, 0, threads)
    share_products(worker, args, 1, memory, threads)


@kernel(
    *for_dtypes(
        lambda T: void(
            int64, strided(T, 2), strided(T, 2), array(T, 1), int64, array(T, 2), array(T, 2, writes=True),
            array(T, 2, writes=True), array(T, 2, writes=True), int64,
        )
    ),
)  # fmt: skip
def product_kernel(worker, a, b, bias, how, extra, slope, c, memory, threads):
    multiply(worker, a, b, bias, how, extra, slope, memory[0, :0], c, memory, threads)


def product(
    a: Array, b: Array, bias: Array | None = None, how: int = NOTHING, extra: Array | None = None,
    slope: Array | None = None, out: Array | None = None,
) -> Array:  # fmt: skip
    """A B + bias and the epilogue `how`, for two-dimensional arrays of one dtype with any strides."""
    (m, k), n = a.shape, b.shape[1]
    dtype = a.dtype
    c = np.empty((m, n), dtype) if out is None else out
    if k == 0 or c.size == 0:
        raise ValueError("product: nothing to multiply")
    threads = threads_for(0.02 * m * n * k)
    none, nothing = NONE[dtype]
    product_kernel[dtype](
        product_block[dtype], a, b, none if bias is None else bias, how, nothing if extra is None else extra,
        nothing if slope is None else slope, c, memory_for(dtype, threads), threads,
    )  # fmt: skip
    return c


# ---------------------------------------------------------------------- the op


@kernel(
    *for_dtypes(
        lambda T: void(int64, strided(T, 3), strided(T, 3), array(T, 3, writes=True), array(T, 2, writes=True), int64)
    )
)
def batch_kernel(worker, a, b, c, memory, threads):
    none, nothing = memory[0, :0], memory[:0]
    for i in range(len(c)):
        multiply(worker, a[i], b[i], none, NOTHING, nothing, nothing, none, c[i], memory, threads)


def batched(a: Array, b: Array) -> Array:
    """A B for every A and B of two stacks, (..., m, k) (..., k, n), whose axes in front broadcast."""
    (m, k), n, dtype = a.shape[-2:], b.shape[-1], a.dtype
    front = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    c = np.empty((*front, m, n), dtype)
    stacks = [np.broadcast_to(x, (*front, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, b)]
    threads = threads_for(0.02 * m * n * k)
    batch_kernel[dtype](product_block[dtype], *stacks, c.reshape(-1, m, n), memory_for(dtype, threads), threads)
    return c


def matmul(x: Array, y: Array) -> tuple[Array, Callable[..., Any]]:
    """z = x y: contract and mathematics are in ops/matmul.py. Vectors are left to the definition."""
    fine = BITS and x.ndim >= 2 and y.ndim >= 2 and x.dtype in NONE and x.dtype == y.dtype and x.size and y.size
    if not fine or x.shape[-1] != y.shape[-2] or not _broadcast(x.shape[:-2], y.shape[:-2]):
        return NotImplemented  # type: ignore[no-any-return]
    shared = y.ndim == 2  # one y for the whole stack: rows are rows
    z = product(_rows(x), y).reshape(*x.shape[:-1], y.shape[1]) if shared else batched(x, y)

    def backward(dz: Array, need: Any) -> tuple[Array | None, Array | None]:
        dx = dy = None
        if shared:
            dz_rows = _rows(dz)
            dx = product(dz_rows, y.T).reshape(x.shape) if need.x else None
            dy = product(_rows(x).T, dz_rows) if need.y else None
        else:
            dx = batched(dz, y.swapaxes(-1, -2)) if need.x else None
            dy = batched(x.swapaxes(-1, -2), dz) if need.y else None
        return dx, dy

    return z, backward


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def _broadcast(*shapes: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return False
    return True
