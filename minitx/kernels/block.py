"""One block of C = A B: rows i0 to i1, columns j0 to j1, chunk of k by chunk; see matmul.py for the whole of it."""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from minitx.kernels.compile import Worker, inline
from minitx.kernels.epilogue import MORE, fetch_for_epilogue, finish
from minitx.kernels.memory import PER_THREAD
from minitx.kernels.packing import LEAP, STRIP, fetch_strip, pack, pack_rows
from minitx.kernels.pointer import address, elements, pointer, prefetch, size_of, where
from minitx.kernels.tile import BYTES, ROWS, VECTORS, tile

DEPTH = 256  # of a chunk of k: 8 rows of A, 8 KB, stay in the first-level cache while the panels of B pass by
COLUMNS = 256  # of a block: its packed B, 256 KB, stays in the second-level cache
SMALL = 16384  # elements: a chunk of B as small as this, 64 KB, is read where it is
NEAR = 256 * 1024  # bytes: a C as small as this is taken to be in the second-level cache
assert DEPTH * COLUMNS + LEAP * DEPTH + ROWS * 64 <= PER_THREAD  # packed B, packed A, a tile at the edge of C

# The record of a product, as many integers in `args`: where its matrices are (addresses, and steps in elements; bias,
# slope and sums may be 0, not there; C, extra and slope have rows of n elements), and how large and how many its blocks
# are. The next ALONG records go along with it, block by block: either all of them add to one C and take turns (their k
# may differ), or all have one A, and each row of tiles is computed for all (SAME_A).
# A_ROW, A_STEP: from A[i, p] to A[i + 1, p] and to A[i, p + 1]; B_STEP, B_COLUMN: from B[p, j] to B[p + 1, j] and to
# B[p, j + 1]. IN_PLACE: B is not packed. FAR: C is too large to be in the cache, and is asked for ahead of time.
(A, A_ROW, A_STEP, B, B_STEP, B_COLUMN, BIAS, C, M, N, K, HOW, EXTRA, SLOPE, SUMS, HEIGHT, WIDTH, BLOCKS,
 ALONG, SAME_A, IN_PLACE, FAR, FIELDS) = range(23)  # fmt: skip


