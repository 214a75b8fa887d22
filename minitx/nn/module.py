"""Module: a layer is a Python object; its parameters are whatever Parameters its attributes hold."""
from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from minitx.tensor import Array, Tensor


class Parameter(Tensor):
    """A leaf that is trained. `decay` tells the optimizer whether weight decay applies (matrices yes, the rest no)."""

    __slots__ = ("decay",)

    def __init__(self, data: Any, decay: bool = True) -> None:
        super().__init__(data, requires_grad=True)
        self.decay = decay

    def cast(self, dtype: Any) -> None:
        """Change the dtype, to float32 or float64; the gradient is dropped, and graphs made before refuse backward."""
        self.put(np.array(self._data, _float(dtype)))
        self.grad = None


def _float(dtype: Any) -> np.dtype[Any]:
    found: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)  # (NumPy takes None for float64)
    if found not in (np.float32, np.float64):
        raise TypeError(f"parameters are float32 or float64, not {found}")
    return found


class Module:
    """The base of all layers: `forward` computes, attributes hold parameters and smaller modules (lists and dicts too).

    A parameter's name is the path of attributes that leads to it: `blocks.0.attention.query.weight`. A parameter that
    can be reached by several paths (a tied one) has the first of them as its name and appears once.
    """

    training = True

    def forward(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.forward(*args, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        """A parameter goes by being replaced by another or by None (or deleted), and never by mistake."""
        if value is not None and not isinstance(value, Parameter | Module):
            layer = type(self).__name__
            if isinstance(vars(self).get(name), Parameter):
                raise TypeError(f"{layer}.{name} is a Parameter and would be lost: set its value, .{name}.data = ...")
            if isinstance(value, Tensor) and value.requires_grad and value.is_leaf:
                raise TypeError(f"{layer}.{name}: a module trains Parameters: nn.Parameter(data) instead of a Tensor")
        super().__setattr__(name, value)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, value in vars(cls).items():
            if isinstance(value, Parameter | Module):
                raise TypeError(f"{cls.__name__}.{name} would be one for all objects of the class: make it in __init__")

    # ------------------------------------------------------------------ what is inside

    def children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, with their names."""
        for name, value in vars(self).items():
            yield from _find(name, value, Module)

    def modules(self) -> Iterator[tuple[str, Module]]:
        """This module and all modules inside, each once, with their dotted names ("" for this one)."""
        return _walk("", self, set())

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Every parameter once, with its dotted name, in the order in which they were assigned.

        Raises ValueError where two would have one name (dict keys 1 and "1"): they are saved and stepped by name.
        """
        seen: set[int] = set()
        names: set[str] = set()
        for module_name, module in self.modules():
            for attribute, value in vars(module).items():
                for name, parameter in _find(attribute, value, Parameter):
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        path = f"{module_name}.{name}" if module_name else name
                        if path in names:
                            raise ValueError(f"two parameters are called {path!r}; rename a dict key or an attribute")
                        names.add(path)
                        yield path, parameter

    def parameters(self) -> Iterator[Parameter]:
        return (parameter for _, parameter in self.named_parameters())

    def num_parameters(self) -> int:
        """How many numbers are trained; a tied matrix counts once."""
        return sum(parameter.size for parameter in self.parameters())

    # ------------------------------------------------------------------ state

    def state_dict(self) -> dict[str, Array]:
        """Name → a copy of the value. A tied parameter appears once."""
        return {name: parameter.numpy() for name, parameter in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Set every parameter from `state`. Everything is checked before anything is written.

        Raises KeyError for a missing or unknown name, ValueError for a wrong shape and TypeError for what is no array
        of real numbers. Tied parameters stay tied.
        """
        if not isinstance(state, Mapping):
            raise TypeError(f"a state is a dict, name -> array, as state_dict() gives it, not a {type(state).__name__}")
        mine = dict(self.named_parameters())
        for name in mine:
            if name not in state:
                raise KeyError(f"the state has no {name!r}, which this model needs{_nearest(name, state)}")
        new: dict[str, Array] = {}
        for name, value in state.items():
            if name not in mine:
                raise KeyError(f"the state has {name!r}, which this model has no place for{_nearest(name, mine)}")
            value = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
            if value.dtype.kind not in "fiu":
                raise TypeError(f"{name}: a state holds arrays of real numbers, not {value.dtype}")
            if value.shape != mine[name].shape:
                raise ValueError(f"{name}: this model has shape {mine[name].shape}, the state {value.shape}")
            new[name] = value.astype(mine[name].dtype)
        for name, parameter in mine.items():
            parameter.data = new[name]

    def train(self, mode: bool = True) -> Module:
        """Dropout on (or, with False, off). Returns the module."""
        for _, module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Dropout off. Returns the module."""
        return self.train(False)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters():
            parameter.grad = None

    def astype(self, dtype: Any) -> Module:
        """Cast every parameter to float32 or float64 (before an optimizer is made). Returns the module."""
        dtype = _float(dtype)
        for parameter in self.parameters():
            parameter.cast(dtype)
        return self

    # ------------------------------------------------------------------ as text

    def extra(self) -> str:
        """What the tree shows of this module beside its name."""
        return ""

    def __repr__(self) -> str:
        return "\n".join(_tree("", self, ()))


def original(module: Module, *kinds: type) -> bool:
    """Is it of one of these kinds itself, with the `forward` of that kind, so that one op may do its work?"""
    return type(module) in kinds and "forward" not in vars(module)


def _walk(name: str, module: Module, seen: set[int]) -> Iterator[tuple[str, Module]]:
    if id(module) in seen:
        return
    seen.add(id(module))
    yield name, module
    for child_name, child in module.children():
        yield from _walk(f"{name}.{child_name}" if name else child_name, child, seen)


def _tree(name: str, module: Module, above: tuple[Module, ...]) -> Iterator[str]:
    line = "  " * len(above) + (f"{name}: " if name else "") + type(module).__name__
    if any(module is one for one in above):  # a child that knows its parent
        yield f"{line} (see above)"
        return
    extra, count = module.extra(), module.num_parameters()
    yield f"{line}{f' {extra}' if extra else ''}{f'  [{count:,}]' if count else ''}"
    for child_name, child in module.children():
        yield from _tree(child_name, child, (*above, module))


def _find(name: str, value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """The objects of one kind that an attribute holds: itself, or inside lists, tuples and dicts."""
    if isinstance(value, kind):
        yield name, value
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _find(f"{name}.{i}", item, kind)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _find(f"{name}.{key}", item, kind)
    elif isinstance(value, set | frozenset | deque) and any(isinstance(item, Parameter | Module) for item in value):
        raise TypeError(f"{name}: parameters in a {type(value).__name__} are not found; put them into a list or dict")


def _nearest(name: str, names: Any) -> str:
    close = difflib.get_close_matches(str(name), map(str, names), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
