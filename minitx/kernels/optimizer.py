"""All parameters in one compiled call: AdamW, the sum of squares, a factor. Definitions: optim/adam.py, optim/clip.py.

A model has many small arrays, and a few NumPy calls for each cost more than the arithmetic. So a kernel gets lists of
arrays. To hand over one array costs some 0.5 µs, and NumPy takes 1 µs to say where its numbers are; but `id` says where
the array itself is, as an object of CPython, and the kernel reads there what NumPy's C header (PyArrayObject) says is
there. `_layout_is_known` looks whether it is so. Nothing is kept from call to call, so it does not matter which arrays
are replaced in between; the caller's lists keep them alive during the call.

The work is cut into blocks of one array each, whose sums are added in their order: results do not depend on threads.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import float64, int64

from minitx.kernels.compile import CannotCompile, Worker, array, exact, for_dtypes, inline, kernel
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, cast, elements, real, size_of
from minitx.kernels.vectormath import const

Array = np.ndarray[Any, Any]
Arrays = Sequence[Array]

BLOCK = 1 << 13  # elements of a task
NUMBERS = np.zeros(0)


def adam(
    values: Arrays, gradients: Arrays, ms: Arrays, vs: Arrays, shrink: Sequence[float], penalty: Sequence[float],
    rate: float, beta1: float, beta2: float, root: float, eps: float,
) -> bool:  # fmt: skip
    """For each parameter, in place: g += penalty p; m, v as in optim/adam.py; p = shrink p - rate m / (√v / root + ε).

    False, and nothing is done, if not all arrays have one dtype and the four of a parameter one size and order in
    memory. `values` may be read-only: the caller answers for it that nobody else reads them.
    """
    scalars = np.array([rate, beta1, 1 - beta1, beta2, 1 - beta2, 1 / root, eps])
    return _run(adam_block, [values, gradients, ms, vs], 0.8, np.array([*shrink, *penalty]), scalars) >= 0


def sum_of_squares(arrays: Arrays) -> float:
    """Σ g² over all of them, in float64; -1 if they have not one dtype, or one is not in one piece."""
    return _run(square_block, [arrays], 0.15, NUMBERS, NUMBERS)


def scale(arrays: Arrays, factor: float, out: Arrays) -> bool:
    """out = factor g, for each; they may be the same arrays. False as in `adam`."""
    return _run(scale_block, [arrays, out], 0.2, NUMBERS, np.array([factor])) >= 0


def _run(worker: Any, lists: Sequence[Arrays], ns: float, each: Array, scalars: Array) -> float:
    n, dtype = len(lists[0]), lists[0][0].dtype
    if not _compiles(dtype):
        return -1.0
    ids = np.fromiter(map(id, itertools.chain.from_iterable(lists)), np.int64, n * len(lists))
    sizes = np.empty(n, np.int64)
    total = look[dtype](memory_for(dtype, 1), ids, sizes)
    if total < 0:
        return -1.0
    most = total // BLOCK + n  # tasks
    args, sums, threads = np.empty(TASKS + 2 * most, np.int64), np.zeros(most), threads_for(ns * total)
    memory = memory_for(dtype, threads)
    return over_all[dtype](memory, worker[dtype], args, sums, sizes, ids, each, scalars, threads)  # type: ignore[no-any-return]


@functools.cache
def _compiles(dtype: Any) -> bool:
    try:
        parts = look, over_all, adam_block, square_block, scale_block
        return dtype in NONE and _layout_is_known() and all(part[dtype] for part in parts)
    except CannotCompile:
        return False


# PyArrayObject: after what all objects begin with come
HEAD = object.__basicsize__
DATA, AXES, SHAPE, DTYPE, FLAGS = (HEAD + 8 * i for i in (0, 1, 2, 5, 6))  # where the other two are strides and base


def _layout_is_known() -> bool:
    def at(a: Array, offset: int, kind: Any = ctypes.c_int64) -> int:
        return int(kind.from_address(id(a) + offset).value)

    a = np.zeros((2, 3, 5))
    return all(
        at(b, DATA) == b.ctypes.data
        and at(b, AXES, ctypes.c_int) == b.ndim
        and [ctypes.c_int64.from_address(at(b, SHAPE) + 8 * i).value for i in range(b.ndim)] == list(b.shape)
        and at(b, DTYPE) == id(b.dtype)
        and bytes((ctypes.c_char * 3).from_address(id(b.dtype) + HEAD + 8)) == b"fd="
        and at(b, FLAGS, ctypes.c_int) == b.flags.num
        for b in (a, a.T, a[:, ::2], a[0, 0])
    )


# ---------------------------------------------------------------------- compiled

# args: how many arrays, and the addresses of what over_all got; then, for each task, which array and where it begins
COUNT, SIZES, IDS, EACH, SCALARS, SUMS, TASKS = range(7)


@kernel(
    *for_dtypes(
        lambda T: float64(
            array(T, 2, writes=True), int64, array(int64, 1, writes=True), array(float64, 1, writes=True),
            array(int64, 1), array(int64, 1), array(float64, 1), array(float64, 1), int64,
        )
    )
)  # fmt: skip
def over_all(memory, worker, args, sums, sizes, ids, each, scalars, threads):
    """The worker on every block of every array; the sum of what it leaves in `sums`."""
    args[COUNT], args[SIZES], args[IDS] = len(sizes), address(sizes), address(ids)
    args[EACH], args[SCALARS], args[SUMS] = address(each), address(scalars), address(sums)
    tasks = 0
    for i in range(len(sizes)):
        start = 0
        while start < sizes[i]:
            args[TASKS + 2 * tasks], args[TASKS + 2 * tasks + 1] = i, start
            start += BLOCK
            tasks += 1
    share(worker, memory, args, tasks, threads)
    total = 0.0
    for task in range(tasks):
        total += sums[task]
    return total


@inline
def read(like, at):
    """The number of the type of `like` at an address."""
    return elements(like, at, 1)[0]


@inline
def kind(array_at):
    """What a dtype's object begins with after its type: letters for kind, type and byte order, and their number."""
    return read(0, read(0, array_at + DTYPE) + HEAD + 8)