@inline
def cut(m, n, most, tile_width, threads):
    """Rows and columns of a block: `pieces` times `across` blocks, as many for each thread.

    About one block a thread, two where C has 512 rows for each. High blocks, of 32 rows or more: each packs its part of
    B anew, which takes as long as 7 rows of multiply-adds. As equally wide as tiles allow, at most `most`.
    For C (1000, 600), two threads, tiles of 32 and at most 256 columns: 504 rows; 224, 224 and 152 columns.
    """
    tiles = max(1, -(-n // tile_width))
    width = -(-tiles // max(1, -(-n // most)))
    across = -(-tiles // width)
    pieces = max(1, (2 * threads if m >= 512 * threads else threads) // across)
    # Where the last block of a row of blocks is narrower, threads get equally many of each column of blocks.
    while pieces * (1 if tiles % width else across) % threads:
        pieces += 1
    height = m if threads == 1 else max(32, -(-m // (pieces * ROWS)) * ROWS)
    return height, width * tile_width


@inline
def columns(k, products):
    """The most columns of a block: one chunk of B, or two of products that are computed together, has its room."""
    return min(COLUMNS, DEPTH * COLUMNS // (products * min(k, DEPTH)) // 32 * 32)


@inline
def record(args, number, a, b, bias, how, extra, slope, sums, c, threads, along=0, same_a=False):
    """C = A B for arrays as record `number`; an empty bias, slope or sums is not there."""
    at, m, n, k, size = 1 + number * FIELDS, c.shape[0], c.shape[1], b.shape[0], c.itemsize
    height, width = cut(m, n, columns(k, 2 if same_a else 1), VECTORS * BYTES // size, threads)
    blocks = -(-m // height) * -(-n // width)
    args[at + A], args[at + A_ROW], args[at + A_STEP] = address(a), a.strides[0] // size, a.strides[1] // size
    args[at + B], args[at + B_STEP], args[at + B_COLUMN] = address(b), b.strides[0] // size, b.strides[1] // size
    args[at + BIAS], args[at + C] = address(bias) if len(bias) else 0, address(c)
    args[at + M], args[at + N], args[at + K] = m, n, k
    args[at + HOW], args[at + EXTRA], args[at + SLOPE] = how, address(extra), address(slope) if len(slope) else 0
    args[at + SUMS], args[at + HEIGHT], args[at + WIDTH] = address(sums) if len(sums) else 0, height, width
    args[at + BLOCKS], args[at + ALONG], args[at + SAME_A] = blocks, along, same_a
    small = args[at + B_STEP] * min(k, DEPTH) <= SMALL or height <= 2 * ROWS  # (a packed B would be used but twice)
    small = small and (height <= 8 * ROWS or address(b) % BYTES == 0)  # (half its vectors would cross a cache line)
    args[at + IN_PLACE], args[at + FAR] = args[at + B_COLUMN] == 1 and small, m * n * size > NEAR


# ---------------------------------------------------------------------- one block


@inline
def block(memory, args, first, products, i0, i1, j0, j1):
    """C[i0:i1, j0:j1] = A B + bias, and the epilogue, for `products` records from args[first] on, which have one A.

    sums[i0:i1] = Σ_p A[:, p]: in dW = dyᵀ x, A is dyᵀ and this the gradient of the bias; A is being read anyway.
    """
    like = memory[0]
    size = size_of(like)
    width = VECTORS * BYTES // size  # of a tile
    a, a_row, a_step = args[first + A], args[first + A_ROW], args[first + A_STEP]
    k, sums = args[first + K], args[first + SUMS]
    panels = where(memory)
    panel_a = panels + DEPTH * COLUMNS * size
    edge = panel_a + LEAP * DEPTH * size
    room_b = DEPTH * (COLUMNS // products) * size
    # A tile reads A badly where its columns lie far apart (a transposed A), or its rows a multiple of 4 KB
    # apart, which push each other out of the cache. A strip that more than two tiles read is worth packing then.
    pack_a = (a_step > 64 or (a_row > 1 and a_row * size % 4096 == 0)) and (j1 - j0) * products > 2 * width
    for p0 in range(0, k, DEPTH):
        depth = min(DEPTH, k - p0)
        for q in range(products):
            pack_b(like, args, first + q * FIELDS, p0, depth, j0, j1, panels + q * room_b)
        for i in range(i0, i1, ROWS):
            rows = min(ROWS, i1 - i)
            a_at, row, step = a + (i * a_row + p0 * a_step) * size, a_row, a_step
            at = (i - i0) % STRIP  # row i's place in its strip; 0: a strip begins
            if pack_a:  # a_at, row and step become those of the packed strip
                if at == 0:
                    pack_rows(like, a_at, a_row, a_step, depth, min(STRIP, i1 - i), panel_a)
                if a_step == 1:
                    a_at, row = panel_a + at * depth * size, depth
                else:
                    a_at, row, step = panel_a + at * size, 1, LEAP
                ahead, ahead_p = i - at + STRIP, p0  # the next strip, or the next chunk's first, is asked for
                if ahead >= i1:
                    ahead, ahead_p = i0, p0 + DEPTH
                if ahead_p < k:
                    fetch_strip(like, a + (ahead * a_row + ahead_p * a_step) * size, a_row, a_step,
                                min(DEPTH, k - ahead_p), min(STRIP, i1 - ahead), at)  # fmt: skip
            if sums and j0 == 0 and at == 0:
                add_columns(like, a_at, row, step, depth, min(STRIP, i1 - i), sums + i * size, p0 > 0, edge)
            for q in range(products):
                row_of_tiles(like, args, first + q * FIELDS, a_at, row, step, p0, depth, i, rows, j0, j1,
                             panels + q * room_b, edge)  # fmt: skip


@inline
def pack_b(like, args, at, p0, depth, j0, j1, panels):
    """What is not read in place of B[p0:p0 + depth, j0:j1]: all of it, or the columns that fill no whole tile."""
    size, b_step, b_column = size_of(like), args[at + B_STEP], args[at + B_COLUMN]
    width = VECTORS * BYTES // size
    j = (j1 - j0) // width * width if args[at + IN_PLACE] else 0
    b = args[at + B] + (p0 * b_step + (j0 + j) * b_column) * size
    pack(like, b, b_step, b_column, depth, j1 - j0 - j, width, panels + j * depth * size)


@inline
def row_of_tiles(like, args, at, a, a_row, a_step, p0, depth, i, rows, j0, j1, panels, edge):
    """C[i:i + rows, j0:j1] (+)= one chunk of A B, and with the last chunk the epilogue."""
    size = size_of(like)
    width = VECTORS * BYTES // size
    m, n, k, how = args[at + M], args[at + N], args[at + K], args[at + HOW]
    extra, slope, b_step, bias, c = args[at + EXTRA], args[at + SLOPE], args[at + B_STEP], args[at + BIAS], args[at + C]
    c += i * n * size
    in_place, far, last, more = args[at + IN_PLACE], args[at + FAR], p0 + depth == k, p0 > 0 or how == MORE
    if far and last and how > MORE:
        fetch_for_epilogue(like, how, extra, slope, (i * n + j0) * size, m * n * size, rows, j1 - j0, n)
    for j in range(j0, j1, width):
        b_at, b_row = panels + (j - j0) * depth * size, width
        to, to_row = c + j * size, n
        start, start_row = 0, 0  # what the tile adds to: nothing, C, or the bias
        if j + width > j1:  # it would reach beyond C: computed beside it (B's panel ends with zeros), then copied
            to, to_row = edge, width
        else:
            if in_place:
                b_at, b_row = args[at + B] + (p0 * b_step + j) * size, b_step
            if more:
                start, start_row = to, n
            elif bias:
                start = bias + j * size
        if far:  # ask for the line in which each vector of C ends
            for r in range(rows):
                for v in range(1, VECTORS + 1):
                    prefetch(to + r * to_row * size + v * BYTES - size)
        tile(like, depth, a, a_row, a_step, b_at, b_row, start, start_row, to, to_row, rows)
        if j + width > j1:
            bias_at = bias + j * size if bias else 0
            add_edge(like, edge, width, bias_at, more, c + j * size, n, rows, j1 - j)
    if last and how > MORE:
        for r in range(i, i + rows):
            here = (r * n + j0) * size
            finish(elements(like, args[at + C] + here, j1 - j0), how, extra + here, m * n * size,
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


@Worker
def product_block(memory, args, task):
    entry = args[0] + 2 * task
    first, number = 1 + args[entry] * FIELDS, args[entry + 1]
    m, n, height, width = args[first + M], args[first + N], args[first + HEIGHT], args[first + WIDTH]
    across = -(-n // width)
    i, j = number // across * height, number % across * width
    products = 1 + args[first + ALONG]
    at_once = products if args[first + SAME_A] else 1
    for q in range(0, products, at_once):
        block(memory, args, first + q * FIELDS, at_once, i, min(m, i + height), j, min(n, j + width))
