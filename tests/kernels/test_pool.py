"""Threads share work: each task is done once, by somebody, whoever sleeps, comes late, or is many."""
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from equal import sharing
from numba import int64, void

from minitx.kernels import parallel, pool
from minitx.kernels.compile import Worker, array, for_dtypes, kernel
from minitx.kernels.matmul import product
from minitx.kernels.memory import memory_for
from minitx.kernels.parallel import share
from minitx.kernels.pointer import address, elements, where

TWO = pytest.mark.skipif(pool.MOST < 2, reason="one core")


@Worker
def note(memory, args, task):
    """times[task] += 1, after some work; who[task] = the memory it was done in."""
    times, who = elements(args[0], args[0] + 8 * task, 1), elements(args[0], args[1] + 8 * task, 1)
    own = elements(memory[0], where(memory), args[2])
    for i in range(args[2]):
        own[i] += 1
    times[0] += 1
    who[0] = where(memory)


@kernel(*for_dtypes(lambda T: void(int64, array(T, 2, writes=True), array(int64, 1, writes=True),
                                   array(int64, 1, writes=True), int64, int64)))  # fmt: skip
def note_kernel(worker, memory, times, who, effort, threads):
    args = np.array([address(times), address(who), effort])
    share(worker, memory, args, len(times), threads)


def noted(tasks, threads, effort=10):
    dtype = np.dtype(np.float32)
    memory, times, who = memory_for(dtype, threads), np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
    note_kernel[dtype](note[dtype], memory, times, who, effort, threads)
    return times, [(w - memory.ctypes.data) // memory.strides[0] for w in who]


@TWO
@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 7, 64, 1009])
def test_each_task_is_done_once_in_memory_of_its_thread(tasks):
    for threads in range(2, pool.MOST + 1):
        with sharing(threads):
            parallel.threads_for(1)
            for effort in (1, 3000):
                times, who = noted(tasks, threads, effort)
                assert (times == 1).all()
                assert set(who) <= ({threads} if tasks == 1 else set(range(threads)))


@TWO
def test_threads_sleep_after_a_while_and_wake_up():
    with sharing(2):
        parallel.threads_for(1)
        for _ in range(5):
            until = time.monotonic() + 30
            while not pool.asleep(2) and time.monotonic() < until:
                time.sleep(0.001)
            assert pool.asleep(2)
            assert any(1 in noted(200, 2, 20_000)[1] for _ in range(1000))


@TWO
def test_sleeping_threads_are_woken_up_when_it_is_worth_it(monkeypatch):
    monkeypatch.setattr(pool, "asleep", lambda n: True)
    monkeypatch.setattr(parallel._Threads, "missed", 0.0)
    monkeypatch.setattr(parallel._Threads, "n", 2)
    enough = parallel.WAKE / 4
    assert [parallel.threads_for(enough) for _ in range(8)] == [1, 1, 1, 2] * 2
    assert [parallel.threads_for(parallel.WORTH / 2) for _ in range(200)] == [1] * 200
    monkeypatch.setattr(pool, "asleep", lambda n: False)
    assert parallel.threads_for(parallel.WORTH) == 2


def test_who_comes_while_work_is_shared_works_alone():
    a = np.random.default_rng(0).standard_normal((211, 223)).astype(np.float32)
    with sharing(pool.MOST):
        expected, wrong = product(a, a.T), []

        def again():
            wrong.extend((product(a, a.T) != expected).any() for _ in range(100))

        threads = [threading.Thread(target=again) for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert len(wrong) == 300
    assert not any(wrong)


MANY = """
import time
import numpy as np
from minitx.kernels import parallel, pool
from minitx.kernels.matmul import product
parallel.WORTH = parallel.WAKE = 0
parallel.set_threads(1)
rng = np.random.default_rng(0)
a = {m: rng.standard_normal((m, 70)).astype(np.float32) for m in (33, 100, 257)}
alone = {m: product(x, x.T) for m, x in a.items()}
parallel.set_threads(pool.MOST)
for i in range(2000):
    m = (33, 100, 257)[i % 3]
    assert (product(a[m], a[m].T) == alone[m]).all()
    if i % 100 == 0:
        time.sleep(0.002)
print(len(pool._threads))
"""


def run(code, **environment):
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_more_threads_than_cores():
    """Some hardly ever run. Nobody waits for them."""
    assert run(MANY, NUMBA_NUM_THREADS="7") == "6"


@TWO
def test_a_process_ends_while_its_threads_look_for_work():
    code = MANY.replace("range(2000)", "range(3)") + "product(a[257], a[257].T)\n"
    for _ in range(3):
        start = time.monotonic()
        assert run(code) == str(pool.MOST - 1)
        assert time.monotonic() - start < 60


def test_memory_is_complete_before_others_find_it(monkeypatch):
    """A thread that got it without the board's address would read somewhere else."""
    from minitx.kernels import memory

    found = []

    class Watched(dict):
        def __setitem__(self, dtype, kept):
            found.append(int(kept.view(np.int64)[-1, -1]))
            super().__setitem__(dtype, kept)

    monkeypatch.setattr(memory, "_memory", Watched())
    memory_for(np.dtype(np.float32), 1)
    memory_for(np.dtype(np.float64), 3, 100_000)
    assert found == [memory.board.ctypes.data] * 2


INTERRUPTED = """
import threading
import numpy as np
from minitx.kernels import parallel, pool
from minitx.kernels.matmul import product
parallel.WORTH = parallel.WAKE = 0
a = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
parallel.set_threads(1)
alone = product(a, a)
parallel.set_threads(2)
start = threading.Thread.start
def fails(self):
    threading.Thread.start = start
    AS_IT_IS
threading.Thread.start = fails
try:
    product(a, a)
except KeyboardInterrupt:
    pass
assert all((product(a, a) == alone).all() for _ in range(200))
assert len(pool._threads) == 1
"""


@TWO
@pytest.mark.parametrize("what", [
    "start(self); raise KeyboardInterrupt", "raise KeyboardInterrupt", "raise RuntimeError('no more')",
])  # fmt: skip
def test_the_pool_starts_only_once_whatever_comes_between(what):
    run(INTERRUPTED.replace("AS_IT_IS", what), NUMBA_NUM_THREADS="2")


@TWO
def test_who_is_not_needed_any_more_goes_to_sleep():
    code = MANY.replace("range(2000)", "range(300)") + """
parallel.set_threads(2)
third = pool._words[(pool.PLACES + 2 * pool.LINE + pool.ASLEEP) // 8 :]
until = time.monotonic() + 30
while not third[0] and time.monotonic() < until:
    product(a[257], a[257].T)
assert third[0]
"""
    run(code, NUMBA_NUM_THREADS="4")


@TWO
def test_only_long_work_gives_up_pythons_lock(monkeypatch):
    """To get it back from a thread that computes takes 5 ms."""
    with sharing(2):
        for work, long in ((parallel.LONG / 2, 0), (parallel.LONG * 2, 1), (parallel.LONG / 2, 0)):
            assert parallel.threads_for(work) == 2
            assert pool._words[pool.TAKES_LONG // 8] == long
    a = np.ones((70, 70), np.float32)
    ran = []
    thread = threading.Thread(target=lambda: ran.append(product(a, a)[0, 0]))
    monkeypatch.setattr(parallel, "LONG", -1)
    with sharing(2):
        thread.start()
        expected = [product(a, a)[0, 0] for _ in range(50)]
    thread.join()
    assert [*ran, *expected] == [70] * 51
