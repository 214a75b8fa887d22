"""One decode step: few tokens, one for each sequence, against the weights and a long cache.

A step of a model is a list of instructions, each a worker (parallel.py) with its own arguments, which `run` goes
through without coming back to Python: at these sizes a call from Python costs more than most products. What the list is
for a model is decided in generation/program.py.

    linear      y = φ(x Wᵀ + b), times or plus another matrix       a task: 64 columns of y
    attend      one query a head against the cache                  a task: one key head of one sequence
    add         y = x + other                                       a task: some numbers

(Norms have their workers in normalization.py.) Sums are those of the other kernels, chain by chain: linear keeps the
law of matmul.py, and attend the blocks of attention.py, so that a step gives the bits of the whole pass.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import int64, void

from minitx.kernels.atomic import add as add_to
from minitx.kernels.atomic import load
from minitx.kernels.block import DEPTH
from minitx.kernels.compile import Worker, array, for_dtypes, inline, intrinsic, kernel
from minitx.kernels.memory import LINE
from minitx.kernels.parallel import share
from minitx.kernels.pointer import address, ask_for, cast, elements, pointer, real, size_of, where
from minitx.kernels.pool import call, look_again
from minitx.kernels.scores import larger, plus, seen
from minitx.kernels.slopes import gelu, gelu_tanh, relu, sigmoid, silu
from minitx.kernels.thin import add_product
from minitx.kernels.tile import BYTES, transpose
from minitx.kernels.vectormath import exp_or_0, fma, tanh

Array = np.ndarray[Any, Any]

KEYS = 64  # of a block, as in attention.py
COLUMNS = WIDE = 64  # of y, in a task of linear
AHEAD = 128  # keys: a long cache is read faster when it is asked for so long before
PIECE = 64  # of k: as much of W, 64 x 64 numbers, meets all rows of x while it is in the first-level cache

NOTHING, RELU, GELU, GELU_TANH, SILU, SIGMOID = range(6)  # activations of `linear`
ALONE, TIMES, PLUS = range(3)  # what then happens to y with another matrix


@inline
def pack(like, source, row, columns, rows, target):
    """target[c, r] = source[r, c], rows of the target 64 apart; for at most one vector of rows."""
    size = size_of(like)
    lanes, done = BYTES // size, 0
    if rows == lanes:
        done = columns // lanes * lanes
        for c in range(0, done, lanes):
            transpose(like, source + c * size, row, target + c * WIDE * size, WIDE, cast(like, 1))
    for c in range(done, columns):
        x, y = pointer(like, source + c * size), elements(like, target + c * WIDE * size, rows)
        for r in range(rows):
            y[r] = x[r * row]


# ---------------------------------------------------------------------- y = φ(x Wᵀ + b)

X, W, BIAS, Y, OTHER, M, N, K, PHI, HOW = range(10)


def strips(n: int, k: int) -> tuple[int, int, int]:
    """The shape of W (n, k) as `linear` reads it: Wᵀ in strips of COLUMNS, one for each task."""
    return -(-n // COLUMNS), k, COLUMNS


def lay_out(weight: Array, target: Array) -> None:
    """W (n, k) → target, of the shape `strips`; the last strip is filled up with zeros.

    Done once, and read at every step from beginning to end. Turning W anew at each product, as matmul.py does for its
    many rows, takes longer than a product of few rows, and reading W in pieces longer than reading it in one line.
    """
    lay_out_kernel[target.dtype](weight, target)


@kernel(*for_dtypes(lambda T: void(array(T, 2), array(T, 3, writes=True))))
def lay_out_kernel(weight, target):
    (n, k), like = weight.shape, target[0, 0, 0]
    size = size_of(like)
    lanes = BYTES // size
    target[-1] = 0
    for j in range(0, n, lanes):
        at = address(target) + (j // COLUMNS * k * COLUMNS + j % COLUMNS) * size
        pack(like, address(weight) + j * k * size, k, k, min(lanes, n - j), at)


@Worker
def linear(memory, args, task):
    like, m, n, k = memory[0], args[M], args[N], args[K]
    size = size_of(like)
    j0 = task * COLUMNS
    columns = min(COLUMNS, n - j0)
    sums = where(memory)  # (m, COLUMNS)
    for p0 in range(0, k, DEPTH):
        s = elements(like, sums, m * COLUMNS)
        for x in range(m * COLUMNS):
            s[x] = 0
        for p in range(p0, min(p0 + DEPTH, k), PIECE):
            depth = min(PIECE, k - p, p0 + DEPTH - p)
            rows = args[W] + (j0 * k + p * COLUMNS) * size
            add_product(like, m, depth, COLUMNS, args[X] + p * size, k, rows, COLUMNS, sums, COLUMNS)
        for i in range(m):
            total = elements(like, sums + i * COLUMNS * size, columns)
            y = elements(like, args[Y] + (i * n + j0) * size, columns)
            if p0 > 0:
                for j in range(columns):
                    y[j] += total[j]
            elif args[BIAS]:
                bias = elements(like, args[BIAS] + j0 * size, columns)
                for j in range(columns):
                    y[j] = bias[j] + total[j]
            else:
                for j in range(columns):
                    y[j] = total[j]
    for i in range(m):
        at = (i * n + j0) * size
        y, other = elements(like, args[Y] + at, columns), elements(like, args[OTHER] + at, columns)
        bend(y, args[PHI])
        if args[HOW] == TIMES:
            for j in range(columns):
                y[j] *= other[j]
        elif args[HOW] == PLUS:
            for j in range(columns):
                y[j] += other[j]


@inline
def bend(y, phi):
    if phi == RELU:
        for j in range(len(y)):
            y[j] = relu(y[j])[0]
    elif phi == GELU:
        for j in range(len(y)):
            y[j] = gelu(y[j])[0]
    elif phi == GELU_TANH:
        for j in range(len(y)):
            y[j] = gelu_tanh(y[j])[0]
    elif phi == SILU:
        for j in range(len(y)):
            y[j] = silu(y[j])[0]
    elif phi == SIGMOID:
        for j in range(len(y)):
            y[j] = sigmoid(y[j])[0]


# ---------------------------------------------------------------------- y = x + other

ELEMENTS = 4096  # of a task


@Worker
def add(memory, args, task):
    """y = x + other; args: elements, x, other, y."""
    like = memory[0]
    start = task * ELEMENTS
    n, at = min(ELEMENTS, args[0] - start), start * size_of(like)
    x, other = elements(like, args[1] + at, n), elements(like, args[2] + at, n)
    y = elements(like, args[3] + at, n)
    for i in range(n):
        y[i] = x[i] + other[i]


# ---------------------------------------------------------------------- attention

# q (B, H d), k (B, H_kv d) and v (B, H_kv d_v) of the new tokens, o (B, H d_v); the cache, with the elements from one
# row to the next and from one head to the next; per sequence the new token's slot, and which slots it sees.
Q_, K_, V_, O_, KEYS_, VALUES_, KEYS_ROW, KEYS_HEAD, VALUES_ROW, VALUES_HEAD, SLOT, LO, HI = range(13)
H_, H_KV, D, D_V, SCALE, CAP = range(13, 19)
COS, SIN, PAIRS, NEIGHBOURS = range(19, 23)  # (B, pairs), or 0; are pairs neighbours, or halves?
BIAS_, BIAS_ROW, BIAS_HEAD = range(23, 26)  # to be added to the scores, (B, H, slots), or 0
ATTEND = 26  # arguments in all


@Worker
def attend(memory, args, task):
    like, integer = memory[0], args[0]
    size, d, d_v = size_of(like), args[D], args[D_V]
    lanes = BYTES // size
    d_pad = (d_v + lanes - 1) // lanes * lanes
    b, g = task // args[H_KV], task % args[H_KV]
    group = args[H_] // args[H_KV]
    lo, hi = elements(integer, args[LO] + b * 8, 1)[0], elements(integer, args[HI] + b * 8, 1)[0]
    k_at = args[KEYS_] + (b * args[KEYS_ROW] + g * args[KEYS_HEAD]) * size
    v_at = args[VALUES_] + (b * args[VALUES_ROW] + g * args[VALUES_HEAD]) * size
    # memory: queries, Kᵀ of a block, scores, what a block adds, o; V where its width is not a whole number of vectors
    q_at = where(memory)
    kt = q_at + group * d * size
    s = kt + d * KEYS * size
    more = s + group * KEYS * size
    o = more + group * d_pad * size
    v_copy = o + group * d_pad * size

    # Where keys and values are fetched from while others are worked on: some keys further on, then at the next task.
    later, ahead = task + 1, min(AHEAD, hi - lo)
    b_next, g_next = later // args[H_KV], later % args[H_KV]
    k_next = args[KEYS_] + (b_next * args[KEYS_ROW] + g_next * args[KEYS_HEAD] + (lo - hi) * d) * size
    v_next = args[VALUES_] + (b_next * args[VALUES_ROW] + g_next * args[VALUES_HEAD] + (lo - hi) * d_v) * size
    if args[K_]:  # self-attention: the new token takes its place in the cache first
        slot = elements(integer, args[SLOT] + b * 8, 1)[0]
        turned(like, args, b, args[K_] + (b * args[H_KV] + g) * d * size, k_at + slot * d * size, cast(like, 1))
        source = elements(like, args[V_] + (b * args[H_KV] + g) * d_v * size, d_v)
        target = elements(like, v_at + slot * d_v * size, d_v)
        for c in range(d_v):
            target[c] = source[c]
    for i in range(group):
        h = g * group + i
        turned(like, args, b, args[Q_] + (b * args[H_] + h) * d * size, q_at + i * d * size,
               cast(like, real(args[SCALE])))  # fmt: skip
    out = elements(like, o, group * d_pad)
    numbers = v_copy + KEYS * d_pad * size
    top, total = elements(like, numbers, group), elements(like, numbers + group * size, group)
    largest = numbers + 2 * group * size
    for x in range(group * d_pad):
        out[x] = 0
    for i in range(group):
        top[i], total[i] = -np.inf, 0

    for block in range(lo // KEYS * KEYS, hi, KEYS):
        j0 = max(block, lo)
        keys = min(hi, block + KEYS) - j0
        wide = (keys + lanes - 1) // lanes * lanes
        for j in range(0, keys, lanes):
            then = j0 + j + ahead
            ask_for((k_at if then < hi else k_next) + then * d * size, lanes * d * size)
            ask_for((v_at if then < hi else v_next) + then * d_v * size, lanes * d_v * size)
            pack(like, k_at + (j0 + j) * d * size, d, d, min(lanes, keys - j), kt + j * size)
        scores = elements(like, s, group * KEYS)
        for x in range(group * KEYS):
            scores[x] = 0
        add_product(like, group, d, wide, q_at, d, kt, KEYS, s, KEYS)
        v_block, v_row = v_at + j0 * d_v * size, d_v
        if d_pad != d_v:
            widened(like, v_block, keys, d_v, v_copy, d_pad)
            v_block, v_row = v_copy, d_pad
        for i in range(group):
            z = elements(like, s + i * KEYS * size, wide)
            if real(args[CAP]) > 0:
                cap = cast(like, real(args[CAP]))
                for j in range(wide):
                    z[j] = cap * tanh(z[j] / cap)
            if args[BIAS_]:
                h = g * group + i
                bias = elements(like, args[BIAS_] + (b * args[BIAS_ROW] + h * args[BIAS_HEAD] + j0) * size, keys)
                for j in range(keys):
                    z[j] += bias[j]
            for j in range(keys, wide):
                z[j] = -np.inf  # whole vectors from here on
            highest = elements(like, largest, lanes)
            for j in range(lanes):
                highest[j] = top[i]
            for j in range(0, wide, lanes):
                part = elements(like, s + (i * KEYS + j) * size, lanes)
                for x in range(lanes):
                    highest[x] = larger(highest[x], part[x])
            before = top[i]
            for j in range(lanes):
                top[i] = larger(top[i], highest[j])
            at = seen(top[i])
            shrink = exp_or_0(before - at)
            for j in range(wide):
                z[j] = exp_or_0(z[j] - at)
            t = cast(like, 0)
            for j in range(keys):
                t = plus(t, z[j])
            total[i] = fma(total[i], shrink, t)
            row, new = elements(like, o + i * d_pad * size, d_pad), elements(like, more + i * d_pad * size, d_pad)
            for c in range(d_pad):
                row[c] *= shrink
                new[c] = 0
        add_product(like, group, keys, d_pad, s, KEYS, v_block, v_row, more, d_pad)
        new = elements(like, more, group * d_pad)
        for x in range(group * d_pad):
            out[x] += new[x]

    for i in range(group):
        inverse = cast(like, 1) / total[i] if total[i] > 0 or total[i] != total[i] else cast(like, 0)
        row = elements(like, o + i * d_pad * size, d_v)
        target = elements(like, args[O_] + (b * args[H_] + g * group + i) * d_v * size, d_v)
        for c in range(d_v):
            target[c] = row[c] * inverse


@inline
def turned(like, args, b, source, target, factor):
    """target = factor * the head at `source`, turned by the angles of sequence b, where there are any."""
    size, d, pairs = size_of(like), args[D], args[PAIRS]
    x, y = elements(like, source, d), elements(like, target, d)
    if args[COS]:
        cos = elements(like, args[COS] + b * pairs * size, pairs)
        sin = elements(like, args[SIN] + b * pairs * size, pairs)
        first, second, apart = (0, 1, 2) if args[NEIGHBOURS] else (0, pairs, 1)
        for i in range(pairs):
            p, q = first + apart * i, second + apart * i
            y[p] = factor * rounded(rounded(x[p] * cos[i]) - rounded(x[q] * sin[i]))
            y[q] = factor * rounded(rounded(x[q] * cos[i]) + rounded(x[p] * sin[i]))
    else:
        pairs = 0
    for c in range(2 * pairs, d):
        y[c] = factor * x[c]


@intrinsic
def rounded(typingctx: Any, x: Any) -> Any:
    """x as it is: no part of a multiply-add. (NumPy, which turns the keys of a prompt, rounds every product.)"""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = args[0].type
        fence = builder.module.declare_intrinsic("llvm.arithmetic.fence", [kind], ir.FunctionType(kind, [kind]))
        return builder.call(fence, args)

    return x(x), codegen


@inline
def widened(like, source, rows, columns, target, width):
    """target (rows, width) = source (rows, columns) and zeros."""
    for i in range(rows):
        x = elements(like, source + i * columns * size_of(like), columns)
        y = elements(like, target + i * width * size_of(like), width)
        for c in range(columns):
            y[c] = x[c]
        for c in range(columns, width):
            y[c] = 0


# ---------------------------------------------------------------------- the list


@kernel(*for_dtypes(lambda T: void(int64, array(T, 2, writes=True), array(int64, 2), array(int64, 2), int64)))
def run(worker, memory, instructions, arguments, threads):
    """Go through the list, by the worker `go_through`; instructions (n, 2): worker and tasks; arguments (n, most)."""
    # Per instruction: tasks begun in the range of each thread, and tasks done, each in a line of the cache.
    counters = np.zeros((len(instructions), threads + 1, LINE // 8), np.int64)
    args = np.array([
        len(instructions), arguments.shape[1], address(instructions), address(arguments), address(counters), threads,
    ])  # fmt: skip
    share(worker, memory, args, threads, threads)
    counters[0, 0, 0] = 0  # until here they are in use


@Worker
def go_through(memory, args, task):
    """All instructions, together with whoever else goes through them; the next one begins when all of one is done.

    That takes a fraction of a microsecond, where to share each instruction would take one. Only tasks that somebody is
    working on are waited for, so nobody waits for a thread that has not come. As in pool.py, each has a range of the
    tasks, so that it meets the same weights at every step, and helps the others after it.
    """
    n, most, threads = args[0], args[1], args[5]
    instructions, arguments = elements(args[0], args[2], 2 * n), elements(args[0], args[3], n * most)
    for i in range(n):
        worker, tasks = instructions[2 * i], instructions[2 * i + 1]
        begun = args[4] + i * (threads + 1) * LINE
        done = begun + threads * LINE
        for j in range(threads):
            r = (task + j) % threads
            first, last = tasks * r // threads, tasks * (r + 1) // threads
            mine = first + add_to(begun + r * LINE, 1)
            while mine < last:
                call(worker, where(memory), address(arguments) + 8 * i * most, mine)
                add_to(done, 1)
                mine = first + add_to(begun + r * LINE, 1)
        looks = 0
        while load(done) < tasks:
            looks = look_again(looks)
