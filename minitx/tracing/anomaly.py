"""Stops at the op that made the first NaN or infinity, and says which it was."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from minitx.op import Op
from minitx.tensor import Array, Node
from minitx.tracing.watching import Line, Place, calling_place, watching


@contextmanager
def detect_anomaly() -> Iterator[None]:
    """
    Inside, the first op whose forward or backward makes a NaN or an infinity raises FloatingPointError.

        with minitx.detect_anomaly():
            loss = model(batch)
            loss.backward()

    The error names the op, the shapes, the range of its inputs and the line that called it, for a backward the line of
    its forward; for a hook that replaced a gradient, the hook. What counts as made:

    - a NaN in the result, always; if an argument had one before, it came in with the data, and the error says so;
    - an infinity in the result of finite arguments, also log(0) = -inf. An infinity that was put in may go on: -inf in
      a bias or from `where(mask, scores, -np.inf)` is a mask. It only has to be gone before it makes a NaN.

    NumPy's own warnings (overflow, division by zero) are silent inside, since the error says more. Every op is checked,
    which costs a pass over each array: this is for finding a fault, not for training.
    """
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"), watching(_Detector()):
        yield


class _Detector:
    def __init__(self) -> None:
        self.places: WeakKeyDictionary[Node, Place] = WeakKeyDictionary()  # gone when the graph is

    def forward(self, op: Op, arrays: Sequence[Any], options: dict[str, Any], out: Any, node: Node | None) -> None:
        place = calling_place()
        if node is not None:
            self.places[node] = place
        arguments = [a for a in (*arrays, *options.values()) if _floats(a)]
        for tensor in out if isinstance(out, tuple) else (out,):
            fault = _fault(tensor._data, arguments)
            if fault:
                raise FloatingPointError(
                    f"{op.name} {fault}\n"
                    f"  forward: {op.describe(arrays, options)} -> {tensor.shape}{_ranges(arguments)}\n"
                    f"  called at {place}"
                )

    def backward(self, node: Node, dy: Any, grads: Sequence[Array | None]) -> None:
        cotangents = list(dy) if isinstance(dy, tuple) else [dy]
        for tensor, slot, g in zip(node.inputs, node.slots, grads):
            fault = _fault(g, cotangents) if g is not None else ""
            if fault:
                op, values = node.op, [x._data for x in node.inputs]
                inputs = ", ".join(f"{_argument(op, s)} {x.shape}" for x, s in zip(values, node.slots))
                given = ", ".join(str(c.shape) for c in cotangents)
                raise FloatingPointError(
                    f"the backward of {op.name} {fault}\n"
                    f"  backward: dy {given} -> d{_argument(op, slot)} {tensor.shape}{_ranges(cotangents)}\n"
                    f"  forward: {op.name}({inputs}){_ranges(values)}\n"
                    f"  called at {self.places.get(node, 'a line outside detect_anomaly()')}"
                )

    def hooked(self, hook: Any, before: Array, after: Array) -> None:
        if fault := _fault(after, [before]):
            name, code = getattr(hook, "__qualname__", type(hook).__name__), getattr(hook, "__code__", None)
            place = f"\n  defined at {Line(code.co_filename, code.co_firstlineno)}" if code else ""
            raise FloatingPointError(f"the hook {name} {fault}\n  gradient {before.shape}{_ranges([before])}{place}")


def _fault(result: Array, arguments: list[Array]) -> str:
    """What is wrong with the result, in words; "" if nothing was made."""
    if np.isfinite(result).all():
        return ""
    if np.isnan(result).any():
        bad, word = np.isnan(result), "NaN"
        verb = "met" if any(np.isnan(a).any() for a in arguments) else "made"
    elif all(np.isfinite(a).all() for a in arguments):
        bad, word, verb = np.isinf(result), "infinity", "made"
    else:
        return ""
    source = " that came in with the data" if verb == "met" else ""
    where = f", the first at {[int(i) for i in np.argwhere(bad)[0]]}" if result.ndim else ""
    return f"{verb} {word}{source}: {int(bad.sum())} of {result.size} values{where}"


def _argument(op: Op, slot: int) -> str:
    return op.wrt[slot] if slot < len(op.wrt) and not op.variadic else f"x{slot}"


def _floats(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def _ranges(arrays: list[Array]) -> str:
    """`; values -1 ... 2, 0 ... 5`: smallest and largest of each array, NaN left out."""
    words = []
    for a in arrays:
        known = a[~np.isnan(a)]
        words.append(f"{known.min():.4g} ... {known.max():.4g}" if known.size else "all NaN" if a.size else "none")
    return f"; values {', '.join(words)}" if words else ""
