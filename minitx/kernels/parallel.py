"""Threads: how many a kernel may use, and how they share the work.

A kernel that is worth it cuts its work into numbered tasks and gives a *worker* to `share`:

    @Worker
    def scale(memory, args, task): ...        # one task; args[0], args[1], ...: integers and addresses of arrays

    @kernel(...)
    def scale_kernel(worker, x, y, memory, threads):
        args = arguments(address(x), address(y), len(x))
        share(worker, memory, args, tasks, threads)

Each thread takes the next task until none is left, so a slow or interrupted thread delays nobody. What a task computes
depends on its number alone, never on the thread: so results do not depend on the number of threads. `memory` is one row
per thread to work in. A worker is called by its address, and compiled once for all kernels that use it.

Several Python threads may call kernels: a kernel that runs on one thread keeps Python's global lock, so that no two of
those run at once, and so does one that shares short work. Only one work is shared at a time (pool.py); who comes while
it is works without threads, in memory of its own.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import os
from typing import Any

import numba

from minitx.kernels import pool
from minitx.kernels.atomic import load, store
from minitx.kernels.compile import inline
from minitx.kernels.pointer import address, elements
from minitx.kernels.pool import BUSY, TAKES_LONG, call, give_up_lock, share_out, take_lock
from minitx.kernels.say import once

config: Any = numba.config


class _Threads:
    n = 0  # 0: not decided yet
    missed = 0.0  # work that was worth sharing and was not, since the other threads slept


def set_threads(n: int) -> None:
    """Let kernels use n threads from now on. Results do not change by a bit."""
    if not 1 <= n <= pool.MOST:
        rule = f"between 1 and {pool.MOST}, the number of cores (NUMBA_NUM_THREADS changes it)"
        raise ValueError(f"set_threads({n}): {rule}")
    _Threads.n = n


def get_threads() -> int:
    """How many threads kernels may use: set_threads, else MINITX_NUM_THREADS, else one per core."""
    if not _Threads.n:
        _Threads.n = pool.MOST
        given = os.environ.get("MINITX_NUM_THREADS", "")
        if given:
            try:
                set_threads(int(given))
            except ValueError:
                once(f"MINITX_NUM_THREADS={given} ignored: it is a number from 1 to {pool.MOST}")
    return _Threads.n


def threads_for(work: float) -> int:
    """1 where `work`, in nanoseconds of one thread, is not worth sharing."""
    if work < WORTH:
        return 1
    n = _Threads.n or get_threads()
    if n > 1 and pool.asleep(n):
        _Threads.missed += work
        if _Threads.missed < WAKE:
            return 1
        _Threads.missed = 0
    if n > 1:
        pool.takes_long(work > LONG)
    return n


# Nanoseconds. To share work costs less than a microsecond while the other threads look for some, and 15 when they have
# to be woken up. So they are woken up when more than that has been lost without them, in one work or in several.
WORTH, WAKE = 7_000, 100_000
# During longer work than this other Python threads may run. (To get Python's lock back from a busy one takes 5 ms.)
LONG = 20_000_000
CHECKED = bool(config.BOUNDSCHECK)  # a worker that finds a wrong index needs the lock, to say so


@inline
def share(worker, memory, args, tasks, threads):
    """Run tasks 0 ... tasks - 1; `memory` is memory_for(dtype, threads), `args` an array of int64."""
    rows, row = memory.shape[0], memory.strides[0]
    at = address(memory)
    board = elements(args[0], at + rows * row - 8, 1)[0]
    if threads == 1 or tasks == 1 or load(board + BUSY):
        for task in range(tasks):
            call(worker, at + (rows - 1) * row, address(args), task)
    else:
        store(board + BUSY, 1)  # read and written under Python's lock
        state = 0
        if CHECKED or load(board + TAKES_LONG):
            state = give_up_lock()
        share_out(board, worker, at, row, address(args), tasks, threads)
        if state:
            take_lock(state)
        store(board + BUSY, 0)
