"""What may become a number in a Tensor, and what a Tensor refuses, in words: so that the engine reads without them."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def numbers(data: Any, what: str, as_they_are: bool = True) -> Array:
    """`data` as an array, if it is one of numbers. (NumPy by itself would read "3" as 3.0 and None as NaN.)

    as_they_are: they are to keep their dtype, so it has to be one that a Tensor can have.
    """
    if type(data) is not np.ndarray and hasattr(data, "filled"):  # (np.ma by name would have to be imported)
        raise TypeError(f"{what}: the mask of a masked array would be lost; say what stands there, a.filled(0)")
    array: Array = np.asarray(data)
    kind = array.dtype.kind
    if kind not in "fiub":
        found = {"U": "text", "S": "text", "c": "complex numbers", "O": "objects"}.get(kind, str(array.dtype))
        raise TypeError(f"{what}: a Tensor holds float32 or float64 (or integers), not {found} ({data!r:.40})")
    if as_they_are and kind == "f" and array.dtype not in (np.float32, np.float64):
        raise TypeError(f"{what}: a Tensor holds float32 or float64 (or integers), not {array.dtype}; cast it first")
    return array


def cast(data: Any, dtype: Any, what: str) -> Array:
    """A fresh array of that dtype: the Tensor decides."""
    array = numbers(data, what, as_they_are=False)
    if dtype.kind != "f" and array.dtype.kind == "f":
        raise TypeError(f"{what}: a float would be cut to {dtype} here; make the Tensor from floats")
    return np.array(array, dtype)


def cast_all(arguments: Any, places: Sequence[Any], dtype: Any, what: str) -> None:
    """Numbers and arrays beside Tensors take the dtype of those.

    Without a Tensor, as in Tensor(...): a float array keeps its own, numbers and lists take that, else float32. All are
    copied, for a rule may keep them, and the caller may change them before backward.
    """
    own = [] if dtype is not None else [a.dtype for p in places if _is_float(a := arguments[p])]
    common = dtype or np.result_type(*own or (np.float32,))
    for p in places:
        a = arguments[p]
        if type(a) is float and common.kind == "f":
            arguments[p] = np.array(a, common)
        elif dtype is None and _is_float(a):
            arguments[p] = numbers(a, what).copy()
        elif a is not None:
            arguments[p] = cast(a, common, what)


def _is_float(a: Any) -> bool:
    return isinstance(a, np.ndarray | np.generic) and a.dtype.kind == "f"


def apart(value: Any, given: Sequence[Any]) -> Any:
    """A value becomes read-only; an array of the caller, which a rule may have returned as it came, must not."""
    if type(value) is tuple:
        return tuple([apart(v, given) for v in value])
    for a in given:
        if a is value:
            return value.copy()
    return value


def no_rule(name: str, result: Any) -> TypeError:
    """A rule that did not return (value, backward)."""
    if type(result) is not tuple:
        came = f"{type(result).__name__} of shape {result.shape}" if isinstance(result, np.ndarray) else repr(result)
        came = f"only {came:.60}"
    elif len(result) != 2:
        came = f"a tuple of {len(result)}"
    else:
        came = f"({type(result[0]).__name__}, {result[1]!r:.40}), whose second part is no function"
    return TypeError(f"{name}: a rule returns (value, backward), two things; this one returned {came}")


def not_differentiable(op: str, parameter: str) -> TypeError:
    return TypeError(f"{op}: {parameter} is not differentiable; pass t.numpy() or t.detach()")


def mixed(op: str, tensors: Sequence[Any]) -> TypeError:
    kinds = " and ".join(sorted({str(t.dtype) for t in tensors}))
    return TypeError(f"{op}: Tensors of {kinds} do not mix: nothing is cast silently, make them one dtype")


def application(op: str, arguments: Sequence[tuple[str, Any]]) -> str:
    """`linear(x (2, 3), weight (5, 3))`: an op and what it was called with, in one line."""

    def word(a: Any) -> str:
        a = getattr(a, "_data", a)  # of a Tensor
        if isinstance(a, np.ndarray):
            return str(a.shape)
        return repr(a) if isinstance(a, int | float | str) else type(a).__name__

    return f"{op}({', '.join([f'{name} {word(a)}' for name, a in arguments])})"


class Refusals:
    """What NumPy and Python offer to do with a Tensor and should not, each with what to do instead."""

    __slots__ = ()
    __array_ufunc__ = None  # an ndarray on the left of an operator gives way: the Tensor decides

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        raise TypeError("a Tensor is not turned into an array silently, the graph would be lost: use t.numpy()")

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function in (np.shape, np.ndim, np.size) and args == (self,):
            return getattr(self, function.__name__)
        name = function.__name__
        raise TypeError(
            f"np.{name} does not take a Tensor, the graph would be lost: use t.numpy() for the numbers, or, to "
            f"differentiate, the ops of minitx (t.sum(), minitx.concatenate, minitx.where, ...; help(minitx.ops))"
        )

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise TypeError(
            "t[...] = ... would change a value that graphs may need: a leaf is changed inside `with t.writing() as "
            "value: value[...] = ...`; to differentiate, build the result with minitx.where or minitx.concatenate"
        )

    def _no_derivative(self, other: Any) -> NoReturn:
        raise TypeError("// and % have derivative 0 or none at all: compute them on t.numpy(), outside the graph")

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _no_derivative
