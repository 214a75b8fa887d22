"""What can be checked: the rule of an op, a function of Tensors, a whole model; each as a function of arrays.

The check itself (`minitx.gradcheck`) then only has to move arrays, ask for the value, and compare.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from minitx.op import Composite, Op
from minitx.settings import no_grad
from minitx.tensor import Array, Tensor


class Subject(NamedTuple):
    """A function of float64 arrays, which are moved in place, and its backward."""

    title: str
    names: list[str]
    arrays: list[Array]
    value: Callable[[], list[Array]]  # the outputs at the arrays as they are now (copies)
    pull: Callable[[list[Array]], list[Array | None]]  # cotangents → what backward says, one entry an array


def subject(
    f: Callable[..., Any], inputs: Sequence[Any], options: dict[str, Any], names: Sequence[str] | None, wrt: Any
) -> Subject:
    """`f` as a function of the float64 arrays among its arguments; everything else stays as it is."""
    slots: Sequence[int] = range(len(inputs))
    if isinstance(f, Op):
        inputs, slots = f._spread(tuple(inputs)) if f.variadic else (inputs, f.by_position)
    names = names or _names(f, len(inputs))
    if len(names) != len(inputs):
        raise ValueError(f"one name for each of the {len(inputs)} inputs, not {len(names)}")
    arguments = dict(zip(names, inputs)) | options
    slot = dict(zip(arguments, slots))  # of the options, in an op, by name:
    slot |= {n: f.slot.get(n, -1) if isinstance(f, Op) else 0 for n in options}
    given = {n: a for n, a in arguments.items() if _counts(a, isinstance(f, Op)) and slot[n] >= 0}
    _refuse(given)
    x = {n: np.array(_plain(a)) for n, a in given.items()}  # what the check moves
    wrt = [wrt] if isinstance(wrt, str | int) else wrt
    wanted = [n for i, n in enumerate(arguments) if n in given and (wrt is None or n in wrt or i in wrt)]
    if not wanted:
        raise ValueError("there is no float64 array to check among the inputs")

    def call(g: Callable[..., Any], changes: dict[str, Any]) -> Any:
        everything = list((arguments | changes).items())
        return g(*(a for _, a in everything[: len(inputs)]), **dict(everything[len(inputs) :]))

    title = getattr(f, "__name__", type(f).__name__).replace("<lambda>", "a function")
    if isinstance(f, Op) and (f.replacement or not isinstance(f, Composite)):
        value, pull = _rule(f, call, x, wanted, slot)
    else:
        value, pull = _tape(f, call, x, wanted)
    return Subject(title, wanted, [x[n] for n in wanted], value, pull)


def _rule(f: Op, call: Any, x: dict[str, Array], wanted: list[str], slot: dict[str, int]) -> tuple[Any, Any]:
    """The rule as it stands, on arrays: no engine that casts or sums."""
    views = {n: a.view() for n, a in x.items()}
    for view in views.values():
        view.setflags(write=False)  # a rule that writes into its inputs gets NumPy's own error

    def value() -> list[Array]:
        return _copies(call(f.rule, views)[0])

    def pull(dy: list[Array]) -> list[Array | None]:
        y, pullback = call(f.rule, views)
        for g in dy:
            g.setflags(write=False)
        grads = [None if g is None else np.array(g) for g in pullback(tuple(dy) if isinstance(y, tuple) else dy[0])]
        again = pullback(tuple(dy) if isinstance(y, tuple) else dy[0])
        if not all(a is None or np.array_equal(a, b, equal_nan=True) for a, b in zip(grads, again)):
            raise ValueError(f"backward of {f.name} answers differently the second time: it changes what it saved")
        out = [grads[slot[n]] if slot[n] < len(grads) else None for n in wanted]
        return [_fitted(f, g, x[n].shape) for n, g in zip(wanted, out)]

    return value, pull


def _tape(f: Callable[..., Any], call: Any, x: dict[str, Array], wanted: list[str]) -> tuple[Any, Any]:
    """A function of Tensors."""

    def value() -> list[Array]:
        with no_grad():
            return _copies(call(f, {n: Tensor(a) for n, a in x.items()}))

    def pull(dy: list[Array]) -> list[Array | None]:
        tensors = {n: Tensor(a, n in wanted) for n, a in x.items()}
        y = call(f, tensors)
        for t, g in zip(y if isinstance(y, tuple) else (y,), dy):
            if not isinstance(t, Tensor):
                raise TypeError(f"a function to be checked returns a Tensor, or several, not {type(t).__name__}")
            if t.requires_grad:
                t.backward(g, retain_graph=True)  # leaves add up over the outputs
        return [tensors[n].grad for n in wanted]

    return value, pull


def model(loss: Callable[[], Tensor], named: list[tuple[str, Tensor]]) -> Subject:
    """`loss()` as a function of the parameters, which are written before each call."""
    _refuse(dict(named))
    arrays = [p.numpy() for _, p in named]

    def write() -> None:
        for (_, p), x in zip(named, arrays):
            with p.writing() as value:
                value[...] = x

    def value() -> list[Array]:
        write()
        with no_grad():
            return _copies(loss())

    def pull(dy: list[Array]) -> list[Array | None]:
        write()
        for _, p in named:
            p.grad = None
        loss().backward(dy[0])
        return [p.grad for _, p in named]

    return Subject("the model", [n for n, _ in named], arrays, value, pull)


# ---------------------------------------------------------------------- small things


def _refuse(given: dict[str, Any]) -> None:
    for n, a in given.items():
        if a.dtype != np.float64:
            raise TypeError(
                f"{n} is {a.dtype}, and a gradient check needs float64: with fewer digits differences are mostly "
                f"rounding, and a wrong gradient passes; pass {n}.astype(np.float64)"
            )
    for (n, a), (m, b) in combinations(given.items(), 2):
        if np.shares_memory(_plain(a), _plain(b)):
            raise ValueError(
                f"{n} and {m} share memory, so they are one input and not two: pass a copy of one to check both as if "
                "they were separate, or check a function that takes one and uses it twice"
            )


def _fitted(f: Op, g: Array | None, shape: tuple[int, ...]) -> Array | None:
    """What the engine does to a gradient of an op that broadcasts, where it can; elsewhere the shape is the fault."""
    try:
        return f.fit(g, shape) if g is not None and f.broadcasts else g
    except RuntimeError:
        return g


def _counts(a: Any, is_op: bool) -> bool:
    """Is it an input to be checked? A function may take integer arrays; in a differentiable place of an op they err."""
    return isinstance(a, np.ndarray | Tensor) and (is_op or a.dtype.kind == "f")


def _names(f: Callable[..., Any], n: int) -> list[str]:
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # some built-in functions have none
        parameters = []
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "input")
    return [plain[i] if i < len(plain) else f"{rest}[{i - len(plain)}]" for i in range(n)]


def _copies(outputs: Any) -> list[Array]:
    """The values, apart from any memory of the inputs (an output may be a view of one)."""
    return [np.array(_plain(y)) for y in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _plain(a: Any) -> Any:
    return a._data if isinstance(a, Tensor) else a
