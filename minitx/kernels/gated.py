"""The gates, fast: contract and mathematics are in ops/gated.py. One pass forward, one back; see activation.py.

Saved are gate and up alone: the backward pass makes the activation and its slope again.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.kernels.activation import GATE, GATE_BACKWARD, GELU, GELU_TANH, RELU, SIGMOID, SILU, run
from minitx.kernels.memory import NONE

Array = np.ndarray[Any, Any]


def glu(gate: Array, up: Array) -> tuple[Array, Callable[..., Any]]:
    return _gated(SIGMOID, gate, up)


def reglu(gate: Array, up: Array) -> tuple[Array, Callable[..., Any]]:
    return _gated(RELU, gate, up)


def geglu(gate: Array, up: Array, approximate: str = "none") -> tuple[Array, Callable[..., Any]]:
    if approximate not in ("none", "tanh"):
        return NotImplemented  # type: ignore[no-any-return]
    return _gated(GELU if approximate == "none" else GELU_TANH, gate, up)


def swiglu(gate: Array, up: Array) -> tuple[Array, Callable[..., Any]]:
    return _gated(SILU, gate, up)


def _gated(which: int, gate: Array, up: Array) -> tuple[Array, Callable[..., Any]]:
    """y = φ(gate) * up"""
    dtype, shape = gate.dtype, gate.shape
    if dtype not in NONE or gate.ndim == 0 or up.shape != shape or up.dtype != dtype:
        return NotImplemented  # type: ignore[no-any-return]
    gate, up = np.ascontiguousarray(gate), np.ascontiguousarray(up)
    y, none = np.empty(shape, dtype), NONE[dtype][0]
    run(GATE, which, gate, up, none, y, none)

    def backward(dy: Array, need: Any) -> tuple[Array, Array]:
        dgate, dup = np.empty(shape, dtype), np.empty(shape, dtype)
        run(GATE_BACKWARD, which, gate, up, np.ascontiguousarray(dy), dgate, dup)
        return dgate, dup

    return y, backward
