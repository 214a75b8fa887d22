"""attention, fast: tile by tile, without ever storing the T x S weights. Contract and mathematics: ops/attention.py.

One task is one head and up to two vectors of queries (four where there are many): 32 in float32 with AVX-512. The
scores are computed *transposed*, keys down and queries across, a block of KEYS keys at a time:

                  32 queries                       what is read, and how
               ┌──────────────┐      scores S = K Qᵀ            K in place, Qᵀ packed once per task
       KEYS    │ s_j0 s_j1 ...│      weights P = exp(S - top)   in place of the scores
       keys    │              │      o = o + Pᵀ V               P by columns, V in place
               └──────────────┘
     top, total:   one number a query

so that neither K nor V is rearranged, and all that softmax does along keys is arithmetic between vectors of queries: no
sums within a vector. The softmax is the running one: `top` is the largest score so far and `total` the sum of
exp(score - top); when a block brings a larger one, what has been summed shrinks by exp(old top - new top). For scores
1, then 3, in two blocks: top = 1, total = 1, o = v₀; then top = 3, total = e⁻² + 1, o = e⁻² v₀ + v₁; at last o / total.

Blocks end at multiples of KEYS, whatever the mask, and a pair that is masked has a weight of exactly 0: so the bits of
a query's result do not depend on what other queries there are, and decoding with a cache gives those of the whole pass.
Keys before the first or behind the last that a task's queries see take no part, and blocks of such keys are skipped.

Backward makes the weights again from the scores, `top` and `total`. One task is one key head, all queries of its group.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import boolean, float64, int64, uint64, void

from minitx import masks
from minitx.kernels.compile import Worker, array, for_dtypes, kernel, strided
from minitx.kernels.hash import draw_key, threshold
from minitx.kernels.memory import NONE, PER_THREAD, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import cast, elements, pointer, real, size_of, where
from minitx.kernels.scores import (
    B_,
    CAP,
    COPIES,
    D_V,
    DK,
    DO,
    DQ,
    DV,
    DZ,
    H_,
    H_KV,
    LIMIT,
    S_,
    SAVED,
    SCALE,
    T_,
    WIDTH,
    D,
    K,
    O,
    Q,
    V,
    adjust,
    again,
    arguments,
    ask_for_head,
    drop,
    multiply,
    padded,
    place,
    row_of,
    running_softmax,
    scale_rows,
    scaled,
    seen,
    softmax_backward,
    span,
    turned,
    unpadded,
    vectors,
    zero,
)  # fmt: skip
from minitx.kernels.tile import BITS, BYTES

Array = np.ndarray[Any, Any]

KEYS = 64  # in a block: with 32 queries 8 KB of scores, which stay in the first-level cache
QUERIES = 2  # vectors of queries in a task, at most: more would visit more blocks above the causal diagonal
LONG = 2048  # from so many queries on twice as many: keys and their gradients no longer stay in the cache between tasks
WIDE = 256  # and from so many on where every query sees all keys: there is no diagonal
NEAR = 128 * 1024  # bytes: K as small as this is taken to be in the second-level cache, with all the rest
COPY = 512  # from so many on a copy of a head pays: its rows lie H d numbers apart, often on the same cache lines
MOST_KEYS = 2**24  # positions are compared as numbers of the matrices' type: float32 has all up to here


# ---------------------------------------------------------------------- forward


@Worker
def attend(memory, args, task):
    """Forward: queries i0, i0 + 1, ... of head h of batch row b, with the keys and values of head g.

    Names that end in _at are addresses; so are qt, s, o, numbers and the copies, one behind the other in the memory of
    this thread.
    """
    like = memory[0]
    size, T, d, d_v = size_of(like), args[T_], args[D], args[D_V]
    width, d_pad = args[WIDTH], vectors(like, d_v)
    blocks = (T + width - 1) // width
    # The last queries first: under a causal mask they see most keys, and what takes longest should not come last.
    b, h, i0 = task // (args[H_] * blocks), task // blocks % args[H_], (blocks - 1 - task % blocks) * width
    g, rows = h // (args[H_] // args[H_KV]), min(width, T - i0)
    # memory: Qᵀ, scores, o, six numbers a query, whose the copies are, copies of K and V
    qt = where(memory)
    s = qt + d * width * size
    o = s + KEYS * width * size
    numbers = o + width * d_pad * size
    top, total = row_of(like, numbers, 0, width, width), row_of(like, numbers, 1, width, width)
    sums, shrink = row_of(like, numbers, 2, width, width), row_of(like, numbers, 3, width, width)
    lo, hi = row_of(like, numbers, 4, width, width), row_of(like, numbers, 5, width, width)
    v_copy = numbers + 6 * width * size
    k_at, k_row = place(like, args, K, b, g, 0), args[K + 3]
    v_at, v_row = place(like, args, V, b, g, 0), args[V + 3]
    if args[COPIES]:  # of the whole head; the next task is often of the same one
        S = args[S_]
        made = elements(task, v_copy, 2)  # two integers (as `task` is one): in which pass, and of which head
        k_copy = v_copy + BYTES
        v_copy = k_copy + S * vectors(like, d) * size
        if made[0] != args[COPIES] or made[1] != b * args[H_KV] + g:
            padded(like, k_at, k_row, S, d, k_copy, vectors(like, d))
            padded(like, v_at, v_row, S, d_v, v_copy, d_pad)
            made[0], made[1] = args[COPIES], b * args[H_KV] + g
        k_at, k_row, v_at, v_row = k_copy, vectors(like, d), v_copy, d_pad

    turned(like, place(like, args, Q, b, h, i0), args[Q + 3], rows, d, width, qt, cast(like, real(args[SCALE])))
    for i in range(width):
        top[i], total[i] = -np.inf, 0
    low, high, first, end = span(args, b, i0, rows, lo, hi, width)
    if low >= high:
        zero(like, o, width * d_pad)
    for block in range(low // KEYS * KEYS, high, KEYS):
        j0 = max(block, low)
        keys = min(high, block + KEYS) - j0
        multiply(like, keys, d, width, k_at + j0 * k_row * size, k_row, 1, qt, width, False, s, width)
        inside = first <= j0 and j0 + keys <= end
        adjust(like, args, s, width, b, h, i0, rows, j0, keys, lo, hi, inside, 0)
        running_softmax(like, s, width, keys, top, total, sums, shrink)
        if args[LIMIT]:
            drop(like, args, s, width, b, h, i0, rows, j0, keys)
        if j0 > low:
            scale_rows(like, o, rows, d_pad, shrink)
        # A = Pᵀ: one query further is one step along a row of P, one key further a row
        multiply(like, rows, keys, d_pad, s, 1, width, v_at + j0 * v_row * size, v_row, j0 > low, o, d_pad)
    saved = args[SAVED] + ((b * args[H_] + h) * 2 * T + i0) * size
    tops, inverses = elements(like, saved, rows), elements(like, saved + T * size, rows)
    for i in range(rows):  # what is saved, and 1 / total: 0 for a query that saw nothing, and NaN stays NaN
        shrink[i] = cast(like, 1) / total[i] if total[i] > 0 or total[i] != total[i] else cast(like, 0)
        tops[i], inverses[i] = top[i], shrink[i]
    scaled(like, o, d_pad, rows, shrink, place(like, args, O, b, h, i0), args[O + 3], d_v)


# ---------------------------------------------------------------------- backward


@Worker
def attend_backward(memory, args, task):
    """Backward: key head g of batch row b, and all queries of the heads h that share it."""
    like = memory[0]
    size, T, S, d, d_v = size_of(like), args[T_], args[S_], args[D], args[D_V]
    width, d_pad, v_pad = args[WIDTH], vectors(like, d), vectors(like, d_v)
    b, g, group = task // args[H_KV], task % args[H_KV], args[H_] // args[H_KV]
    scale = cast(like, real(args[SCALE]))
    # memory: Qᵀ, dOᵀ, weights, their gradients, slopes of the cap, dQ, five numbers a query, then copies
    qt = where(memory)
    do_t = qt + d * width * size
    p = do_t + d_v * width * size
    dp = p + KEYS * width * size
    slope = dp + KEYS * width * size
    dq = slope + KEYS * width * size
    numbers = dq + width * d_pad * size
    top, inverse = row_of(like, numbers, 0, width, width), row_of(like, numbers, 1, width, width)
    delta = row_of(like, numbers, 2, width, width)
    lo, hi = row_of(like, numbers, 3, width, width), row_of(like, numbers, 4, width, width)
    q_copy = numbers + 5 * width * size
    do_copy = q_copy + width * d_pad * size
    k_at, k_row = place(like, args, K, b, g, 0), args[K + 3]
    v_at, v_row = place(like, args, V, b, g, 0), args[V + 3]
    dk_at, dk_row = place(like, args, DK, b, g, 0), args[DK + 3]
    dv_at, dv_row = place(like, args, DV, b, g, 0), args[DV + 3]
    copies = args[COPIES]
    if copies:
        k_copy = do_copy + width * v_pad * size
        v_copy = k_copy + S * d_pad * size
        padded(like, k_at, k_row, S, d, k_copy, d_pad)
        padded(like, v_at, v_row, S, d_v, v_copy, v_pad)
        k_at, k_row, v_at, v_row = k_copy, d_pad, v_copy, v_pad
        dk_at, dk_row = v_copy + S * v_pad * size, d_pad
        dv_at, dv_row = dk_at + S * d_pad * size, v_pad
    following = task + 1
    if S <= KEYS and following < args[B_] * args[H_KV] and args[B_] * args[H_KV] * S * d * size > NEAR:
        # A short head is over before what it reads has come from far away: so the next one's is asked for now.
        b1, g1 = following // args[H_KV], following % args[H_KV]
        ask_for_head(like, args, K, b1, g1, S, d)
        ask_for_head(like, args, V, b1, g1, S, d_v)
        for h in range(g1 * group, (g1 + 1) * group):
            ask_for_head(like, args, Q, b1, h, T, d)
            ask_for_head(like, args, O, b1, h, T, d_v)
            ask_for_head(like, args, DO, b1, h, T, d_v)

    more = False  # do dk and dv hold sums already?
    for h in range(g * group, (g + 1) * group):
        for i0 in range(0, T, width):
            rows = min(width, T - i0)
            q_at, q_row = place(like, args, Q, b, h, i0), args[Q + 3]
            do_at, do_row = place(like, args, DO, b, h, i0), args[DO + 3]
            o_at = place(like, args, O, b, h, i0)
            turned(like, q_at, q_row, rows, d, width, qt, scale)
            turned(like, do_at, do_row, rows, d_v, width, do_t, cast(like, 1))
            saved = args[SAVED] + ((b * args[H_] + h) * 2 * T + i0) * size
            tops, inverses = elements(like, saved, rows), elements(like, saved + T * size, rows)
            for i in range(width):
                top[i] = inverse[i] = delta[i] = 0
            for i in range(rows):
                top[i], inverse[i] = seen(tops[i]), inverses[i]
                x, y = row_of(like, do_at, i, do_row, d_v), row_of(like, o_at, i, args[O + 3], d_v)
                along = cast(like, 0)
                for c in range(d_v):
                    along += x[c] * y[c]  # δ = Σ_j dw_j w_j = do · o, for dz = w (dw - δ)
                delta[i] = along
            if copies:
                padded(like, q_at, q_row, rows, d, q_copy, d_pad)
                padded(like, do_at, do_row, rows, d_v, do_copy, v_pad)
                q_at, q_row, do_at, do_row = q_copy, d_pad, do_copy, v_pad
            low, high, first, end = span(args, b, i0, rows, lo, hi, width)
            if low >= high:
                zero(like, dq, width * d_pad)
            if not more and (low > 0 or high < S):  # keys outside of this range would keep what was in memory
                for j in range(S):
                    zero(like, dk_at + j * dk_row * size, d_pad)
                    zero(like, dv_at + j * dv_row * size, v_pad)
                more = True
            for block in range(low // KEYS * KEYS, high, KEYS):
                j0 = max(block, low)
                keys = min(high, block + KEYS) - j0
                k_block, v_block = k_at + j0 * k_row * size, v_at + j0 * v_row * size
                # w = exp(z - top) / total, as in the forward pass
                multiply(like, keys, d, width, k_block, k_row, 1, qt, width, False, p, width)
                inside = first <= j0 and j0 + keys <= end
                adjust(like, args, p, width, b, h, i0, rows, j0, keys, lo, hi, inside, slope)
                again(like, p, width, keys, top, inverse)
                # o = (m * w) v:  dw = m * (do vᵀ),  dv = (m * w)ᵀ do
                multiply(like, keys, d_v, width, v_block, v_row, 1, do_t, width, False, dp, width)
                if args[LIMIT]:
                    drop(like, args, dp, width, b, h, i0, rows, j0, keys)
                # dz is wanted as it is for the bias, and before the cap's slope; else the scale comes in at once.
                later = args[DZ] or real(args[CAP]) > 0
                softmax_backward(like, p, dp, width, keys, delta, cast(like, 1) if later else scale)
                if args[LIMIT]:
                    drop(like, args, p, width, b, h, i0, rows, j0, keys)
                multiply(like, keys, rows, v_pad, p, width, 1, do_at, do_row, more, dv_at + j0 * dv_row * size, dv_row)
                # z = cap tanh(s / cap) + bias,  s = scale q kᵀ
                if args[DZ]:
                    for i in range(rows):
                        at = ((b * args[H_] + h) * T + i0 + i) * S + j0
                        out = elements(like, args[DZ] + at * size, keys)
                        for j in range(keys):
                            out[j] = pointer(like, dp)[j * width + i]
                if later:
                    ds, slopes = elements(like, dp, keys * width), elements(like, slope, keys * width)
                    for x in range(keys * width):
                        ds[x] *= scale * (slopes[x] if real(args[CAP]) > 0 else cast(like, 1))
                multiply(like, keys, rows, d_pad, dp, width, 1, q_at, q_row, more, dk_at + j0 * dk_row * size, dk_row)
                multiply(like, rows, keys, d_pad, dp, 1, width, k_block, k_row, j0 > low, dq, d_pad)
            unpadded(like, dq, d_pad, rows, place(like, args, DQ, b, h, i0), args[DQ + 3], d)
            more = True

    if copies:
        unpadded(like, dk_at, d_pad, S, place(like, args, DK, b, g, 0), args[DK + 3], d)
        unpadded(like, dv_at, v_pad, S, place(like, args, DV, b, g, 0), args[DV + 3], d_v)


# ---------------------------------------------------------------------- from Python


def _signature(T: Any) -> Any:
    four, out = strided(T, 4), array(T, 4, writes=True)
    return void(
        int64, four, four, four, out, four, out, out, out, array(T, 4, writes=True), array(int64, 2), array(int64, 2),
        four, strided(boolean, 4), out, int64, int64, float64, float64, uint64, uint64, float64,
        array(T, 2, writes=True), int64, int64,
    )  # fmt: skip


@kernel(*for_dtypes(_signature))
def attention_kernel(
    worker, q, k, v, o, do, dq, dk, dv, saved, lo, hi, bias, mask, dz, width, copies, scale, cap, key, limit, factor,
    memory, tasks, threads,
):  # fmt: skip
    args = arguments(
        q, k, v, o, do, dq, dk, dv, saved, lo, hi, bias, mask, dz, width, copies, scale, cap, key, limit, factor
    )  # fmt: skip
    share(worker, memory, args, tasks, threads)


def attention(
    q: Array, k: Array, v: Array, *, mask: Any = None, bias: Array | None = None, scale: float | None = None,
    softcap: float | None = None, query_offset: Any = None, dropout: float = 0.0,
    rng: np.random.Generator | None = None,
) -> tuple[Array, Callable[..., Any]]:  # fmt: skip
    """o = (m * w) v. Saved: q, k, v, o, and two numbers a query."""
    if not _fits(q, k, v, bias, softcap, dropout, rng):
        return NotImplemented  # type: ignore[no-any-return]
    dtype = q.dtype
    (B, H, T, d), H_kv, (S, d_v) = q.shape, k.shape[1], v.shape[2:]
    mask = EVERYTHING if mask is None else masks.as_mask(mask)
    dense, nothing = EMPTY_MASK, EMPTY[dtype]
    spans = mask.intervals(B, T, S, query_offset)
    shut = None if bias is None else np.isneginf(bias)
    if spans is None or (shut is not None and shut.any()):
        dense = mask.dense(B, T, S, query_offset)
        dense = dense[:, None] if dense.ndim == 3 else dense
        if dense.shape[1] not in (1, H):
            return NotImplemented  # type: ignore[no-any-return]
        if shut is not None:  # -inf in the bias masks
            dense = dense & ~np.broadcast_to(shut, (B, H, T, S))
        visible = masks.visible_keys(dense)
        if not visible.all():  # what nobody may see is not read
            k, v = (np.where(visible[:, None, :, None], x, 0) for x in (k, v))
        dense = np.broadcast_to(dense, (B, H, T, S))
        spans = EVERYTHING.intervals(B, T, S)
    assert spans is not None
    lo, hi = (np.ascontiguousarray(x, np.int64) for x in spans)
    bias_full = nothing if bias is None else np.broadcast_to(bias, (B, H, T, S))
    scale = 1 / math.sqrt(d) if scale is None else float(scale)
    cap = 0.0 if softcap is None else float(softcap)
    key, limit, factor = (draw_key(rng), threshold(dropout), 1 / (1 - dropout)) if dropout else (0, 0, 1.0)  # type: ignore[arg-type]
    q, k, v = (x if x.strides[3] == x.itemsize else np.ascontiguousarray(x) for x in (q, k, v))
    work = 0.03 * B * H * T * S * (d + d_v + 20)  # nanoseconds of a multiply-add; softmax is as much as 20
    threads = threads_for(work)
    lanes = BYTES // dtype.itemsize
    wide = T >= LONG or (T >= WIDE and not lo.any() and hi.min() == S)
    width = lanes * min(2 * QUERIES if wide else QUERIES, -(-T // lanes))
    d_pad, v_pad = (-(-n * dtype.itemsize // BYTES) * BYTES // dtype.itemsize for n in (d, d_v))
    o, saved = np.empty((B, T, H, d_v), dtype), np.empty((B, H, 2, T), dtype)
    copies = (T >= COPY and not lo.any()) or v_pad != d_v  # (of a window's keys most are read only once)
    each = width * (d + KEYS + v_pad + 6) + lanes + S * (d_pad + v_pad) * copies
    memory = memory_for(dtype, threads, max(PER_THREAD, each))
    run, worker, backward_worker = attention_kernel[dtype], attend[dtype], attend_backward[dtype]
    run(worker, q, k, v, o, nothing, nothing, nothing, nothing, saved, lo, hi, bias_full, dense, nothing, width,
        next(_calls) * copies, scale, cap, key, limit, factor, memory, B * H * -(-T // width), threads)  # fmt: skip

    def backward(do: Array, need: Any) -> tuple[Array | None, ...]:
        do = do if do.strides[3] == do.itemsize else np.ascontiguousarray(do)
        dq, dk, dv = (np.empty((B, n, heads, w), dtype) for n, heads, w in ((T, H, d), (S, H_kv, d), (S, H_kv, d_v)))
        dz = np.zeros((B, H, T, S), dtype) if bias is not None and need.bias else nothing
        copies = T >= COPY or d_pad != d or v_pad != d_v
        each = width * (d + d_v + 3 * KEYS + 2 * d_pad + v_pad + 5) + 2 * S * (d_pad + v_pad) * copies
        memory = memory_for(dtype, threads, max(PER_THREAD, each))
        run(backward_worker, q, k, v, o, do, dq, dk, dv, saved, lo, hi, bias_full, dense, dz, width, copies, scale, cap,
            key, limit, factor, memory, B * H_kv, threads)  # fmt: skip
        dbias = _sum_to(dz, bias.shape) if bias is not None and need.bias else None
        return dq.swapaxes(1, 2), dk.swapaxes(1, 2), dv.swapaxes(1, 2), dbias

    return o.swapaxes(1, 2), backward


EMPTY = {dtype: np.zeros((0, 0, 0, 0), dtype) for dtype in NONE}
_calls = itertools.count(1)  # forward passes: copies made in one are no use to another
EVERYTHING = masks.full()
EMPTY_MASK = np.zeros((0, 0, 0, 0), np.bool_)


def _fits(q: Array, k: Array, v: Array, bias: Array | None, softcap: float | None, dropout: float, rng: Any) -> bool:
    """Is this a case that the kernel does? (The definition says what is wrong with the others.)"""
    if not (BITS and q.ndim == k.ndim == v.ndim == 4 and q.dtype in NONE and q.size and k.size and v.size):
        return False
    (B, H, T, d), (H_kv, S) = q.shape, k.shape[1:3]
    good = k.shape == (B, H_kv, S, d) and H % H_kv == 0 and v.shape[:3] == k.shape[:3]
    good = good and S <= MOST_KEYS
    if softcap is not None:  # (as float32, 1e-50 is 0)
        good = good and q.dtype.type(min(softcap, 1)) > 0 and softcap <= float(np.finfo(q.dtype).max)
    if bias is not None:
        good = good and bias.ndim in (2, 4) and all(n in (1, m) for n, m in zip(bias.shape[::-1], (S, T, H, B)))
    return good and 0 <= dropout < 1 and (dropout == 0 or hasattr(rng, "integers"))


def _sum_to(g: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of an array of this shape that was broadcast to g's."""
    full = (1,) * (g.ndim - len(shape)) + shape
    repeated = tuple(i for i, (n, m) in enumerate(zip(full, g.shape)) if n != m)
    return g.sum(repeated, keepdims=True).reshape(shape)  # type: ignore[no-any-return]