@kernel(*for_dtypes(lambda T: int64(array(T, 2), array(int64, 1), array(int64, 1, writes=True))))
def look(memory, ids, sizes):
    """The sizes of the arrays, and their sum; -1 if the lists do not fit together."""
    total, count = 0, len(sizes)
    for i in range(count):
        for j in range(i, len(ids), count):
            size = 1
            for axis in range(read(np.int32(0), ids[j] + AXES)):
                size *= read(0, read(0, ids[j] + SHAPE) + 8 * axis)
            if j == i:
                sizes[i], order = size, 3  # 1: in C order, 2: in Fortran's (a vector: both)
            order &= read(np.int32(0), ids[j] + FLAGS)
            if size != sizes[i] or order == 0 or kind(ids[j]) != kind(ids[0]):
                return -1
        total += size
    return total


@exact
def block(like, args, which, task):
    """The elements of a task in the array of list number `which`."""
    i, start = args[TASKS + 2 * task], args[TASKS + 2 * task + 1]
    size = elements(args[0], args[SIZES], args[COUNT])[i]
    object_at = elements(args[0], args[IDS] + 8 * which * args[COUNT], args[COUNT])[i]
    return elements(like, read(args[0], object_at + DATA) + start * size_of(like), min(BLOCK, size - start))


@exact
def number(like, args, which, i):
    """scalars[i] or each[i], in the dtype of the parameters."""
    return cast(like, elements(real(args[0]), args[which], i + 1)[i])


@exact
def smallest(eps):
    """Moments below this become 0. Those of a row that gets no gradient any more would be subnormal, and stay so.

    With such numbers a step took 30 times as long (vectormath.py says why). Not where ε is so small that √v, as
    small as that, counts beside it.
    """
    tiny = const(eps, 1.1754943508222875e-38, 2.2250738585072014e-308)
    return tiny if eps > const(eps, 1e-10, 1e-138) else const(eps, 0.0, 0.0)


@exact
def or_0(x, least):
    return const(x, 0.0, 0.0) if abs(x) < least else x


@exact
def adam_step(p, g, m, v, shrink, penalty, rate, beta1, rest1, beta2, rest2, inverse_root, eps, least):
    zero = const(p, 0.0, 0.0)
    g += penalty * p if penalty != zero else zero
    m = or_0(beta1 * m + rest1 * g, least)
    v = or_0(beta2 * v + rest2 * (g * g), least)
    return shrink * p - rate * (m / (np.sqrt(v) * inverse_root + eps)), m, v


@Worker
def adam_block(memory, args, task):
    like = memory[0]
    p, g, m, v = (block(like, args, 0, task), block(like, args, 1, task), block(like, args, 2, task),
                  block(like, args, 3, task))  # fmt: skip
    i = args[TASKS + 2 * task]
    shrink, penalty = number(like, args, EACH, i), number(like, args, EACH, args[COUNT] + i)
    rate, beta1, rest1 = number(like, args, SCALARS, 0), number(like, args, SCALARS, 1), number(like, args, SCALARS, 2)
    beta2, rest2 = number(like, args, SCALARS, 3), number(like, args, SCALARS, 4)
    inverse_root, eps = number(like, args, SCALARS, 5), number(like, args, SCALARS, 6)
    least = smallest(eps)
    for j in range(len(p)):
        p[j], m[j], v[j] = adam_step(
            p[j], g[j], m[j], v[j], shrink, penalty, rate, beta1, rest1, beta2, rest2, inverse_root, eps, least
        )


@Worker
def square_block(memory, args, task):
    g, total = block(memory[0], args, 0, task), 0.0
    for j in range(len(g)):
        x = np.float64(g[j])
        total += x * x
    elements(real(args[0]), args[SUMS], task + 1)[task] = total


@Worker
def scale_block(memory, args, task):
    like = memory[0]
    g, out, factor = block(like, args, 0, task), block(like, args, 1, task), number(like, args, SCALARS, 0)
    for j in range(len(g)):
        out[j] = g[j] * factor
