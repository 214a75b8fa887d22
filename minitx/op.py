"""The contract of an op: a function on arrays that returns its value and its backward. `@op` lifts it to Tensors.

    @op
    def scale(x, factor=2.0):
        return factor * x, lambda dy: factor * dy

Parameters without a default are differentiable; otherwise they are named, `@op("q", "k", "v", "bias")`. `backward(dy)`
answers with one gradient per name, in that order (a bare array if there is one name); `backward(dy, need)` may skip
what nobody wants: `need.q` is False where the gradient of q is not asked for (a second parameter with a default, the
`y=y` of a lambda, is your own unless it is called `need`). Several values: return them as a tuple,
and `dy` is a tuple too. A parameter `*xs` takes any number of differentiable arrays.

What this file does for every op, so that no rule has to: cast to the Tensor's dtype and check that it comes out again,
choose between kernel and definition, leave a node on the tape. (The way back is pullback.py.)
"""
from __future__ import annotations

import copy
import functools
import importlib
import inspect
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, overload

import numpy as np
from numpy import ndarray

from minitx import settings
from minitx.complaints import apart, application, cast_all, mixed, no_rule, not_differentiable, numbers
from minitx.kernels import say
from minitx.pullback import as_tuple, takes_need
from minitx.tensor import Array, Node, Tensor, wrap

__all__ = ["Array", "Composite", "Forward", "Op", "composite", "op", "registry"]

Forward = tuple[Any, Callable[..., Any]]  # what an op returns: its value (or a tuple of values) and its backward
_UNRESOLVED: Any = object()
ZERO = bytes(8)  # memory of one number 0, for arrays that are 0 everywhere

registry: dict[str, Op] = {}  # every op of minitx itself, by name: checks and benchmarks walk it


