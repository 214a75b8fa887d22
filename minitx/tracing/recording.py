"""Every op of a stretch of code, in order, with its shapes, sizes, gradients and line: the flow of data as a table."""
from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minitx.op import Op
from minitx.tensor import Array, Node
from minitx.tracing.watching import Place, calling_place, watching

SMALL = 256  # arrays up to this size are kept whole, to be printed as numbers
WIDTH = 105  # columns for numbers


@dataclass
class Flow:
    """One array that flowed, and the gradient that came back."""

    label: str  # "#4", the result of step 4; or the name of the argument as which it came in
    shape: tuple[int, ...]
    rms: float
    value: Array | None  # (only where it is small)
    gradient: Array | None = None
    gradient_rms: float | None = None

    def set_gradient(self, g: Array) -> None:
        self.gradient_rms = rms(g)
        self.gradient = g if g.size <= SMALL else None


@dataclass
class Step:
    """One application of an op."""

    name: str
    arguments: list[str]
    results: list[Flow]
    place: Place
    news: list[Flow] = field(default_factory=list)  # the arrays that no op made and that come in here


def trace(values: bool = False) -> Trace:
    """
    Record every op, forward and backward:

        with minitx.trace() as t:
            loss = cross_entropy(model(ids).logits, targets)
            loss.backward()
        print(t)            # a line for every op: arguments, shape, size (RMS) of value and gradient, line of code
        print(t.numbers())  # the same with the numbers themselves, where an array is small

    With `values=True`, `print(t)` shows the numbers. A gradient is "-" where none came back: under `no_grad`, outside
    the block, or because nothing downstream wanted it. It is the gradient of the op's result, summed over all its uses.
    """
    return Trace(values)


