"""How a module is written out: by its type, or by itself where it is a function; on leaves of any kind."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitx import nn

WRITTEN: dict[Any, Callable[..., Any]] = {}


class Twin:
    """A module with other leaves: `leaves` maps the identity of a parameter to what stands for it."""

    def __init__(self, module: Any, leaves: dict[int, Any]) -> None:
        self.module, self.leaves = module, leaves

    def __getattr__(self, name: str) -> Any:
        return self._twin(getattr(self.module, name))

    def _twin(self, value: Any) -> Any:
        if isinstance(value, nn.Parameter):
            return self.leaves[id(value)]
        if isinstance(value, nn.Module):
            return Twin(value, self.leaves)
        return [self._twin(v) for v in value] if isinstance(value, list) else value


def write(F: Any, m: Any, *args: Any, **options: Any) -> Any:
    """What the module (a Twin) makes of the arguments, or a function of minitx.nn."""
    return WRITTEN[type(m.module)](F, m, *args, **options) if isinstance(m, Twin) else WRITTEN[m](F, *args, **options)


def of(*modules: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        WRITTEN.update(dict.fromkeys(modules, function))
        return function

    return add
