"""The contract of an op: a function on arrays that returns its value and its backward. `@op` lifts it to Tensors.

    @op
    def scale(x, factor=2.0):
        return factor * x, lambda dy: factor * dy

Parameters without a default are differentiable; otherwise they are named, `@op("q", "k", "v", "bias")`. `backward(dy)`
answers with one gradient per name, in that order (a bare array if there is one name); `backward(dy, need)` may skip
what nobody wants: `need.q` is False where the gradient of q is not asked for. Several values: return them as a tuple,
and `dy` is a tuple too. A parameter `*xs` takes any number of differentiable arrays.

What this file does for every op, so that no rule has to: cast to the Tensor's dtype and check that it comes out again,
choose between kernel and definition, leave a node on the tape, undo broadcasting (for ops that declare it).
"""
from __future__ import annotations

import functools
import importlib
import inspect
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, overload

import numpy as np

from minitx import settings
from minitx.tensor import Array, Node, Tensor, set_writeable, wrap

__all__ = ["Array", "Composite", "Forward", "Op", "composite", "op", "registry"]

Forward = tuple[Any, Callable[..., Any]]  # what an op returns: its value (or a tuple of values) and its backward
_UNRESOLVED: Any = object()

registry: dict[str, Op] = {}  # every op of minitx itself, by name: checks and benchmarks walk it


