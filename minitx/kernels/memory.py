"""Memory that is used again: a page that the system hands out for the first time costs more than the work done on it.

Arrays of a training step come and go, the same sizes every step. Above some 100 KB the C library takes memory for them
from the system and gives it back at once, and every 4 KB of it cost a page fault, step by step. On Linux (glibc) two
settings make it keep what it has: `mallopt` below, for the whole process. MINITX_MALLOPT=0 leaves them alone.
"""
from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from malloc.h


def keep_freed_memory() -> bool:
    """True where the C library has the settings and took them."""
    if not sys.platform.startswith("linux") or os.environ.get("MINITX_MALLOPT") == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(M_MMAP_THRESHOLD, 32 << 20) and mallopt(M_TRIM_THRESHOLD, 1 << 30))
    except (OSError, AttributeError):  # another C library
        return False


keep_freed_memory()

PER_THREAD = (256 + 176) * 1024 // 4 + 4096  # numbers for a worker; block.py: 256 KB for B, 144 for A, an edge


LINE = 64  # bytes that a cache fetches at once


def memory_for(dtype: Any, threads: int, each: int = PER_THREAD) -> Array:
    """Memory for workers, kept from call to call: a row of `each` numbers per thread, and one for work without threads.

    (The end of the last row is parallel.py's own: the address of the board that threads look at, see pool.py.)
    """
    kept = _memory.get(dtype)
    if kept is None or kept.shape[0] <= threads or kept.shape[1] < each + 16:
        rows, columns = (0, 0) if kept is None else kept.shape
        rows, columns = max(rows, threads + 1), max(columns, -(-(each + 16) // 16) * 16)
        kept = zeros_at_lines(rows, columns, dtype)
        kept.view(np.int64)[-1, -1] = board.ctypes.data
        _memory[dtype] = kept  # other Python threads find it from here on
    return kept


def zeros_at_lines(rows: int, columns: int, dtype: Any) -> Array:
    """Zeros whose rows begin at cache lines: a vector across two of them takes twice as long to store."""
    numbers = LINE // dtype.itemsize
    memory = np.zeros(rows * columns + numbers, dtype)
    first = -memory.ctypes.data % LINE // dtype.itemsize
    return memory[first : first + rows * columns].reshape(rows, columns)


# The board that threads look at: 3 lines, and one for each of so many threads. pool.py says what is where.
MOST_THREADS = 1024
board = zeros_at_lines(3 + MOST_THREADS, LINE // 8, np.dtype(np.int64))
_memory: dict[Any, Array] = {}
# Arrays that are not there: an empty vector and an empty matrix.
NONE = {np.dtype(t): (np.zeros(0, t), np.zeros((0, 0), t)) for t in (np.float32, np.float64)}
