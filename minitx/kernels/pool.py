"""The threads that kernels share their work with.

All of them look at one *board* in memory. Who has work writes it there (`share_out`), and helps to do it; each thread
of the pool looks (`serve`), takes tasks as long as there are some, and says how many are done. What makes that fast:

- Only a task that somebody has begun is waited for. A thread that comes late finds nothing left, and has delayed
  nobody, even where all cores are busy.
- A thread keeps looking for a while before it sleeps: in a training step the next work comes after a few microseconds,
  and to wake a thread up takes 20 to 50. Now and then it offers its core to whoever needs it: a waiting thread must not
  hold up a working one.
- Each has a range of the tasks, and helps the others when it is done with its own. So, op by op, it mostly meets the
  rows of an activation that it has written itself and has in the cache of its core.

One integer for each range holds the number of the work (high half) and the number of tasks left (low half). Whoever
lowers it by one, in one step, owns a task. It changes with the work, so a thread that has read half of an old
description can never take a task of the new one.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

import atexit
import ctypes
import os
import threading
from contextlib import suppress
from typing import Any

import numba
from llvmlite import ir
from numba import int32, int64, types, void

from minitx.kernels.atomic import add, load, pause, replace, store, swap
from minitx.kernels.compile import CannotCompile, array, inline, intrinsic, kernel
from minitx.kernels.memory import LINE, MOST_THREADS, board
from minitx.kernels.pointer import address, i64

LOOKS = 12_800  # how often a thread looks for work, or for another's last task, before it sleeps: about 0.2 ms
OFFER = 64  # after so many looks it offers its core to others

# The board: offsets in bytes. What is written together shares a line of the cache.
NUMBER, WORKER, MEMORY, EACH, ARGS, TASKS, THREADS = range(0, 56, 8)  # the work, and its number
DONE = LINE  # tasks done by the pool's threads
BUSY, TAKES_LONG, OVER = range(2 * LINE, 2 * LINE + 24, 8)  # a work is going on; the next takes long; all is over
PLACES = 3 * LINE  # a line per thread, the first for whoever shares work out:
LEFT = 0  # number of the work << 32 | tasks left of its range
ASLEEP, BELL = 8, 16  # 1 in a pool's thread, else the DONE that is waited for; the lock that it sleeps at

LOW = 0xFFFFFFFF  # the low half of an integer
MOST = min(numba.config.NUMBA_NUM_THREADS, MOST_THREADS)  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- C functions of this process

# Python's locks, which need no Python: one thread waits, another releases. Here they are bells.
wait_for_bell: Any = types.ExternalFunction("PyThread_acquire_lock", int32(int64, int32))
ring: Any = types.ExternalFunction("PyThread_release_lock", void(int64))
# Python's global lock: who gives it up gets a state, which takes it again.
give_up_lock: Any = types.ExternalFunction("PyEval_SaveThread", int64())
take_lock: Any = types.ExternalFunction("PyEval_RestoreThread", void(int64))
# Another thread may have this core, if one waits for it.
offer_core: Any = types.ExternalFunction("SwitchToThread" if os.name == "nt" else "sched_yield", int32())


# ---------------------------------------------------------------------- tasks


@intrinsic
def call(typingctx: Any, worker: Any, memory: Any, args: Any, task: Any) -> Any:
    """Call the function at address `worker` with two addresses and a number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        function = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [byte, byte, i64]).as_pointer())
        builder.call(function, [builder.inttoptr(args[1], byte), builder.inttoptr(args[2], byte), args[3]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


@inline
def do_tasks(at, thread):
    """Do tasks as long as there are some, of this thread's range first. Returns how many."""
    count = 0
    ranges = load(at + THREADS)
    for i in range(ranges):
        j = (thread + i) % ranges
        range_left = at + PLACES + j * LINE + LEFT
        left = load(range_left)
        while left & LOW and thread < load(at + THREADS):
            worker, args = load(at + WORKER), load(at + ARGS)
            memory = load(at + MEMORY) + thread * load(at + EACH)
            task = load(at + TASKS) * (j + 1) // load(at + THREADS) - (left & LOW)
            if replace(range_left, left, left - 1):  # so what was read belongs to the work whose task this is
                call(worker, memory, args, task)
                count += 1
            left = load(range_left)
    return count


@inline
def look_again(looks):
    """A moment's rest before the next look; returns how many there have been."""
    pause()
    if looks % OFFER == OFFER - 1:
        offer_core()
    return looks + 1


@inline
def share_out(at, worker, memory, each, args, tasks, threads):
    """Put the work on the board, help, and return when it is done."""
    number = load(at + NUMBER) + 1
    store(at + DONE, 0)
    store(at + WORKER, worker)
    store(at + MEMORY, memory)
    store(at + EACH, each)
    store(at + ARGS, args)
    store(at + TASKS, tasks)
    store(at + THREADS, threads)
    for thread in range(threads):
        share = tasks * (thread + 1) // threads - tasks * thread // threads
        store(at + PLACES + thread * LINE + LEFT, number << 32 | share)
    swap(at + NUMBER, number)
    for thread in range(1, threads):
        place = at + PLACES + thread * LINE
        if load(place + ASLEEP) and swap(place + ASLEEP, 0):
            ring(load(place + BELL))
    others = tasks - do_tasks(at, 0)
    looks, place = 0, at + PLACES
    while load(at + DONE) < others:
        if looks < LOOKS:
            looks = look_again(looks)
        else:
            swap(place + ASLEEP, others)
            if load(at + DONE) < others or swap(place + ASLEEP, 0) == 0:
                wait_for_bell(load(place + BELL), 1)


@kernel(void(array(int64, 2), int64), nogil=True)
def serve(board, thread):
    """What a thread of the pool does, until the process ends."""
    at = address(board)
    waiting, place = at + PLACES, at + PLACES + thread * LINE
    looks, seen = 0, 0
    while load(at + OVER) == 0:
        number = load(at + NUMBER)
        if number != seen:
            count = do_tasks(at, thread)
            if count and add(at + DONE, count) + count == load(waiting + ASLEEP) and swap(waiting + ASLEEP, 0):
                ring(load(waiting + BELL))
            seen = number
            if thread < load(at + THREADS):  # (who is not needed now may go to sleep)
                looks = 0
        elif looks < LOOKS:
            looks = look_again(looks)
        else:
            swap(place + ASLEEP, 1)
            nothing = load(at + NUMBER) == seen and load(at + OVER) == 0
            if nothing or swap(place + ASLEEP, 0) == 0:  # (0: the bell rings already)
                wait_for_bell(load(place + BELL), 1)
            looks = 0


# ---------------------------------------------------------------------- the threads

class _Starting:
    lock = threading.Lock()  # of two who start threads at once, one waits


_threads: list[threading.Thread] = []
_words = board.reshape(-1)
_second = _words[(PLACES + LINE + ASLEEP) // 8 :]


def start(n: int) -> None:
    """See to it that there are n threads, with the one that calls; where there cannot be, that one works alone."""
    try:
        function = serve[board.dtype]
    except CannotCompile:
        return
    with _Starting.lock:
        if not _threads:
            new_lock, acquire = ctypes.pythonapi.PyThread_allocate_lock, ctypes.pythonapi.PyThread_acquire_lock
            new_lock.restype, acquire.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int)
            for i in range(MOST):
                bell = new_lock()
                acquire(bell, 1)
                _words[(PLACES + i * LINE + BELL) // 8] = bell
        while len(_threads) < n - 1:
            thread = threading.Thread(target=function, args=(board, len(_threads) + 1), name="minitx", daemon=True)
            _threads.append(thread)  # first: Ctrl-C in between must not make two with one number
            with suppress(RuntimeError):  # the system has no more: nobody waits for a thread that is not there
                thread.start()


def asleep(n: int) -> bool:
    """Do the others of n threads sleep? (Those that are not there yet are started.)"""
    if len(_threads) < n - 1:
        start(n)
    return bool(_second[0])


def takes_long(is_so: bool) -> None:
    """Does the work that follows take long?"""
    _words[TAKES_LONG // 8] = is_so


def stop() -> None:
    """Let all threads end: they must not run while Python takes its memory down."""
    _words[OVER // 8] = 1
    release = ctypes.pythonapi.PyThread_release_lock
    release.argtypes = (ctypes.c_void_p,)
    for i, thread in enumerate(_threads, 1):
        while thread.is_alive():
            if _words[(PLACES + i * LINE + ASLEEP) // 8]:
                _words[(PLACES + i * LINE + ASLEEP) // 8] = 0
                release(int(_words[(PLACES + i * LINE + BELL) // 8]))
            thread.join(0.001)


def _after_fork() -> None:
    """A forked child has none of its parent's threads: it starts its own."""
    _Starting.lock = threading.Lock()
    _threads.clear()
    board[:] = 0


atexit.register(stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
