"""x + y, x @ y, x[i], x.sum(): the operators and methods of Tensor are ops, hung on the class here.

A number or an ndarray on the left arrives through the reflected operators, in which `other` stands first.
"""
from __future__ import annotations

from typing import Any

from minitx.ops.activation import relu, sigmoid, tanh
from minitx.ops.arithmetic import add, div, mul, neg, power, sub
from minitx.ops.exponential import exp, log, rsqrt, sqrt
from minitx.ops.indexing import getitem
from minitx.ops.matmul import matmul
from minitx.ops.reduction import logsumexp, max, mean, min, sum, var
from minitx.ops.selection import abs, clip
from minitx.ops.shape import broadcast_to, expand_dims, reshape, squeeze, swapaxes, transpose
from minitx.tensor import Tensor


class _Operators:
    def __add__(self, other: Any) -> Tensor:
        return add(self, other)

    def __radd__(self, other: Any) -> Tensor:
        return add(other, self)

    def __sub__(self, other: Any) -> Tensor:
        return sub(self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return sub(other, self)

    def __mul__(self, other: Any) -> Tensor:
        return mul(self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return mul(other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return div(self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return div(other, self)

    def __pow__(self, other: Any) -> Tensor:
        return power(self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return power(other, self)

    def __matmul__(self, other: Any) -> Tensor:
        return matmul(self, other)

    def __rmatmul__(self, other: Any) -> Tensor:
        return matmul(other, self)

    def __neg__(self) -> Tensor:
        return neg(self)

    def __abs__(self) -> Tensor:
        return abs(self)

    def __getitem__(self, index: Any) -> Tensor:
        return getitem(self, index)

    def exp(self) -> Tensor:
        return exp(self)

    def log(self) -> Tensor:
        return log(self)

    def sqrt(self) -> Tensor:
        return sqrt(self)

    def rsqrt(self) -> Tensor:
        return rsqrt(self)

    def tanh(self) -> Tensor:
        return tanh(self)

    def sigmoid(self) -> Tensor:
        return sigmoid(self)

    def relu(self) -> Tensor:
        return relu(self)

    def clip(self, low: Any = None, high: Any = None) -> Tensor:
        return clip(self, low, high)

    def sum(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return mean(self, axis, keepdims)

    def var(self, axis: Any = None, keepdims: bool = False, correction: int = 0) -> Tensor:
        return var(self, axis, keepdims, correction)

    def max(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return max(self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return min(self, axis, keepdims)

    def logsumexp(self, axis: Any = None, keepdims: bool = False) -> Tensor:
        return logsumexp(self, axis, keepdims)

    def reshape(self, *shape: Any) -> Tensor:
        """`reshape(2, 3)` or `reshape((2, 3))`; one length may be -1."""
        return reshape(self, shape[0] if len(shape) == 1 else shape)

    def transpose(self, *axes: Any) -> Tensor:
        """`transpose(0, 2, 1)` or `transpose((0, 2, 1))`; `transpose()` reverses all axes."""
        if len(axes) == 1 and not isinstance(axes[0], int):
            axes = axes[0]
        return transpose(self, axes or None)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        return swapaxes(self, axis1, axis2)

    def broadcast_to(self, shape: Any) -> Tensor:
        return broadcast_to(self, shape)

    def squeeze(self, axis: Any = None) -> Tensor:
        return squeeze(self, axis)

    def expand_dims(self, axis: Any) -> Tensor:
        return expand_dims(self, axis)

    @property
    def T(self) -> Tensor:
        """All axes reversed, as in NumPy; of a stack of matrices, `swapaxes(-1, -2)` transposes each."""
        return transpose(self)


for _name, _function in vars(_Operators).items():
    if callable(_function) or isinstance(_function, property):
        if not isinstance(_function, property):
            _function.__qualname__ = f"Tensor.{_name}"
        setattr(Tensor, _name, _function)
