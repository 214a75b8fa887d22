"""Who is told of every op, and the line of code from which an op was called.

An observer has two methods. `forward(op, arrays, options, out, node)` is called after each op with its arguments as the
rule saw them, its result (a Tensor or a tuple of them) and its node on the tape (None where nothing is recorded);
`backward(node, dy, grads)` after each pullback, `grads` in the order of `node.inputs` (copy what you keep: what meets
them later is added to them in place). It may have a third, `hooked(hook, before, after)`, called when a hook has
replaced a gradient. An observer with `whole = True` sees ops that do several steps at once as they run; for others they
are taken apart, which may change the last bit of a result.
"""
from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from minitx import settings

HOUSE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
PROGRAMS = HOUSE + "cli" + os.sep  # these call the library as a user does
FILES = ("op.py", "tensor.py", "leaf.py", "complaints.py", "pullback.py", "settings.py", "gradcheck.py")
ENGINE = tuple(HOUSE + name for name in (*FILES, f"ops{os.sep}", f"checking{os.sep}", f"tracing{os.sep}"))


class Both(NamedTuple):
    """Two observers at once; each is told, also when the other raises."""

    outer: Any
    inner: Any

    @property
    def whole(self) -> bool:
        return all(getattr(observer, "whole", False) for observer in self)

    def forward(self, *event: Any) -> None:
        try:
            self.inner.forward(*event)
        finally:
            self.outer.forward(*event)

    def backward(self, *event: Any) -> None:
        try:
            self.inner.backward(*event)
        finally:
            self.outer.backward(*event)

    def hooked(self, *event: Any) -> None:
        try:
            if hasattr(self.inner, "hooked"):
                self.inner.hooked(*event)
        finally:
            if hasattr(self.outer, "hooked"):
                self.outer.hooked(*event)


@contextmanager
def watching(observer: Any) -> Iterator[None]:
    """Inside, `observer` is told of every op of this thread, beside whoever is told already."""
    outer = settings.current.get().observer
    with settings.changed(observer=observer if outer is None else Both(outer, observer)):
        yield


class Line(NamedTuple):
    """A line of code."""

    file: str
    number: int

    def __str__(self) -> str:
        if self.file.startswith(HOUSE):
            return f"{self.file.removeprefix(HOUSE)}:{self.number}".replace(os.sep, "/")
        return f"{os.path.basename(self.file)}:{self.number}"

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.number).strip()


class Place(NamedTuple):
    """From where an op was called."""

    user: Line | None  # the line outside minitx
    module: str  # the layer that called it, by its name in the model: "decoder.0.attention.query"
    layer: Line | None  # the line of that layer, if it is one of minitx

    def __str__(self) -> str:
        parts = [f"{self.user}  {self.user.source}".rstrip()] if self.user else []
        parts += [f"in {self.module}"] if self.module else []
        return ", ".join([*parts, *([str(self.layer)] if self.layer else [])]) or "an unknown line"


def calling_place() -> Place:
    """Goes outwards from the op: past the engine, through the layers (the user's own too), to the user."""
    frame: FrameType | None = sys._getframe(1)
    user: Line | None = None
    layer: Line | None = None
    modules: list[Any] = []  # the layers on the way, innermost first
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(ENGINE):
            ours = file.startswith(HOUSE) and not file.startswith(PROGRAMS)
            # A frame whose locals are read keeps them all alive for a while: only methods are asked.
            caller = frame.f_locals.get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
            is_layer = hasattr(caller, "named_parameters") and hasattr(caller, "modules")
            if is_layer:
                modules.append(caller)
            if ours and user is None:
                layer = layer or Line(file, frame.f_lineno)
            elif not ours:
                user = user or Line(file, frame.f_lineno)
                if not is_layer:
                    break
        frame = frame.f_back
    return Place(user, _name(modules), layer)


def _name(modules: list[Any]) -> str:
    """The name of the innermost module inside the outermost one."""
    if not modules:
        return ""
    inner, root = modules[0], modules[-1]
    return next((name for name, module in root.modules() if module is inner), "") or type(inner).__name__
