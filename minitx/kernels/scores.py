"""Blocks of attention scores, keys down and queries across: what kernels/attention.py does to them, step by step.

Everything here works on addresses (pointer.py). A block is (keys, width): row j holds one key's scores for all queries.
What a task needs to know stands in one array of integers, `args`, at the places named below.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from llvmlite import ir

from minitx.kernels.compile import exact, inline
from minitx.kernels.dropout import kept
from minitx.kernels.packing import fetch_rows
from minitx.kernels.pointer import address, bits, cast, elements, keep_apart, no_overlap, pointer, real, size_of
from minitx.kernels.tile import (
    BYTES,
    ROWS,
    copy_vector,
    half_tile,
    on_vectors,
    part,
    scale_vector,
    scaled_vector,
    tile,
    transpose,
    zero_vector,
)
from minitx.kernels.vectormath import const, exp_or_0, fma, tanh

# Arrays: the address, and after it the steps of the axes batch, head and row, in elements: args[K + 3] leads from a row
# of K to the next. (LO + 1: of lo and hi alike. SAVED and DZ are C-ordered, and their steps not used.)
Q, K, V, O, DO, DQ, DK, DV, SAVED, LO, HI, BIAS, MASK, DZ = range(0, 56, 4)
# Numbers: sizes (B_, since B is a local name elsewhere); scale and softcap (0: none); dropout's key, limit (0: none)
# and factor; steps of the keys' axis; queries of a task, and whether it works on copies (forward: the number of the
# pass; 0: no).
B_, H_, H_KV, T_, S_, D, D_V, SCALE, CAP, KEY, LIMIT, FACTOR, BIAS_STEP, MASK_STEP, WIDTH, COPIES = range(56, 72)
COUNT = 72


@inline
def row_of(like, at, i, step, n):
    """The first n elements of row i, where rows are `step` elements apart."""
    return elements(like, at + i * step * size_of(like), n)


@inline
def place(like, args, what, b, h, i):
    """The address of row i of head h of batch row b."""
    return args[what] + (b * args[what + 1] + h * args[what + 2] + i * args[what + 3]) * size_of(like)


@inline
def multiply(like, m, k, n, a, a_row, a_step, b, b_step, more, c, c_row):
    """C = A B, or C += A B where `more`: (m, k) (k, n), n a multiple of one vector; nothing is packed."""
    keep_apart()
    size, width = size_of(like), 2 * BYTES // size_of(like)
    for i in range(0, m, ROWS):
        a_at, rows = a + i * a_row * size, min(ROWS, m - i)
        for j in range(0, n, width):
            b_at, to = b + j * size, c + (i * c_row + j) * size
            start = to if more else 0
            if j + width <= n:
                tile(like, k, a_at, a_row, a_step, b_at, b_step, start, c_row, to, c_row, rows)
            else:
                half_tile(like, k, a_at, a_row, a_step, b_at, b_step, start, c_row, to, c_row, rows)


@inline
def turned(like, source, source_row, rows, columns, width, target, factor):
    """target (columns, width) = factor * source (rows, columns)ᵀ; zeros for the target's columns from `rows` on.

    Square by square; at the edges from a copy with zeros. Behind the target a row of squares may be overwritten, and
    one square more.
    """
    size, lanes = size_of(like), BYTES // size_of(like)
    square = target + (columns + lanes) * width * size
    for i in range(0, width, lanes):
        for c in range(0, columns, lanes):
            at, step = source + (i * source_row + c) * size, source_row
            if i + lanes > rows or c + lanes > columns:
                for r in range(lanes):
                    n = min(lanes, columns - c) if i + r < rows else 0
                    part(like, at + r * source_row * size, n, square + r * lanes * size, lanes)
                at, step = square, lanes
            transpose(like, at, step, target + (c * width + i) * size, width, factor)


@inline
def padded(like, source, source_row, rows, columns, target, width):
    """target (rows, width) = source (rows, columns) and zeros; width is a whole number of vectors."""
    size, lanes = size_of(like), BYTES // size_of(like)
    whole = columns // lanes * lanes
    for i in range(rows):
        x, y = source + i * source_row * size, target + i * width * size
        for c in range(0, whole, lanes):
            copy_vector(like, y + c * size, x + c * size)
        for c in range(whole, width, lanes):
            part(like, x + c * size, columns - c, y + c * size, lanes)


@inline
def unpadded(like, source, width, rows, target, target_row, columns):
    """target (rows, columns) = the first columns of source (rows, width)."""
    size, lanes = size_of(like), BYTES // size_of(like)
    whole = columns // lanes * lanes
    for i in range(rows):
        x, y = source + i * width * size, target + i * target_row * size
        for c in range(0, whole, lanes):
            copy_vector(like, y + c * size, x + c * size)
        if whole < columns:
            part(like, x + whole * size, columns - whole, y + whole * size, columns - whole)


@inline
def scaled(like, source, width, rows, factors, target, target_row, columns):
    """As `unpadded`, and row i times factors[i]. (The end of a row of the source is overwritten.)"""
    size, lanes = size_of(like), BYTES // size_of(like)
    whole = columns // lanes * lanes
    for i in range(rows):
        x, y = source + i * width * size, target + i * target_row * size
        for c in range(0, whole, lanes):
            scaled_vector(like, y + c * size, x + c * size, factors[i])
        if whole < columns:
            scale_vector(like, x + whole * size, factors[i])
            part(like, x + whole * size, columns - whole, y + whole * size, columns - whole)


@inline
def ask_for_head(like, args, what, b, h, rows, columns):
    """All rows of a head that will be needed soon."""
    fetch_rows(like, place(like, args, what, b, h, 0), args[what + 3], rows, columns)


@inline
def zero(like, at, n):
    """n zeros, a whole number of vectors."""
    for x in range(0, n * size_of(like), BYTES):
        zero_vector(like, at + x)


@inline
def scale_rows(like, x, rows, width, factors):
    """Row i of x (rows, width) times factors[i]; width is a whole number of vectors."""
    size = size_of(like)
    for i in range(rows):
        for c in range(0, width * size, BYTES):
            scale_vector(like, x + i * width * size + c, factors[i])


@inline
def vectors(like, n):
    """n rounded up to whole vectors."""
    lanes = BYTES // size_of(like)
    return (n + lanes - 1) // lanes * lanes


@inline
def span(args, b, i0, rows, lo, hi, width):
    """The intervals of queries i0, i0 + 1, ... in lo, hi (empty where there is no query).

    Returns low, high around all of them, and the keys from `first` to `end`, which every query sees.
    """
    low, high, first, end, integer = args[S_], 0, 0, args[S_], args[0]
    los = elements(integer, args[LO] + (b * args[LO + 1] + i0) * 8, rows)
    his = elements(integer, args[HI] + (b * args[LO + 1] + i0) * 8, rows)
    for i in range(rows):
        at, to = (los[i], his[i]) if los[i] < his[i] else (args[S_], 0)
        lo[i], hi[i] = at, to
        low, high, first, end = min(low, at), max(high, to), max(first, at), min(end, to)
    for i in range(rows, width):
        lo[i] = hi[i] = 0
    return low, high, first, end


@inline
def adjust(like, args, s, width, b, h, i0, rows, j0, keys, lo, hi, inside, slope):
    """Scores → logits, in place: cap, bias, -inf where the query may not see the key; at `slope` dc/ds, if asked.

    `inside`: every query sees all keys of the block.
    """
    size, cap, minus_infinity = size_of(like), cast(like, real(args[CAP])), cast(like, -np.inf)
    if cap > 0:
        z, slopes = elements(like, s, keys * width), elements(like, slope, keys * width)
        for x in range(keys * width):
            t = tanh(z[x] / cap)
            z[x] = cap * t
            if slope:
                slopes[x] = cast(like, 1) - t * t
    if args[BIAS]:
        step = args[BIAS + 3]
        for j in range(keys):
            row = row_of(like, s, j, width, rows)
            at = b * args[BIAS + 1] + h * args[BIAS + 2] + i0 * step + (j0 + j) * args[BIAS_STEP]
            bias = pointer(like, args[BIAS] + at * size)
            for i in range(rows):
                row[i] += bias[i * step]
    if args[MASK]:
        step = args[MASK + 3]
        for j in range(keys):
            row = row_of(like, s, j, width, rows)
            at = b * args[MASK + 1] + h * args[MASK + 2] + i0 * step + (j0 + j) * args[MASK_STEP]
            allowed = pointer(np.uint8(0), args[MASK] + at)
            for i in range(rows):
                row[i] = row[i] if allowed[i * step] else minus_infinity
    if not inside:
        row = width * size
        for j in range(keys):
            for i in range(0, row, BYTES):
                hide(like, s + j * row + i, address(lo) + i, address(hi) + i, cast(like, j0 + j))


@inline
def running_softmax(like, s, width, keys, top, total, sums, shrink):
    """Scores → exp(score - top), and top, total brought up to date; what was summed before is to shrink by `shrink`.

    The `sums` of a block are taken by themselves, as o is: one chain over all keys would round every weight to the last
    place of the total so far (with 131,072 keys a float32 total was off by 0.1 percent).
    """
    row = width * size_of(like)
    for i in range(width):
        shrink[i] = top[i]
    # Four keys at a time: less traffic with `top` and `sums`.
    fours = keys // 4 * 4
    for i in range(0, row, BYTES):
        for j in range(s + i, s + i + fours * row, 4 * row):
            raise_top(like, address(top) + i, j, j + row, j + 2 * row, j + 3 * row)
        for j in range(s + i + fours * row, s + i + keys * row, row):
            raise_top(like, address(top) + i, j, j, j, j)
    for i in range(width):
        shrink[i] = exp_or_0(shrink[i] - seen(top[i]))
        sums[i] = 0
    for j in range(0, fours, 4):
        exponentials(top, sums, *four_rows(like, s + j * row, width))
    for j in range(fours, keys):
        a = elements(like, s + j * row, width)
        for i in range(width):
            a[i] = exp_or_0(a[i] - seen(top[i]))
            sums[i] = plus(sums[i], a[i])
    for i in range(width):
        total[i] = fma(total[i], shrink[i], sums[i])


@inline
def exponentials(top, sums, a, b, c, d):
    no_overlap()
    for i in range(len(top)):
        at = seen(top[i])
        w, x, y, z = exp_or_0(a[i] - at), exp_or_0(b[i] - at), exp_or_0(c[i] - at), exp_or_0(d[i] - at)
        a[i], b[i], c[i], d[i] = w, x, y, z
        sums[i] = plus(plus(plus(plus(sums[i], w), x), y), z)


@inline
def again(like, p, width, keys, top, inverse):
    """Logits → weights, with the maximum and the sum of the forward pass."""
    row, fours = width * size_of(like), keys // 4 * 4
    for j in range(0, fours, 4):
        weights(top, inverse, *four_rows(like, p + j * row, width))
    for j in range(fours, keys):
        a = elements(like, p + j * row, width)
        for i in range(width):
            a[i] = exp_or_0(a[i] - top[i]) * inverse[i]


@inline
def weights(top, inverse, a, b, c, d):
    no_overlap()
    for i in range(len(top)):
        at, scale = top[i], inverse[i]
        w, x, y, z = exp_or_0(a[i] - at), exp_or_0(b[i] - at), exp_or_0(c[i] - at), exp_or_0(d[i] - at)
        a[i], b[i], c[i], d[i] = w * scale, x * scale, y * scale, z * scale


@inline
def softmax_backward(like, p, dp, width, keys, delta, factor):
    """dp becomes dz = (w * dw - w * delta) * factor."""
    row = width * size_of(like)
    for i in range(0, row, BYTES):
        for j in range(i, i + keys * row, row):
            two_terms(like, dp + j, p + j, address(delta) + i, factor)


def _hidden(build, x, lo, hi, position):
    outside = build.or_(build.fcmp_ordered("<", position, lo), build.fcmp_ordered(">=", position, hi))
    return build.select(outside, ir.Constant(x.type, [-np.inf] * x.type.count), x)


def _highest(build, *rows):
    top = rows[0]
    for x in rows[1:]:
        top = build.select(build.fcmp_ordered(">", x, top), x, top)
    return top


def _two_terms(build, dw, w, delta, factor):
    return build.fmul(build.fmul(w, build.fsub(dw, delta)), factor)


hide = on_vectors(3, _hidden, "-inf where the position is not in [lo, hi)")
raise_top = on_vectors(5, _highest, "The largest so far, of itself and four more.")
two_terms = on_vectors(3, _two_terms, "dw → w * (dw - delta) * factor: term 1 - term 2.")


@inline
def drop(like, args, p, width, b, h, i0, rows, j0, keys):
    """p *= m, the dropout factors of these pairs."""
    factor, zero = cast(like, real(args[FACTOR])), cast(like, 0)
    for j in range(keys):
        row = row_of(like, p, j, width, width)
        first = ((b * args[H_] + h) * args[T_] + i0) * args[S_] + j0 + j
        for i in range(rows):
            row[i] *= factor if kept(args[KEY], first + i * args[S_], args[LIMIT]) else zero


@inline
def four_rows(like, at, width):
    return (
        row_of(like, at, 0, width, width), row_of(like, at, 1, width, width),
        row_of(like, at, 2, width, width), row_of(like, at, 3, width, width),
    )  # fmt: skip


@exact
def plus(x, y):
    """A sum over a block's keys is one chain in their order, so that it does not matter how they are grouped here."""
    return x + y


