"""no_grad and its opposite: the mode afterwards is the mode before, whatever happened inside, in this thread only."""
from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest

import minitx
from minitx import Tensor, enable_grad, no_grad, settings

x = Tensor([1.0], requires_grad=True)


def recording() -> bool:
    return (x * 2).requires_grad


def test_as_a_manager():
    with no_grad():
        assert not recording()
        with enable_grad():
            assert recording()
        assert not recording()
    assert recording()


def test_one_manager_inside_itself():
    off = no_grad()
    with off:
        with off:
            assert not recording()
        assert not recording()
    assert recording()


@pytest.mark.parametrize("decorate", [no_grad, no_grad()], ids=["no_grad", "no_grad()"])
def test_as_a_decorator(decorate):
    @decorate
    def f(a, *, b=2):
        """Says so."""
        return recording(), a, b

    assert recording()  # merely decorating changes nothing
    assert f(1) == (False, 1, 2)
    assert f(1, b=3) == (False, 1, 3)
    assert recording()
    assert (f.__name__, f.__doc__) == ("f", "Says so.")


def test_pitfall_34_recursion():
    @no_grad
    def f(n):
        if n:
            f(n - 1)
        return recording()

    assert f(5) is False
    assert recording()


def test_pitfall_34_nested_the_other_way():
    @enable_grad
    def inside():
        return recording()

    @no_grad
    def outside():
        return recording(), inside(), recording()

    assert outside() == (False, True, False)


def test_pitfall_34_exception():
    @no_grad
    def f():
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        f()
    with pytest.raises(ArithmeticError), no_grad():
        raise ArithmeticError
    assert recording()


@pytest.mark.parametrize("decorate", [no_grad, no_grad()], ids=["no_grad", "no_grad()"])
def test_pitfall_34_generator_function(decorate):
    """Off inside, on for the caller between two steps."""
    log = []

    @decorate
    def steps():
        try:
            log.append(recording())
            got = yield 1
            log.append((got, recording()))
            try:
                yield 2
            except KeyError:
                log.append(("caught", recording()))
            yield 3
            return 4
        finally:
            log.append(("closed", recording()))

    g = steps()
    assert next(g) == 1
    assert recording()
    assert g.send("hello") == 2
    assert recording()
    assert g.throw(KeyError()) == 3
    assert recording()
    with pytest.raises(StopIteration) as stop:
        next(g)
    assert stop.value.value == 4
    assert log == [False, ("hello", False), ("caught", False), ("closed", False)]
    log.clear()
    h = steps()
    next(h)
    h.close()
    assert log == [False, ("closed", False)]
    assert recording()


def test_pitfall_34_generator_with_the_caller_off():
    @enable_grad
    def steps():
        yield recording()
        yield recording()

    with no_grad():
        assert list(steps()) == [True, True]
        assert not recording()


def test_pitfall_34_each_thread_has_its_own():
    seen, inside, done = [], threading.Event(), threading.Event()

    def other():
        inside.wait(10)
        seen.append(recording())
        with no_grad():
            done.set()
            seen.append(recording())

    thread = threading.Thread(target=other)
    thread.start()
    with no_grad():
        inside.set()
        done.wait(10)
        assert not recording()
    thread.join()
    assert recording()
    assert seen == [True, False]


def test_asyncio_tasks_do_not_leak():
    async def task(wanted, out):
        with enable_grad() if wanted else no_grad():
            await asyncio.sleep(0)
            out.append(recording() is wanted)
            await asyncio.sleep(0)

    async def main():
        out: list[bool] = []
        await asyncio.gather(*(task(bool(i % 2), out) for i in range(6)))
        return out

    assert asyncio.run(main()) == [True] * 6
    assert recording()


def test_gradients_through_a_mixed_graph():
    a = Tensor(np.array([2.0]), requires_grad=True)
    with no_grad():
        constant = a * 3
    (a * constant).backward()
    assert a.grad == [6.0]


def test_reference_and_the_others_are_independent():
    before = settings.current.get()
    with minitx.reference(), no_grad():
        now = settings.current.get()
        assert (now.kernels, now.recording) == (False, False)
    assert settings.current.get() == before


def test_coroutine_function():
    @no_grad
    async def off(out):
        out.append(recording())
        await asyncio.sleep(0)
        out.append(recording())
        return 3

    async def main():
        seen: list[bool] = []
        assert await off(seen) == 3
        assert recording()
        others: list[bool] = []

        async def beside():
            for _ in range(3):
                others.append(recording())
                await asyncio.sleep(0)

        await asyncio.gather(off(seen), beside(), off(seen))
        return seen, others

    assert asyncio.run(main()) == ([False] * 6, [True] * 3)
    assert recording()


def test_what_cannot_be_decorated():
    with pytest.raises(TypeError, match="is an async generator"):

        @no_grad
        async def steps():
            yield 1

    with pytest.raises(TypeError, match="decorate its methods"):

        @no_grad
        class Model:
            pass

    for slip in (True, 3):
        with pytest.raises(TypeError, match="this decorates functions"):
            no_grad(slip)
    with pytest.raises(TypeError, match=r"write `with no_grad\(\):`, with the brackets"), no_grad:
        pass
    assert recording()


def test_one_manager_in_two_threads():
    """What to go back to is each thread's own."""
    shared, inside, leave, seen = no_grad(), threading.Event(), threading.Event(), []

    def other():
        with enable_grad(), minitx.reference():
            with shared:
                inside.set()
                leave.wait(10)
            seen.append(settings.current.get()[:2])

    thread = threading.Thread(target=other)
    with shared:
        thread.start()
        inside.wait(10)
    assert recording()
    assert settings.current.get().kernels
    leave.set()
    thread.join()
    assert seen == [(True, False)]


def test_threads_are_set_from_the_front_door():
    parallel = pytest.importorskip("minitx.kernels.parallel", reason="numba is not installed")
    before = parallel.get_threads()
    try:
        minitx.set_threads(1)
        assert parallel.get_threads() == 1
        with pytest.raises(ValueError, match="between 1 and"):
            minitx.set_threads(0)
    finally:
        minitx.set_threads(before)
