"""Module: a layer is a Python object; its parameters are whatever Parameters its attributes hold."""
from __future__ import annotations

import difflib
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

    def __reduce__(self) -> Any:
        return _rebuild, (self._data, self.decay, self._requires_grad, self.grad)

    def cast(self, dtype: Any) -> None:
        """Change the dtype; the gradient is dropped."""
        new = np.array(self._data, dtype)
        requires_grad = self._requires_grad
        self._fill(new, None, 0)
        self.requires_grad = requires_grad


def _rebuild(data: Array, decay: bool, requires_grad: bool, grad: Array | None) -> Parameter:
    parameter = Parameter(np.array(data), decay)
    parameter.requires_grad, parameter.grad = requires_grad, grad
    return parameter


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

    # ------------------------------------------------------------------ what is inside

    def children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, with their names."""
        for name, value in vars(self).items():
            yield from _find(name, value, Module)

    def modules(self) -> Iterator[tuple[str, Module]]:
        """This module and all modules inside, each once, with their dotted names ("" for this one)."""
        seen: set[int] = set()

        def walk(name: str, module: Module) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            seen.add(id(module))
            yield name, module
            for child_name, child in module.children():
                yield from walk(f"{name}.{child_name}" if name else child_name, child)

        return walk("", self)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Every parameter once, with its dotted name, in the order in which they were assigned."""
        seen: set[int] = set()
        for module_name, module in self.modules():
            for attribute, value in vars(module).items():
                for name, parameter in _find(attribute, value, Parameter):
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        yield f"{module_name}.{name}" if module_name else name, parameter

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
        """Set every parameter from `state`. All names and shapes are checked before anything is written.

        Raises KeyError for a missing or unknown name and ValueError for a wrong shape. Tied parameters stay tied.
        """
        mine = dict(self.named_parameters())
        for name in mine:
            if name not in state:
                raise KeyError(f"the state has no {name!r}, which this model needs{_nearest(name, state)}")
        for name, value in state.items():
            if name not in mine:
                raise KeyError(f"the state has {name!r}, which this model has no place for{_nearest(name, mine)}")
            if value.shape != mine[name].shape:
                raise ValueError(f"{name}: this model has shape {mine[name].shape}, the state {value.shape}")
        for name, parameter in mine.items():
            parameter.data = state[name]

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
        for parameter in self.parameters():
            parameter.cast(dtype)
        return self

    # ------------------------------------------------------------------ as text

    def extra(self) -> str:
        """What the tree shows of this module beside its name."""
        return ""

    def __repr__(self) -> str:
        return "\n".join(self._tree("", ""))

    def _tree(self, name: str, indent: str) -> Iterator[str]:
        label = f"{name}: " if name else ""
        extra = f" {self.extra()}" if self.extra() else ""
        count = self.num_parameters()
        yield f"{indent}{label}{type(self).__name__}{extra}{f'  [{count:,}]' if count else ''}"
        for child_name, child in self.children():
            yield from child._tree(child_name, indent + "  ")


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


def _nearest(name: str, names: Any) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