@exact
def larger(x, y):
    return y if y > x else x


@exact
def seen(top):
    """What to subtract: 0 for a query that has seen nothing yet, since exp(-inf - 0) = 0."""
    return top if top > -np.inf else const(top, 0.0, 0.0)


@inline
def arguments(
    q, k, v, o, do, dq, dk, dv, saved, lo, hi, bias, mask, dz, width, copies, scale, cap, key, limit, factor
):  # fmt: skip
    """Addresses and steps (in elements) of everything, in the places named at the top."""
    args = np.zeros(COUNT, np.int64)
    size = q.itemsize
    for at, x in ((Q, q), (K, k), (V, v), (BIAS, bias), (DO, do)):
        args[at] = address(x) if x.size else 0
        for axis in range(3):
            args[at + 1 + axis] = x.strides[axis] // size
    for at, x in ((O, o), (DQ, dq), (DK, dk), (DV, dv), (DZ, dz), (SAVED, saved)):
        args[at] = address(x) if x.size else 0
        args[at + 1], args[at + 2], args[at + 3] = x.strides[0] // size, x.strides[2] // size, x.strides[1] // size
    args[BIAS_STEP] = bias.strides[3] // size
    args[MASK] = address(mask) if mask.size else 0
    for axis in range(3):
        args[MASK + 1 + axis] = mask.strides[axis]
    args[MASK_STEP] = mask.strides[3]
    args[LO], args[HI], args[LO + 1] = address(lo), address(hi), lo.shape[1] if lo.shape[0] > 1 else 0
    args[B_], args[H_], args[T_], args[D] = q.shape
    args[H_KV], args[S_], args[D_V] = k.shape[1], k.shape[2], v.shape[3]
    args[SCALE], args[CAP], args[FACTOR] = bits(scale), bits(cap), bits(factor)
    args[WIDTH], args[COPIES] = width, copies
    args[KEY], args[LIMIT] = np.int64(key), np.int64(limit)
    return args
