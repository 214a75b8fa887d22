"""The way back through one op: its rule is called, and what it answers becomes one gradient for each input.

What is done here for every op, so that no rule has to: one bare array may stand for a tuple, broadcasting is undone
(for ops that declare it), shapes and dtypes are checked, and memory that two gradients share is owned by neither.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray
from numpy.typing import NDArray

from minitx.leaf import set_writeable

if TYPE_CHECKING:
    from minitx.op import Op
    from minitx.tensor import Node

Array = NDArray[Any]


def pull(node: Node, dy: Any) -> list[Array | None]:
    """The pullback of one node: the cotangent of its value → a gradient for each of `node.inputs` (or None)."""
    op, backward, need = node.op, node.backward, node.need
    assert backward is not None
    try:
        if type(backward) is FunctionType and backward.__defaults__ is None:  # takes_need without a call: most are so
            grads = backward(dy, need) if backward.__code__.co_argcount > 1 else backward(dy)
        else:
            grads = backward(dy, need) if takes_need(backward) else backward(dy)
    except Exception as error:
        error.add_note(f"in the backward of {op.name}")
        raise
    if type(grads) is not tuple or len(grads) > len(need):
        grads = as_tuple(op, grads, need)
    if len(grads) < len(need):
        grads += (None,) * (len(need) - len(grads))
    out: list[Array | None] = []
    several = len(node.inputs) > 1
    memory: dict[int, Array] = {}  # whose memory → the first gradient that lies in it
    for tensor, slot in zip(node.inputs, node.slots):
        if not need[slot]:
            out.append(None)
            continue
        g, x = grads[slot], tensor._data
        if type(g) is not ndarray or g.shape != x.shape or g.dtype is not x.dtype:
            g = _as_gradient(op, g, x, slot)
        if several:
            owner = id(g if g.base is None else _owner(g))
            if owner in memory:
                set_writeable(memory[owner], False)  # one memory for two inputs belongs to neither
                set_writeable(g, False)
            else:
                memory[owner] = g
        out.append(g)
    return out


def _as_gradient(op: Op, g: Any, x: Array, slot: int) -> Array:
    """One gradient of what backward answered, in the shape and dtype of its input x, or what is wrong with it."""
    if g is None:
        raise RuntimeError(f"backward of {op.name} returned no gradient for {op.slot_name(slot)}")
    array: Array = np.asarray(g)  # arithmetic on arrays without axes gives NumPy scalars
    if array.shape != x.shape:
        array = fit(op, array, x.shape, slot)
    if array.dtype != x.dtype:
        raise TypeError(f"backward of {op.name}: {x.dtype} in, {array.dtype} for {op.slot_name(slot)}")
    return array


def fit(op: Op, g: Array, shape: tuple[int, ...], slot: int = 0) -> Array:
    """Undo broadcasting: where x was repeated along an axis, its gradient is the sum along that axis."""
    if not op.broadcasts:
        raise RuntimeError(
            f"backward of {op.name} returned shape {g.shape} for {op.slot_name(slot)} of shape {shape}: is a "
            "sum over a broadcast axis missing? (an elementwise op leaves that to the engine: @op(broadcasts=True))"
        )
    g = np.asarray(g)
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    repeated = tuple(i for i, (n, m) in enumerate(zip(shape, g.shape)) if n == 1 and m != 1)
    g = np.asarray(g.sum(axis=repeated, keepdims=True))
    if g.shape != shape:
        raise RuntimeError(f"backward of {op.name} returned shape {g.shape} for an input of shape {shape}")
    return g


def as_tuple(op: Op, grads: Any, need: Any) -> tuple[Any, ...]:
    """What backward answered, as a tuple of at most one gradient for each slot."""
    if type(grads) is list:
        raise TypeError(f"backward of {op.name} returned a list; return a tuple, one gradient for each input")
    if type(grads) is not tuple:
        return (grads,)
    if len(grads) > len(need):
        raise TypeError(f"backward of {op.name} returned {len(grads)} gradients for {len(need)} inputs")
    return grads


def takes_need(backward: Callable[..., Any]) -> bool:
    """Is the second parameter for `need`? One with a default, `lambda dy, y=y: ...`, is not, unless it is named so."""
    if type(backward) is FunctionType:
        code, defaults = backward.__code__, backward.__defaults__
        if code.co_argcount < 2:
            return False
        return defaults is None or code.co_argcount - len(defaults) > 1 or code.co_varnames[1] == "need"
    try:
        parameters = list(inspect.signature(backward).parameters.values())  # a partial, a compiled function
    except ValueError:
        return False  # some built-in functions do not say
    second = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:2]
    return any(p.default is p.empty or p.name == "need" for p in second)


def _owner(array: Any) -> Any:
    """Whose memory a view looks at."""
    while (base := getattr(array, "base", None)) is not None:
        array = base
    return array
