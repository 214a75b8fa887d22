"""The matrix product C = A B, tile by tile (the tile: tile.py), with what is to be done to C while it is at hand.

A is (m, k), B (k, n), C (m, n). The work is cut twice:

    * k into chunks of DEPTH. Within a chunk a tile of C stays in registers; between chunks it waits in C.
    * C into blocks, the tasks that threads take. A block's columns of B, one chunk deep, are packed: copied into panels
      as wide as a tile, one row of a panel behind the other, so that the tile reads memory in one line.

         B, one chunk                packed
        ┌────┬────┬──┐      ┌────┐┌────┐┌────┐
        │ 0  │ 1  │ 2│  →   │ 0  ││ 1  ││ 2 0│   the last panel is filled up with zeros
        └────┴────┴──┘      └────┘└────┘└────┘

  Packing also turns a transposed B (W in y = x Wᵀ, K in Q Kᵀ) the right way round. B is read in place where its rows
  lie one number after the other and its chunk is small, or where two rows of tiles at most would use what was packed. A
  too is read in place, unless its rows or columns get into each other's way in the cache: then a strip of rows, one
  chunk deep, is packed. What comes next is asked for ahead of time (the next strip of A, the piece of C that a tile
  adds to, what an epilogue reads), so that it travels while tiles are computed.

The loops, from the outside in (block.py; sizes for float32 with AVX-512):

    a block of C                          a task for a thread: product_block
      a chunk of k, 256 deep              pack its part of B: pack_b
        a strip of 128 rows               pack its part of A, where that helps
          8 rows of C                     row_of_tiles
            32 columns of C               tile: C[i:i+8, j:j+32] (+)= A[i:i+8, chunk] B[chunk, j:j+32]
            after the last chunk          the epilogue, on these 8 rows

The law: C[i, j] = (Σ chunk 0) + (Σ chunk 1) + ..., each sum one chain of multiply-adds in the order of p, and chunks
begin at multiples of DEPTH. Nothing else (m, n, the place in the matrix, packing, threads) has a part in it, so row i
of a product has the same bits alone as among others.

Read first: compile.py (@kernel: Python calls it; @inline: a helper; @Worker: called by its address), parallel.py
(share: threads take tasks 0, 1, ...; a worker gets `memory`, a row per thread to work in, and `args`, integers: sizes
and addresses) and the first lines of pointer.py, for the names.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, void

from minitx.kernels.block import ALONG, BLOCKS, DEPTH, FIELDS, columns, cut, product_block, record
from minitx.kernels.compile import array, for_dtypes, inline, kernel, strided
from minitx.kernels.epilogue import NOTHING
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.tile import BITS, BYTES, VECTORS

Array = np.ndarray[Any, Any]
NS = 0.02  # nanoseconds of a multiply-add on one thread, about

# Products that do not wait for each other are shared as one work. Its args: where the table of tasks begins; a record
# for each product (block.py says what is in it); and the table, for each task its product and the number of its block.


@inline
def share_products(worker, args, records, memory, threads):
    """Fill the table of tasks and share it, sorted by thread, then by product.

    So each thread begins with its own part of the blocks of every product, and takes others' when it is done.
    """
    args[0] = 1 + records * FIELDS
    task = 0
    for thread in range(threads):
        which = 0
        while which < records:
            blocks, along = args[1 + which * FIELDS + BLOCKS], args[1 + which * FIELDS + ALONG]
            for number in range(blocks * thread // threads, blocks * (thread + 1) // threads):
                args[args[0] + 2 * task], args[args[0] + 2 * task + 1] = which, number
                task += 1
            which += 1 + along  # the records that go along with this one (block.py) have no tasks of their own
    share(worker, memory, args, task, threads)


@inline
def room(c, threads, k=DEPTH, products=1):
    """How many numbers of args a product with this C needs."""
    m, n = c.shape
    height, width = cut(m, n, columns(k, products), VECTORS * BYTES // c.itemsize, threads)
    return FIELDS + 2 * (-(-m // height) * -(-n // width))


@inline
def multiply(worker, a, b, bias, how, extra, slope, sums, c, memory, threads):
    """C = A B for arrays, by the worker `product_block`; an empty bias, slope or sums is not there."""
    args = np.empty(1 + room(c, threads), np.int64)
    record(args, 0, a, b, bias, how, extra, slope, sums, c, threads)
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
    """One product; memory[0, :0], an empty array, says that no sums are wanted."""
    multiply(worker, a, b, bias, how, extra, slope, memory[0, :0], c, memory, threads)


def product(
    a: Array, b: Array, bias: Array | None = None, how: int = NOTHING, extra: Array | None = None,
    slope: Array | None = None, out: Array | None = None,
) -> Array:  # fmt: skip
    """A B + bias and the epilogue `how`, for two-dimensional arrays of one dtype whose steps are whole elements.

    With how = MORE, `out` holds something already, A B is added to it, and a bias is not.
    """
    (m, k), n = a.shape, b.shape[1]
    dtype = a.dtype
    c = np.empty((m, n), dtype) if out is None else out
    if k == 0 or c.size == 0:
        raise ValueError("product: nothing to multiply")
    threads = threads_for(NS * m * n * k)
    none, nothing = NONE[dtype]  # no vector, no matrix
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
    """One product after the other."""
    none, nothing = memory[0, :0], memory[:0]
    for i in range(len(c)):
        multiply(worker, a[i], b[i], none, NOTHING, nothing, nothing, none, c[i], memory, threads)


def batched(a: Array, b: Array) -> Array:
    """A B for every A and B of two stacks, (..., m, k) (..., k, n), whose axes in front broadcast."""
    (m, k), n, dtype = a.shape[-2:], b.shape[-1], a.dtype
    front = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    c = np.empty((*front, m, n), dtype)
    stacks = [np.broadcast_to(x, (*front, *x.shape[-2:])).reshape(-1, *x.shape[-2:]) for x in (a, b)]
    threads = threads_for(NS * m * n * k)
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
            if need.x:
                dx = np.empty(x.shape, x.dtype)  # whole, not a view of rows: so others may add to it (tensor.py)
                product(dz_rows, y.T, out=_rows(dx))
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
