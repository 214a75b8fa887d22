"""What can be checked: the rule of an op, a function of Tensors, a whole model; each as a function of arrays.

The check itself (`minitx.gradcheck`) then only has to move arrays, ask for the value, and compare.
"""
from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from minitx.op import Composite, Op
from minitx.pullback import fit
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
    chosen = given if wrt is None else _chosen(wrt, list(arguments), given)
    wanted = [n for n in arguments if n in given and n in chosen]
    if not wanted:
        numbers = [n for n, a in arguments.items() if isinstance(a, float)]
        fix = f"; a number is not moved, pass {numbers[0]} as np.array({arguments[numbers[0]]!r})" if numbers else ""
        raise ValueError(f"there is no float64 array to check among the inputs{fix}")

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
        if any(slot[n] >= len(grads) for n in wanted):
            names = [n for n in slot if slot[n] >= 0]
            came = f"{len(grads)} gradient{'s' if len(grads) != 1 else ''}"
            raise TypeError(
                f"backward of {f.name} returned {came} for {len(names)} inputs ({', '.join(names)}): return a tuple, "
                "one for each, in this order"
            )
        return [_fitted(f, grads[slot[n]], x[n].shape) for n in wanted]

    return value, pull


def _tape(f: Callable[..., Any], call: Any, x: dict[str, Array], wanted: list[str]) -> tuple[Any, Any]:
    """A function of Tensors."""

    def value() -> list[Array]:
        with no_grad():
            return _copies(_tensors(call(f, {n: Tensor(a) for n, a in x.items()})))

    def pull(dy: list[Array]) -> list[Array | None]:
        tensors = {n: Tensor(a, n in wanted) for n, a in x.items()}
        y = _tensors(call(f, tensors))
        before = [(t, t.grad) for t in _leaves(y)]  # f may hold parameters of its own
        for t, g in zip(y, dy):
            if t.requires_grad:
                t.backward(g, retain_graph=True)  # leaves add up over the outputs
        grads: list[Array | None] = [tensors[n].grad for n in wanted]
        for t, old in before:
            t.grad = old
        return grads

    return value, pull


def model(loss: Callable[[], Tensor], named: list[tuple[str, Tensor]]) -> Subject:
    """`loss()` as a function of the parameters, which are written before each call."""
    for n, p in named:
        if p.dtype != np.float64:
            raise TypeError(f"{n} is {p.dtype}, and a gradient check needs float64: model.astype(np.float64) first")
        if not (p.requires_grad and p.is_leaf):
            raise ValueError(f"{n} is no leaf with requires_grad=True, so backward says nothing of it: leave it out")
    _refuse(dict(named))
    arrays = [p.numpy() for _, p in named]

    def write() -> None:
        for (_, p), x in zip(named, arrays):
            with p.writing() as value:
                value[...] = x

    def value() -> list[Array]:
        write()
        with no_grad():
            return _copies((_scalar(loss()),))

    def pull(dy: list[Array]) -> list[Array | None]:
        write()
        y = loss()
        before = [(t, t.grad) for t in _leaves((y,))]
        for t, _ in before:
            t.grad = None
        y.backward(dy[0])
        grads: list[Array | None] = [p.grad if y.requires_grad else None for _, p in named]
        for t, old in before:
            t.grad = old
        return grads

    return Subject("the model", [n for n, _ in named], arrays, value, pull)


def pairs(parameters: Any) -> list[tuple[str, Tensor]]:
    """(name, Tensor) of a Module, a dict, or an iterable of Tensors or of such pairs."""
    if hasattr(parameters, "named_parameters"):
        parameters = parameters.named_parameters()
    items = parameters.items() if isinstance(parameters, dict) else parameters
    named = [p if isinstance(p, tuple) else (f"parameter {i}", p) for i, p in enumerate(items)]
    for name, p in named:
        if not isinstance(p, Tensor):
            raise TypeError(f"{name} is a {type(p).__name__}: parameters are a Module, Tensors or (name, Tensor) pairs")
    if not named:
        raise ValueError("there are no parameters to check")
    return named


# ---------------------------------------------------------------------- small things


def _chosen(wrt: Any, arguments: list[str], given: dict[str, Any]) -> list[str]:
    """The names that `wrt` means; each has to be one of those that are checked."""
    names = []
    for w in [wrt] if isinstance(wrt, str | int) else wrt:
        name = arguments[w] if isinstance(w, int) and -len(arguments) <= w < len(arguments) else w
        if name not in given:
            close = difflib.get_close_matches(str(name), list(given), 1)
            meant = f"did you mean {close[0]!r}?" if close else f"it can be {', '.join(map(repr, given))}"
            raise ValueError(f"wrt: {w!r} is none of the arrays that can be checked; {meant}")
        names.append(name)
    return names


def _tensors(y: Any) -> tuple[Tensor, ...]:
    for t in y if isinstance(y, tuple) else (y,):
        if not isinstance(t, Tensor):
            raise TypeError(f"a function to be checked returns a Tensor, or several in a tuple, not {type(t).__name__}")
    return y if isinstance(y, tuple) else (y,)


def _scalar(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.size != 1:
        came = f"a Tensor of shape {loss.shape}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise TypeError(f"loss() returns one Tensor with one element, not {came}")
    return loss


def _leaves(outputs: Sequence[Tensor]) -> list[Tensor]:
    """Everything that a backward from these Tensors would write a gradient to."""
    found: dict[Tensor, None] = {}
    todo, seen = list(outputs), set()
    while todo:
        t = todo.pop()
        if t.node is None:
            found[t] = None
        elif t.node not in seen:
            seen.add(t.node)
            todo += t.node.inputs
    return [t for t in found if t.requires_grad]


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
        return fit(f, g, shape) if g is not None and f.broadcasts else g
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