class Op:
    """A differentiable function. Call it on Tensors; `definition` is the rule on arrays, in NumPy, for reading."""

    def __init__(self, definition: Callable[..., Any], wrt: Sequence[str], broadcasts: bool) -> None:
        functools.update_wrapper(self, definition)
        self.name = definition.__name__
        self.definition = definition
        self.broadcasts = broadcasts
        self.signature = inspect.signature(definition)
        parameters = self.signature.parameters
        self.wrt = tuple(wrt) or tuple(n for n, p in parameters.items() if p.default is p.empty)
        if unknown := [n for n in self.wrt if n not in parameters]:
            raise TypeError(f"@op: {self.name} has no parameter {unknown[0]!r}; it has {', '.join(parameters)}")
        self.slot = {n: i for i, n in enumerate(self.wrt)}
        # The slot of each positional parameter, -1 for one that is not differentiable.
        kinds = [(self.slot.get(n, -1), p.kind) for n, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
        self.by_position = tuple(slot for slot, _ in kinds)
        self.variadic = bool(kinds) and kinds[-1][1] is inspect.Parameter.VAR_POSITIONAL
        self.replacement: Callable[..., Any] | None = None
        self._kernel: Callable[..., Any] | None = _UNRESOLVED
        self._needs: dict[Any, Any] = {}
        self._as_need: Any = tuple if self.variadic else getattr(namedtuple("Need", self.wrt), "_make")  # noqa: B009
        if definition.__module__.startswith("minitx.ops."):
            registry[self.name] = self

    # ------------------------------------------------------------------ which implementation runs

    @property
    def kernel(self) -> Callable[..., Any] | None:
        """The function of the same name in the file of the same name under minitx/kernels, where there is one."""
        if self._kernel is _UNRESOLVED:
            self._kernel = self._find_kernel()
        return self._kernel

    def _find_kernel(self) -> Callable[..., Any] | None:
        package, _, file = self.definition.__module__.rpartition(".")
        if package != "minitx.ops":
            return None
        name = f"minitx.kernels.{file}"
        try:
            return getattr(importlib.import_module(name), self.name, None)
        except ModuleNotFoundError as error:
            if error.name in (name, "numba", "llvmlite"):
                return None  # no such kernel, or no compiler: the definition does it
            raise

    @contextmanager
    def using(self, implementation: Callable[..., Any]) -> Iterator[None]:
        """Inside, `implementation` (same contract) runs instead: a mutant, a learner's code, a kernel under test."""
        before, self.replacement = self.replacement, implementation
        try:
            yield
        finally:
            self.replacement = before

    # ------------------------------------------------------------------ forward

    def __call__(self, *args: Any, **options: Any) -> Tensor:
        now = settings.current.get()
        f = self.replacement
        if f is None and now.kernels:
            f = self._kernel if self._kernel is not _UNRESOLVED else self.kernel
        if f is not None:
            result = self._apply(f, args, options, now)
            if result is not NotImplemented:  # a kernel may decline a case
                return result  # type: ignore[no-any-return]
        return self._apply(self.definition, args, options, now)  # type: ignore[no-any-return]

    def _apply(self, f: Callable[..., Any], args: Any, options: dict[str, Any], now: settings.Settings) -> Any:
        slots = self.by_position
        if self.variadic:
            args, slots = self._spread(args)
        arrays: list[Any] = []
        inputs: list[Tensor] = []
        where: list[int] = []  # the slot of each input
        live: list[int] = []  # the slots whose gradient somebody wants
        dtype: Any = None
        plain: list[int] = []  # the places of numbers and arrays among the differentiable arguments
        for a, slot in zip(args, slots):
            if isinstance(a, Tensor):
                array = a._data
                arrays.append(array)
                if slot >= 0:
                    inputs.append(a)
                    where.append(slot)
                    if dtype is None:
                        dtype = array.dtype
                    elif array.dtype is not dtype and array.dtype != dtype:
                        raise self._mixed(inputs)
                    if a._requires_grad:
                        live.append(slot)
                elif a._requires_grad:
                    raise self._not_differentiable(len(arrays) - 1)
            else:
                if slot >= 0:
                    plain.append(len(arrays))
                arrays.append(a)
        if len(args) > len(slots):
            arrays += args[len(slots) :]  # one too many: let Python say so in its own words
        if options:
            options = dict(options)  # a kernel may decline, and then the definition starts from the same options
            given = [n for n, a in options.items() if n in self.slot and not isinstance(a, Tensor)]
            dtype = self._open(options, inputs, where, live)
            self._cast(options, given, dtype)
        if plain:
            self._cast(arrays, plain, dtype)
        try:
            result = f(*arrays, **options)
        except Exception as error:
            error.add_note(f"in {self.describe(arrays, options)}")
            raise
        if result is NotImplemented:
            return result
        value, backward = result
        node = None
        if live and now.recording:
            key = (tuple(live), max(slots) + 1 if self.variadic else len(self.wrt))
            stand_ins = [np.broadcast_to(v.dtype.type(0), v.shape) for v in value] if type(value) is tuple else None
            node = Node(self, backward, inputs, where, self._needs.get(key) or self._need(*key), stand_ins)
        out: Any
        if type(value) is tuple:
            out = tuple(wrap(self._checked(v, dtype), node, i) for i, v in enumerate(value))
        elif type(value) is np.ndarray and (value.dtype is dtype or dtype is None):
            out = wrap(value, node)
        else:
            out = wrap(self._checked(value, dtype), node)
        if now.observer is not None:
            now.observer.forward(self, arrays, options, out, node)
        return out

    def _checked(self, result: Any, dtype: Any) -> Array:
        value: Array = np.asarray(result)
        if dtype is not None and value.dtype != dtype:
            raise TypeError(f"{self.name}: {dtype} in, {value.dtype} out; an op keeps the dtype of its Tensors")
        return value

    def _spread(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """For `f(a, *xs)`: one list may stand for the xs, and each x has a slot of its own."""
        fixed = len(self.by_position) - 1
        if len(args) == fixed + 1 and isinstance(args[fixed], list | tuple):
            args = (*args[:fixed], *args[fixed])
        first = self.by_position[-1]
        return args, (*self.by_position[:-1], *range(first, first + len(args) - fixed))

    def _open(self, options: dict[str, Any], inputs: list[Tensor], where: list[int], live: list[int]) -> Any:
        """Take the Tensors out of the keyword arguments; returns the dtype of all inputs."""
        for name, a in options.items():
            if isinstance(a, Tensor):
                if name in self.slot:
                    inputs.append(a)
                    where.append(self.slot[name])
                    if a._requires_grad:
                        live.append(self.slot[name])
                    if a._data.dtype != inputs[0]._data.dtype:
                        raise self._mixed(inputs)
                elif a._requires_grad:
                    raise self._not_differentiable(list(self.signature.parameters).index(name))
                options[name] = a._data
        return inputs[0]._data.dtype if inputs else None

    def _cast(self, arguments: Any, places: Sequence[Any], dtype: Any) -> None:
        """The Tensors decide: numbers and arrays in differentiable places take their dtype (float32 without one).

        They are copied, for the rule may keep them, and the caller may change them before backward.
        """

        def array(a: Any) -> Array:
            if dtype is not None:
                if dtype.kind != "f" and np.asarray(a).dtype.kind == "f":
                    raise TypeError(f"{self.name}: a float would be cut to {dtype} here; make the Tensor from floats")
                return np.array(a, dtype)
            given: Array = np.array(a)
            return given if given.dtype.kind == "f" else given.astype(np.float32)

        for place in places:
            if arguments[place] is not None:
                arguments[place] = array(arguments[place])

    def _need(self, live: tuple[int, ...], slots: int) -> Any:
        need = self._needs[live, slots] = self._as_need(slot in live for slot in range(slots))
        return need

    # ------------------------------------------------------------------ backward

    def pull(self, node: Node, dy: Any) -> Sequence[Array | None]:
        """The pullback of one node: the cotangent of its value → a gradient for each of `node.inputs` (or None)."""
        backward, need = node.backward, node.need
        assert backward is not None
        try:
            grads = backward(dy, need) if _takes_need(backward) else backward(dy)
        except Exception as error:
            error.add_note(f"in the backward of {self.name}")
            raise
        if type(grads) is not tuple:
            grads = (grads,)
        out: list[Array | None] = []
        for tensor, slot in zip(node.inputs, node.slots):
            if not need[slot]:
                out.append(None)
                continue
            g = grads[slot] if slot < len(grads) else None
            if g is None:
                raise RuntimeError(f"backward of {self.name} returned no gradient for {self._slot_name(slot)}")
            if type(g) is not np.ndarray:
                g = np.asarray(g)  # arithmetic on arrays without axes gives NumPy scalars
            x = tensor._data
            if g.shape != x.shape:
                g = self.fit(g, x.shape, slot)
            if g.dtype is not x.dtype and g.dtype != x.dtype:
                raise TypeError(f"backward of {self.name}: {x.dtype} in, {g.dtype} for {self._slot_name(slot)}")
            for other in out:
                if other is not None and (other is g or other is g.base or other.base is g):
                    set_writeable(other, False)  # one memory for two inputs belongs to neither
                    set_writeable(g, False)
            out.append(g)
        return out

    def fit(self, g: Array, shape: tuple[int, ...], slot: int = 0) -> Array:
        """Undo broadcasting: where x was repeated along an axis, its gradient is the sum along that axis."""
        if not self.broadcasts:
            raise RuntimeError(
                f"backward of {self.name} returned shape {g.shape} for {self._slot_name(slot)} of shape {shape}: is a "
                "sum over a broadcast axis missing? (an elementwise op leaves that to the engine: @op(broadcasts=True))"
            )
        g = np.asarray(g)
        g = g.sum(axis=tuple(range(g.ndim - len(shape))))
        repeated = tuple(i for i, (n, m) in enumerate(zip(shape, g.shape)) if n == 1 and m != 1)
        g = np.asarray(g.sum(axis=repeated, keepdims=True))
        if g.shape != shape:
            raise RuntimeError(f"backward of {self.name} returned shape {g.shape} for an input of shape {shape}")
        return g

    def rule(self, *args: Any, **options: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
        """The rule on bare arrays, as it stands (a replacement first, else the definition): (value, dy → gradients).

        Nothing is cast and no broadcasting undone: for checks and exercises, in which a missing sum has to show.
        """
        value, backward = (self.replacement or self.definition)(*args, **options)
        if self.variadic:
            need: Any = tuple(slot >= 0 for slot in self._spread(args)[1] if slot >= 0)
        else:
            given = self.signature.bind(*args, **options).arguments
            need = self._as_need(given.get(n) is not None for n in self.wrt)

        def pullback(dy: Any) -> tuple[Any, ...]:
            grads = backward(dy, need) if _takes_need(backward) else backward(dy)
            return grads if type(grads) is tuple else (grads,)

        return value, pullback

    # ------------------------------------------------------------------ words for messages

    def describe(self, args: Sequence[Any], options: dict[str, Any]) -> str:
        """`linear(x (2, 3), weight (5, 3))`: an application in one line."""

        def word(a: Any) -> str:
            a = a._data if isinstance(a, Tensor) else a
            if isinstance(a, np.ndarray):
                return str(a.shape)
            return repr(a) if isinstance(a, int | float | str) else type(a).__name__

        said = [f"{self._parameter(i)} {word(a)}" for i, a in enumerate(args)]
        said += [f"{n} {word(a)}" for n, a in options.items() if a is not None]
        return f"{self.name}({', '.join(said)})"

    def _parameter(self, i: int) -> str:
        names = list(self.signature.parameters)
        return names[min(i, len(names) - 1)] if names else str(i)

    def _slot_name(self, slot: int) -> str:
        return self.wrt[slot] if slot < len(self.wrt) and not self.variadic else f"input {slot}"

    def _not_differentiable(self, i: int) -> TypeError:
        return TypeError(f"{self.name}: {self._parameter(i)} is not differentiable; pass t.numpy() or t.detach()")

    def _mixed(self, inputs: list[Tensor]) -> TypeError:
        kinds = " and ".join(sorted({str(t.dtype) for t in inputs}))
        return TypeError(f"{self.name}: Tensors of {kinds} do not mix: nothing is cast silently, make them one dtype")

    def __repr__(self) -> str:
        return f"<op {self.name}{self.signature}>"


class Composite(Op):
    """An op whose definition is written on Tensors with smaller ops; only its kernel returns (value, backward)."""

    def _apply(self, f: Callable[..., Any], args: Any, options: dict[str, Any], now: settings.Settings) -> Any:
        if f is self.definition:
            return f(*args, **options)
        return super()._apply(f, args, options, now)


def _takes_need(backward: Callable[..., Any]) -> bool:
    if type(backward) is FunctionType:
        return backward.__code__.co_argcount == 2
    return len(inspect.signature(backward).parameters) == 2  # a partial, a compiled function


@overload
def op(definition: Callable[..., Forward], /) -> Op: ...
@overload
def op(*wrt: str, broadcasts: bool = False) -> Callable[[Callable[..., Forward]], Op]: ...
def op(*wrt: Any, broadcasts: bool = False) -> Any:
    """Lift a rule on arrays (see the top of this file) to Tensors.

    `broadcasts=True` says that the inputs broadcast against each other as in NumPy; the engine then sums each gradient
    over the axes along which its input was repeated. Without it a gradient must have exactly its input's shape.
    """
    if len(wrt) == 1 and callable(wrt[0]):
        return Op(wrt[0], (), broadcasts)
    return lambda definition: Op(definition, wrt, broadcasts)


@overload
def composite(definition: Callable[..., Tensor], /) -> Composite: ...
@overload
def composite(*wrt: str) -> Callable[[Callable[..., Tensor]], Composite]: ...
def composite(*wrt: Any) -> Any:
    """Like `@op`, for a function on Tensors made of smaller ops: their gradients make its own; its kernel fuses."""
    if len(wrt) == 1 and callable(wrt[0]):
        return Composite(wrt[0], (), False)
    return lambda definition: Composite(definition, wrt, False)
