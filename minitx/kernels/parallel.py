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
per thread to work in. A worker is called by its address, and compiled once for all kernels that use it; this file holds
the only parallel loop (parallel loops take numba 2-4 times as long to compile).

Several Python threads may call kernels: a kernel that runs on one thread keeps Python's global lock, so that no two of
those run at once. Only one parallel loop runs at a time; who comes while it does works without threads, in memory of
its own. A forked child may not use a pool that its parent has started (GNU OpenMP would kill it), so it runs with one
thread. numba's simplest pool, "workqueue", aborts when it is used twice at once: with it, only a program without
threads of its own gets parallel loops.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import os
import threading
from importlib.util import find_spec
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import njit, prange, types

from minitx.kernels.compile import HELPER, inline, intrinsic, sleeping_threads
from minitx.kernels.pointer import address, elements, i64, insert_function
from minitx.kernels.say import once

config: Any = numba.config


class _Pool:
    threads = 0  # 0: not decided yet
    started = False  # a parallel region has run in this process
    fragile = not any(find_spec(f"numba.np.ufunc.{name}") for name in ("omppool", "tbbpool"))


def set_threads(n: int) -> None:
    """Let kernels use n threads from now on. Results do not change by a bit."""
    most = config.NUMBA_NUM_THREADS
    if not 1 <= n <= most:
        raise ValueError(f"set_threads({n}): between 1 and {most}, the number of cores (NUMBA_NUM_THREADS changes it)")
    _Pool.threads = n
    numba.set_num_threads(n)


def get_threads() -> int:
    """How many threads kernels may use: set_threads, else MINITX_NUM_THREADS, else one per core."""
    if not _Pool.threads:
        _Pool.threads = config.NUMBA_NUM_THREADS
        given = os.environ.get("MINITX_NUM_THREADS", "")
        if given:
            try:
                set_threads(int(given))
            except ValueError:
                once(f"MINITX_NUM_THREADS={given} ignored: it is a number from 1 to {_Pool.threads}")
    return _Pool.threads


def threads_for(work: float) -> int:
    """1 where `work`, in nanoseconds of one thread, is not worth waking the others up."""
    if work < WORTH:
        return 1
    n = _Pool.threads or get_threads()
    if n > 1 and _Pool.fragile and threading.active_count() > 1:
        return 1
    if n > 1 and not _Pool.started:
        _start()
    return n


WORTH = 40_000  # below this the other threads are hardly awake before the work is done


def _start() -> None:
    with sleeping_threads():
        numba.get_num_threads()  # loads the pool, unless a kernel with a parallel loop has been compiled or loaded
    _Pool.started = True


def _after_fork() -> None:
    if _Pool.started:
        _Pool.threads = 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@intrinsic
def take(typingctx: Any, counter: Any) -> Any:
    """counter[0] += 1 in one step that no other thread can interrupt; returns the value before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", data, i64(1), "acq_rel")  # and who sees it sees what was written before

    return types.int64(counter), codegen


@intrinsic
def look_again(typingctx: Any, counter: Any) -> Any:
    """counter[0] as other threads have left it, after a moment's rest."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pause = ir.FunctionType(ir.VoidType(), [])
        builder.call(insert_function(builder.module, pause, "llvm.x86.sse2.pause"), [])
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.load_atomic(data, "acquire", 8)

    return types.int64(counter), codegen


@intrinsic
def call(typingctx: Any, worker: Any, memory: Any, args: Any, task: Any) -> Any:
    """Call the function at address `worker` with two addresses and a number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [byte, byte, i64]).as_pointer())
        builder.call(function, [builder.inttoptr(args[1], byte), builder.inttoptr(args[2], byte), args[3]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


@njit(parallel=True, **HELPER)
def in_parallel(worker, memory, per_thread, args, tasks, threads):
    counter = np.zeros(1, np.int64)
    for thread in prange(threads):
        task = take(counter)
        while task < tasks:
            call(worker, memory + thread * per_thread, args, task)
            task = take(counter)


@inline
def share(worker, memory, args, tasks, threads):
    """Run tasks 0 ... tasks - 1; `memory` is memory_for(dtype, threads), `args` an array of int64."""
    rows, row = memory.shape[0], memory.strides[0]
    at = address(memory)
    in_use = elements(args[0], at + rows * row - 8, 1)
    if threads == 1 or tasks == 1 or in_use[0]:
        for task in range(tasks):
            call(worker, at + (rows - 1) * row, address(args), task)
    else:
        in_use[0] = 1  # read and written under Python's lock, which the loop itself gives up
        in_parallel(worker, at, row, address(args), tasks, min(threads, tasks))
        in_use[0] = 0
