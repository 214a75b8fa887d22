"""Activations: which of PyTorch's functions and modules is which of ours."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from minitx.nn import FeedForward
from minitx.ops import sigmoid, tanh
from minitx.ops.feedforward import ACTIVATIONS
from minitx.tensor import Tensor

Activation = Callable[[Tensor], Tensor]

OURS: dict[str, Activation] = {**ACTIVATIONS, "tanh": tanh, "sigmoid": sigmoid}
# (PyTorch's fast path in evaluation takes every nn.GELU for the exact one, so this is no module.)
TANH_GELU = functools.partial(F.gelu, approximate="tanh")
THEIRS: dict[str, Any] = {
    "relu": F.relu, "gelu": F.gelu, "gelu_tanh": TANH_GELU, "silu": F.silu, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
}  # fmt: skip
FUNCTIONS: dict[Any, str] = {f: name for name, f in THEIRS.items() if f is not TANH_GELU} | {
    torch.relu: "relu", F.tanh: "tanh", F.sigmoid: "sigmoid",
}  # fmt: skip
MODULES: dict[type, str] = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Tanh: "tanh", nn.Sigmoid: "sigmoid"}


def activation_from_torch(f: Any, given: Activation | None) -> tuple[str, Activation]:
    """Its name here and the function; `given` stands in where PyTorch's `f` is none that we know."""
    name = _name(f)
    if name is not None:
        return name, OURS[name]
    said = getattr(f, "__name__", None) or repr(f)
    if given is None:
        raise ValueError(
            f"activation {said}: known are {', '.join(OURS)} (as functions of torch or modules of torch.nn); for "
            "another give its like on minitx Tensors, from_torch(module, activation=lambda x: ...)"
        )
    return said, given


def _name(f: Any) -> str | None:
    if isinstance(f, functools.partial) and f.func is F.gelu and not f.args and set(f.keywords) == {"approximate"}:
        return _gelu(f.keywords["approximate"])
    if type(f) is nn.GELU:
        return _gelu(f.approximate)
    if type(f) in MODULES:
        return MODULES[type(f)]
    return FUNCTIONS.get(f) if callable(f) and getattr(f, "__hash__", None) else None


def _gelu(approximate: str) -> str | None:
    return {"none": "gelu", "tanh": "gelu_tanh"}.get(approximate)


def activation_to_torch(network: FeedForward, given: Any) -> Any:
    name = network.activation
    if OURS.get(name) is network.phi:
        return THEIRS[name]
    if given is None:
        raise ValueError(
            f"activation {name}: known are {', '.join(OURS)}; for another give its like on torch tensors, "
            "to_torch(module, activation=lambda x: ...)"
        )
    return given