class Trace:
    """What `trace()` recorded: `steps`, and as text `table()` and `numbers()`."""

    def __init__(self, values: bool = False) -> None:
        self.values = values
        self.steps: list[Step] = []
        self._results: dict[int, list[Flow]] = {}  # number of a node → its results
        self._flows: dict[int, tuple[weakref.ref[Array], Flow]] = {}  # id of an array → what is known of it

    def __enter__(self) -> Trace:
        self._watching = watching(self)
        self._watching.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._watching.__exit__(*error)

    # ------------------------------------------------------------------ recording (see watching.py)

    def forward(self, op: Op, arrays: Sequence[Any], options: dict[str, Any], out: Any, node: Node | None) -> None:
        step = Step(op.name, [], [], calling_place())
        parameters = op.signature.parameters
        names = list(parameters)
        for i, a in enumerate(arrays):
            i = min(i, len(op.by_position) - 1)  # one parameter *xs stands for all the rest
            self._argument(step, names[i], parameters[names[i]].default, a, op.by_position[i] >= 0)
        for name, a in options.items():
            self._argument(step, name, parameters[name].default, a, name in op.slot)
        number = f"#{len(self.steps) + 1}"
        outputs = out if isinstance(out, tuple) else (out,)
        for i, tensor in enumerate(outputs):
            step.results.append(self._flow(number if len(outputs) == 1 else f"{number}.{i}", tensor._data))
        if node is not None:
            self._results[node.number] = step.results
        self.steps.append(step)

    def backward(self, node: Node, dy: Any, grads: Sequence[Array | None]) -> None:
        results = self._results.get(node.number)  # None: made before the recording began
        for flow, g in zip(results or (), dy if isinstance(dy, tuple) else (dy,)):
            flow.set_gradient(g)
        for tensor, g in zip(node.inputs, grads):
            flow_in = self._known(tensor._data)
            if tensor.node is None and flow_in is not None and g is not None and g.size <= SMALL:
                flow_in.set_gradient(g.copy() if flow_in.gradient is None else flow_in.gradient + g)

    def _argument(self, step: Step, name: str, default: Any, a: Any, differentiable: bool) -> None:
        """Say what an argument is; an array that is new to us is entered by its name."""
        if a is None or isinstance(a, np.random.Generator):
            return
        if not isinstance(a, np.ndarray):
            if a == default:
                return
            plain = isinstance(a, bool | int | float | str | slice | tuple) and len(repr(a)) <= 40
            step.arguments.append(f"{name} {a if plain else type(a).__name__}")
            return
        known = self._known(a)
        if known is not None and known.label.startswith("#"):
            step.arguments.append(f"{name} {known.label}")
            return
        if known is None and a.ndim and (differentiable or a.dtype.kind in "iu"):
            step.news.append(self._flow(name, a))
        step.arguments.append(f"{name} {a.shape}" if a.ndim or a.size > 1 else f"{name} {a.item():.4g}")

    def _flow(self, label: str, a: Array) -> Flow:
        flow = Flow(label, a.shape, rms(a), a if a.size <= SMALL else None)
        self._flows[id(a)] = weakref.ref(a), flow
        return flow

    def _known(self, a: Array) -> Flow | None:
        reference, flow = self._flows.get(id(a), (None, None))
        return flow if reference is not None and reference() is a else None  # (the id of a dead array is used again)

    # ------------------------------------------------------------------ as text

    def __str__(self) -> str:
        return self.table(self.values)

    def numbers(self) -> str:
        """The table, and the numbers of all small arrays: what comes in (where it is first used), and every result."""
        return self.table(values=True)

    def table(self, values: bool = False) -> str:
        if not self.steps:
            return "no op ran while this trace was recording"
        rows = [("#", "op", "arguments", "shape", "RMS value", "RMS gradient", "line")]
        for number, step in enumerate(self.steps, 1):
            for i, r in enumerate(step.results):
                first = (f"{number}", step.name, ", ".join(step.arguments)) if i == 0 else ("", "", "")
                line = str(step.place.layer or "") if i == 0 else ""
                gradient = "-" if r.gradient_rms is None else f"{r.gradient_rms:.3g}"
                rows.append((*first, str(r.shape), f"{r.rms:.3g}", gradient, line))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        widths[2] = min(widths[2], 48)
        aligned = iter([self._row(row, widths) for row in rows])
        lines = [next(aligned)]
        user, module = None, ""
        for step in self.steps:
            if step.place.user != user:
                user, module = step.place.user, ""
                lines.append(f"{user}  {user.source}".rstrip() if user else "(no line)")
            if step.place.module != module:
                module = step.place.module
                lines.append(f"  {module}" if module else "  (outside the layers)")
            if values:
                for flow in step.news:
                    lines += [f"       {flow.label} {flow.shape}", *_numbers(flow)]
            for flow in step.results:
                lines.append(next(aligned))
                if values:
                    lines += _numbers(flow)
        return "\n".join(lines)

    @staticmethod
    def _row(row: tuple[str, ...], widths: list[int]) -> str:
        number, op, arguments, *rest = row
        cells = [number.rjust(widths[0] + 3), op.ljust(widths[1]), arguments.ljust(widths[2])]
        return "  ".join(cells + [cell.ljust(width) for cell, width in zip(rest, widths[3:])]).rstrip()


def rms(a: Array) -> float:
    """√(mean of squares): the size of a typical entry."""
    if a.size == 0:
        return 0.0
    with np.errstate(all="ignore"):
        return float(np.sqrt(np.mean(np.square(a, dtype=np.float64))))


def _numbers(flow: Flow) -> Iterator[str]:
    """Value and gradient beside each other."""
    indent = " " * 9
    if flow.value is None:
        yield f"{indent}({np.prod(flow.shape)} numbers, too many to print)"
        return
    left = _text(flow.value)
    right = [] if flow.gradient is None else _text(flow.gradient)
    right = [("d: " if i == 0 else "   ") + line for i, line in enumerate(right)]
    width = max(map(len, left))
    if width + max(map(len, right), default=0) > WIDTH:
        yield from (indent + line for line in (*left, *right))
        return
    for a, b in itertools.zip_longest(left, right, fillvalue=""):
        yield f"{indent}{a.ljust(width)}   {b}".rstrip()


def _text(a: Array) -> list[str]:
    largest = np.abs(a[np.isfinite(a)]).max(initial=0)
    return np.array2string(a, WIDTH, 4, suppress_small=bool(largest > 1e-3), threshold=SMALL).splitlines()
