"""Three switches that hold for a stretch of code and for one thread: is the tape running, may kernels run, who watches.

Each thread starts from the default (an asyncio task from what its maker had), so `no_grad()` in one never silences
another.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, TypeVar

from minitx.kernels import say

F = TypeVar("F", bound=Callable[..., Any])


class Settings(NamedTuple):
    recording: bool = True  # ops whose inputs require gradients leave a node on the tape
    kernels: bool = True  # the fast version of an op runs where one exists
    observer: Any = None  # told of every op, forward and backward (minitx.tracing)
    before: Any = None  # the settings to go back to: a stack, and each thread and task has its own


current: ContextVar[Settings] = ContextVar("minitx.settings", default=Settings())  # noqa: B039  (it is immutable)


class changed:
    """Other settings for a stretch of code, `with changed(kernels=False):`, or, as a decorator, for a function."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def __enter__(self) -> None:
        now = current.get()
        current.set(now._replace(**self.changes, before=now))

    def __exit__(self, *error: object) -> None:
        if (before := current.get().before) is not None:  # None: a generator that another thread closes
            current.set(before)

    def __call__(self, function: F) -> F:
        if isinstance(function, type) or not callable(function):
            raise TypeError(f"this decorates functions, not {function!r:.60}; for a class decorate its methods")
        if inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__} is an async generator: write `with` around its steps instead")
        if inspect.iscoroutinefunction(function):  # a task has settings of its own, so the others run undisturbed

            @functools.wraps(function)
            async def awaited(*args: Any, **options: Any) -> Any:
                with changed(**self.changes):
                    return await function(*args, **options)

            return awaited  # type: ignore[return-value]

        if inspect.isgeneratorfunction(function):
            # A generator shares its caller's settings between two steps, so each step sets and restores them.
            @functools.wraps(function)
            def steps(*args: Any, **options: Any) -> Generator[Any, Any, Any]:
                generator = function(*args, **options)
                advance: Callable[[], Any] = functools.partial(next, generator)
                while True:
                    try:
                        with changed(**self.changes):
                            item = advance()
                    except StopIteration as stop:
                        return stop.value
                    try:
                        sent = yield item
                        advance = functools.partial(generator.send, sent)
                    except BaseException as error:
                        advance = functools.partial(generator.throw, error)

            return steps  # type: ignore[return-value]

        @functools.wraps(function)
        def whole(*args: Any, **options: Any) -> Any:
            with changed(**self.changes):
                return function(*args, **options)

        return whole  # type: ignore[return-value]


class _Switch:
    """A setting as a context manager, `with no_grad():`, and as a decorator, `@no_grad` or `@no_grad()`."""

    def __init__(self, name: str, doc: str, **changes: bool) -> None:
        self.__name__, self.__doc__, self.changes = name, doc, changes

    def __call__(self, function: Callable[..., Any] | None = None) -> Any:
        change = changed(**self.changes)
        return change if function is None else change(function)

    def __enter__(self) -> NoReturn:
        raise TypeError(f"write `with {self.__name__}():`, with the brackets")

    def __exit__(self, *error: object) -> None:
        pass


no_grad = _Switch(
    "no_grad",
    """Ops inside leave nothing on the tape: their results do not require gradients.

    A context manager, `with no_grad():`, or a decorator, `@no_grad` (of generators and coroutines too). What cannot be
    helped: a `with no_grad():` *inside* a generator also holds for the caller between two steps.
    """,
    recording=False,
)
enable_grad = _Switch("enable_grad", "The opposite of `no_grad`, for use inside it.", recording=True)


def reference() -> changed:
    """Inside, every op runs its NumPy definition, even where a kernel exists."""
    return changed(kernels=False)


def set_threads(n: int) -> None:
    """Let kernels use n threads from now on (MINITX_NUM_THREADS=n: from the start); results do not change by a bit.

    Raises ValueError for fewer than one or more than there are cores. Without numba there are no kernels, and NumPy
    has threads of its own: OPENBLAS_NUM_THREADS.
    """
    try:
        from minitx.kernels import parallel
    except ModuleNotFoundError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        say.once("set_threads is for the kernels, which need numba, and it is not installed")
        return
    parallel.set_threads(n)
