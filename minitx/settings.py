"""Three switches that hold for a stretch of code and for one thread: is the tape running, may kernels run, who watches.

Each thread starts from the default (an asyncio task from what its maker had), so `no_grad()` in one never silences
another.
"""
from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Settings(NamedTuple):
    recording: bool = True  # ops whose inputs require gradients leave a node on the tape
    kernels: bool = True  # the fast version of an op runs where one exists
    observer: Any = None  # told of every op, forward and backward (minitx.tracing)


current: ContextVar[Settings] = ContextVar("minitx.settings", default=Settings())  # noqa: B039  (it is immutable)


class changed:
    """Other settings for a stretch of code, `with changed(kernels=False):`, or, as a decorator, for a function."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        self.before: list[Settings] = []  # a list, since one of these may be entered inside itself

    def __enter__(self) -> None:
        now = current.get()
        self.before.append(now)
        current.set(now._replace(**self.changes))

    def __exit__(self, *error: object) -> None:
        current.set(self.before.pop())

    def __call__(self, function: F) -> F:
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


no_grad = _Switch(
    "no_grad",
    """Ops inside leave nothing on the tape: their results do not require gradients.

    A context manager, `with no_grad():`, or a decorator, `@no_grad` (a generator function too). What cannot be
    helped: a `with no_grad():` *inside* a generator also holds for the caller between two steps.
    """,
    recording=False,
)
enable_grad = _Switch("enable_grad", "The opposite of `no_grad`, for use inside it.", recording=True)


def reference() -> changed:
    """Inside, every op runs its NumPy definition, even where a kernel exists."""
    return changed(kernels=False)
