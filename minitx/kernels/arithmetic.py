"""total += x on all threads: gradients that meet (tensor.py) were written by several threads, each a part of the rows.

One thread that adds them alone fetches the others' parts, and they fetch theirs back for what comes next.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, void

from minitx.kernels.compile import Worker, array, for_dtypes, kernel
from minitx.kernels.memory import NONE, memory_for
from minitx.kernels.parallel import share, threads_for
from minitx.kernels.pointer import address, elements, size_of

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 12  # of a task


def add_to(total: Array, x: Array) -> bool:
    """total += x; False, and nothing is done, unless both are in C order, of one shape and dtype."""
    dtype = total.dtype
    alike = total.shape == x.shape and dtype == x.dtype and dtype in NONE
    if not (alike and total.flags.c_contiguous and x.flags.c_contiguous):
        return False
    threads = threads_for(0.2 * total.size)
    add_kernel[dtype](add_part[dtype], total.reshape(-1), x.reshape(-1), memory_for(dtype, threads), threads)
    return True


@Worker
def add_part(memory, args, task):
    start, like = task * ELEMENTS, memory[0]
    n, at = min(ELEMENTS, args[2] - start), start * size_of(like)
    total, x = elements(like, args[0] + at, n), elements(like, args[1] + at, n)
    for i in range(n):
        total[i] += x[i]


@kernel(*for_dtypes(lambda T: void(int64, array(T, 1, writes=True), array(T, 1), array(T, 2, writes=True), int64)))
def add_kernel(worker, total, x, memory, threads):
    args = np.array([address(total), address(x), len(x)])
    share(worker, memory, args, -(-len(x) // ELEMENTS), threads)