class Op:
    """A differentiable function. Call it on Tensors; `definition` is the rule on arrays, in NumPy, for reading."""

    on_tensors = False  # is the definition written on Tensors (a composite)?
    replaced = 0  # how many `using` are open: who would run an op's kernel without asking the op looks here

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
        self.module = definition.__module__ or ""
        if self.module.startswith("minitx.ops."):
            registry[self.name] = self

    # ------------------------------------------------------------------ which implementation runs

    @property
    def kernel(self) -> Callable[..., Any] | None:
        """The function of the same name in the file of the same name under minitx/kernels, where there is one."""
        if self._kernel is _UNRESOLVED:
            self._kernel = self._find_kernel()
        return self._kernel

    def _find_kernel(self) -> Callable[..., Any] | None:
        package, _, file = self.module.rpartition(".")
        if package != "minitx.ops":
            return None
        name = f"minitx.kernels.{file}"
        try:
            return getattr(importlib.import_module(name), self.name, None)
        except ModuleNotFoundError as error:
            if error.name in ("numba", "llvmlite"):
                say.once("numba is not installed, so minitx runs on the slower NumPy definitions (pip install numba)")
                return None
            if error.name == name:
                return None  # no such kernel: the definition does it
            raise

    @contextmanager
    def using(self, implementation: Callable[..., Any]) -> Iterator[None]:
        """Inside, `implementation` (same contract) runs instead: a mutant, a learner's code, a kernel under test.

        Unlike `no_grad` and `reference`, which hold for one thread, this holds for the whole process.
        """
        before, self.replacement = self.replacement, implementation
        Op.replaced += 1
        try:
            yield
        finally:
            self.replacement = before
            Op.replaced -= 1

    # ------------------------------------------------------------------ forward

    def __call__(self, *args: Any, **given: Any) -> Tensor:
        now = settings.current.get()
        f: Any = self.replacement
        if f is None and now.kernels:
            f = self._kernel if self._kernel is not _UNRESOLVED else self.kernel
        if f is None or f is self.definition:
            if self.on_tensors:
                return self.definition(*args, **given)  # type: ignore[no-any-return]
            f = self.definition
        # 1. Unpack: Tensors become arrays; which of them are differentiable inputs, and of which dtype?
        slots = self.by_position
        if self.variadic:
            args, slots = self._spread(args)
        arrays: list[Any] = []
        inputs: list[Tensor] = []
        where: list[int] = []  # the slot of each input
        live = 0  # a bit for each slot: somebody wants its gradient
        dtype: Any = None
        plain: Any = ()  # the places of numbers and arrays among the differentiable arguments
        theirs: Any = ()  # arrays of the caller that the rule gets as they are
        for a, slot in zip(args, slots):
            if isinstance(a, Tensor):
                array = a._data
                if slot >= 0:
                    inputs.append(a)
                    where.append(slot)
                    if dtype is None:
                        dtype = array.dtype
                    elif array.dtype is not dtype and array.dtype != dtype:
                        raise mixed(self.name, inputs)
                    if a._requires_grad:
                        live |= 1 << slot
                elif a._requires_grad:
                    raise not_differentiable(self.name, self._parameter(len(arrays)))
                arrays.append(array)
            elif a is None:
                arrays.append(None)
            else:
                if slot >= 0:
                    plain = (*plain, len(arrays))
                elif isinstance(a, ndarray):
                    theirs = (*theirs, a)
                arrays.append(copy.deepcopy(a) if type(a) is list else a)  # the rule may keep it, the caller change it
        if len(args) > len(slots):
            arrays += args[len(slots) :]  # one too many: let Python say so in its own words
        options = given
        if given:
            options = {n: copy.deepcopy(a) if type(a) is list else a for n, a in given.items()}  # (our own dict, too)
            bare = [n for n, a in options.items() if n in self.slot and not isinstance(a, Tensor)]
            dtype, live = self._open(options, inputs, where, live)
            cast_all(options, bare, dtype, self.name)
            theirs += tuple([a for n, a in options.items() if n not in self.slot and isinstance(a, ndarray)])
        if plain:
            cast_all(arrays, plain, dtype, self.name)
        # 2. Run the rule. A kernel may decline a case: then the definition does it.
        while True:
            try:
                result = f(*arrays, **options) if options else f(*arrays)
            except Exception as error:
                if not (isinstance(error, NotImplementedError) and f is self._kernel):
                    error.add_note(f"in {self.describe(arrays, options)}")
                    raise
                result = NotImplemented  # it cannot be compiled on this machine, and has said so
            if type(result) is tuple and len(result) == 2 and callable(result[1]):
                break
            if result is not NotImplemented or f is self.definition:
                raise no_rule(self.name, result)
            if self.on_tensors:
                return self.definition(*args, **given)  # type: ignore[no-any-return]
            f = self.definition
        # 3. Check what came out, and wrap it; where somebody wants a gradient, leave a node on the tape.
        value, backward = result
        several = type(value) is tuple
        if several:
            value = tuple([self._checked(v, dtype) for v in value])
        elif type(value) is not ndarray or value.dtype is not dtype:
            value = self._checked(value, dtype)
        if theirs:
            value = apart(value, theirs)
        node = None
        if live and now.recording:
            need = self._needs.get(live) or self._need(live, max(slots) + 1 if self.variadic else len(self.wrt))
            stand_ins = [ndarray(v.shape, v.dtype, ZERO, 0, (0,) * v.ndim) for v in value] if several else None
            node = Node(self, backward, inputs, where, need, stand_ins)
        out: Any = tuple([wrap(v, node, i) for i, v in enumerate(value)]) if several else wrap(value, node)
        if now.observer is not None:
            now.observer.forward(self, arrays, options, out, node)
        return out  # type: ignore[no-any-return]

    def _checked(self, result: Any, dtype: Any) -> Array:
        value: Array = np.asarray(result)
        if dtype is None:
            return numbers(value, f"the value of {self.name}")
        if value.dtype != dtype:
            fix = "an op keeps the dtype of its Tensors" if dtype.kind == "f" else "make the Tensor from floats"
            raise TypeError(f"{self.name}: {dtype} in, {value.dtype} out; {fix}")
        return value

    def _spread(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """For `f(a, *xs)`: one list may stand for the xs, and each x has a slot of its own."""
        fixed = len(self.by_position) - 1
        if len(args) == fixed + 1 and isinstance(args[fixed], list | tuple):
            args = (*args[:fixed], *args[fixed])
        first = self.by_position[-1]
        return args, (*self.by_position[:-1], *range(first, first + len(args) - fixed))

    def _open(self, options: dict[str, Any], inputs: list[Tensor], where: list[int], live: int) -> tuple[Any, int]:
        """Take the Tensors out of the keyword arguments; returns the dtype of all inputs, and which are wanted."""
        for name, a in options.items():
            if name not in self.signature.parameters:
                raise TypeError(f"{self.name}() has no argument {name}; it has {', '.join(self.signature.parameters)}")
            if isinstance(a, Tensor):
                if name in self.slot:
                    inputs.append(a)
                    where.append(self.slot[name])
                    if a._requires_grad:
                        live |= 1 << self.slot[name]
                    if a._data.dtype != inputs[0]._data.dtype:
                        raise mixed(self.name, inputs)
                elif a._requires_grad:
                    raise not_differentiable(self.name, name)
                options[name] = a._data
        return inputs[0]._data.dtype if inputs else None, live

    def _need(self, live: int, slots: int) -> Any:
        need = self._as_need([live >> slot & 1 == 1 for slot in range(slots)])
        if not self.variadic:
            self._needs[live] = need
        return need

    # ------------------------------------------------------------------ the rule by itself

    def rule(self, *args: Any, **options: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
        """The rule on bare arrays, as it stands (a replacement first, else the definition): (value, dy → gradients).

        Nothing is cast and no broadcasting undone: for checks and exercises, in which a missing sum has to show.
        """
        result = (self.replacement or self.definition)(*args, **options)
        if type(result) is not tuple or len(result) != 2 or not callable(result[1]):
            raise no_rule(self.name, result)
        value, backward = result
        if self.variadic:
            need: Any = tuple(slot >= 0 for slot in self._spread(args)[1] if slot >= 0)
        else:
            given = self.signature.bind(*args, **options).arguments
            need = self._as_need(given.get(n) is not None for n in self.wrt)

        def pullback(dy: Any) -> tuple[Any, ...]:
            return as_tuple(self, backward(dy, need) if takes_need(backward) else backward(dy), need)

        return value, pullback

    # ------------------------------------------------------------------ words for messages

    def describe(self, args: Sequence[Any], options: dict[str, Any]) -> str:
        """`linear(x (2, 3), weight (5, 3))`: an application in one line."""
        named = [(self._parameter(i), a) for i, a in enumerate(args)]
        return application(self.name, named + [(n, a) for n, a in options.items() if a is not None])

    def _parameter(self, i: int) -> str:
        names = list(self.signature.parameters)
        return names[min(i, len(names) - 1)] if names else str(i)

    def slot_name(self, slot: int) -> str:
        return self.wrt[slot] if slot < len(self.wrt) and not self.variadic else f"input {slot}"

    def __reduce__(self) -> str:
        return self.__qualname__  # type: ignore[attr-defined, no-any-return]  # copies are itself; pickle takes the name

    def __repr__(self) -> str:
        return f"<op {self.name}{self.signature}>"


class Composite(Op):
    """An op whose definition is written on Tensors with smaller ops; only its kernel returns (value, backward).

    While any op is replaced (`using`) the definition runs, so that the replacement of a part is used here too.
    """

    on_tensors = True

    def __call__(self, *args: Any, **options: Any) -> Tensor:
        if Op.replaced and self.replacement is None:
            return self.definition(*args, **options)  # type: ignore[no-any-return]
        return super().__call__(*args, **options)


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
def composite(definition: Callable[..., Any], /) -> Composite: ...
@overload
def composite(*wrt: str) -> Callable[[Callable[..., Any]], Composite]: ...
def composite(*wrt: Any) -> Any:
    """Like `@op`, for a function on Tensors made of smaller ops: their gradients make its own; its kernel fuses."""
    if len(wrt) == 1 and callable(wrt[0]):
        return Composite(wrt[0], (), False)
    return lambda definition: Composite(definition, wrt, False)
