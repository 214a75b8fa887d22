"""Ops that only move numbers: each backward moves them back (and adds where forward repeated)."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.op import Array, Forward, op
from minitx.ops import checks
from minitx.ops.checks import integers, number, whole

Shape = int | tuple[int, ...]


@op("x")
def reshape(x: Array, shape: Shape) -> Forward:
    """
    for: another shape, the elements in the same order (the last index fastest); one length may be -1.

    backward:
        dx = dy in the shape of x

    goes wrong: reshape does not exchange axes. (B, T, H, d) becomes (B, H, T, d) by `transpose`; a reshape gives the
        right shape with the tokens of all heads mixed, and a toy task learns in spite of it.
    """
    before = x.shape
    try:
        y = x.reshape(shape)
    except ValueError as error:
        raise ValueError(
            f"reshape keeps the number of elements, {x.size} of shape {before}, which {shape} does not hold; one "
            "length may be -1, for what remains"
        ) from error

    def backward(dy: Array) -> Array:
        return dy.reshape(before)

    return y, backward


@op("x")
def transpose(x: Array, axes: tuple[int, ...] | None = None) -> Forward:
    """
    for: axes in another order: axis i of y is axis axes[i] of x; None reverses them all.

    backward:
        dx = dy with the inverse order
    """

    axes = checks.axes(axes)
    try:
        y = x.transpose(axes)
    except np.exceptions.AxisError:
        raise
    except ValueError as error:
        raise ValueError(f"transpose: each of the {x.ndim} axes of x once, in the new order, not {axes}") from error

    def backward(dy: Array) -> Array:
        if axes is None:
            return dy.transpose()
        source = [a % x.ndim for a in axes]
        return dy.transpose([source.index(i) for i in range(x.ndim)])

    return y, backward


@op("x")
def swapaxes(x: Array, axis1: int, axis2: int) -> Forward:
    """
    for: exchanging two axes: xᵀ in every matrix of a stack is swapaxes(x, -1, -2).

    backward:
        dx = dy with the same two exchanged
    """

    def backward(dy: Array) -> Array:
        return dy.swapaxes(axis1, axis2)

    return x.swapaxes(axis1, axis2), backward


@op("x", broadcasts=True)
def broadcast_to(x: Array, shape: Shape) -> Forward:
    """
    for: repeating along axes of length 1 and along new axes in front, without a copy.

    backward:
        dx = Σ dy over the axes along which x was repeated      (the engine's part, as for every op that broadcasts)
    """

    def backward(dy: Array) -> Array:
        return dy

    return np.broadcast_to(x, shape), backward


@op
def squeeze(x: Array, axis: Shape | None = None) -> Forward:
    """
    for: leaving out axes of length 1: the given ones, or all.

    backward:
        dx = dy in the shape of x
    """
    before = x.shape

    def backward(dy: Array) -> Array:
        return dy.reshape(before)

    try:
        y = x.squeeze(checks.axes(axis))
    except np.exceptions.AxisError:
        raise
    except ValueError as error:
        raise ValueError(f"squeeze takes away axes of length 1, and axis {axis} of {before} is longer") from error
    return y, backward


@op("x")
def expand_dims(x: Array, axis: Shape) -> Forward:
    """
    for: new axes of length 1, at these places of the result.

    backward:
        dx = dy in the shape of x
    """
    before = x.shape

    def backward(dy: Array) -> Array:
        return dy.reshape(before)

    return np.expand_dims(x, axis), backward


@op
def concatenate(*xs: Array, axis: int = 0) -> Forward:
    """
    for: arrays one after the other along an axis: concatenate(a, b, axis=1) or concatenate([a, b], axis=1).

    backward:
        dx_i = the piece of dy that came from x_i
    """
    if axis is None:
        raise TypeError("concatenate: axis is one integer; to join flattened arrays, reshape them to -1 first")
    try:
        y = np.concatenate(xs, axis=axis)
    except np.exceptions.AxisError:
        raise
    except ValueError as error:
        raise ValueError(f"concatenate: some arrays that differ along axis {axis} only; not {_shapes(xs)}") from error
    ends = np.cumsum([x.shape[axis] for x in xs])

    def backward(dy: Array) -> tuple[Array, ...]:
        return tuple(np.split(dy, ends[:-1], axis))

    return y, backward


@op
def stack(*xs: Array, axis: int = 0) -> Forward:
    """
    for: arrays of one shape side by side along a new axis: stack(a, b) or stack([a, b]).

    backward:
        dx_i = slice i of dy along that axis
    """

    if len({x.shape for x in xs}) != 1:
        raise ValueError(f"stack: at least one array, and all of one shape, not {_shapes(xs)}")

    def backward(dy: Array) -> tuple[Array, ...]:
        return tuple(np.moveaxis(dy, axis, 0))

    return np.stack(xs, axis=axis), backward


@op("x")
def split(x: Array, sections: int | list[int] | tuple[int, ...], axis: int = 0) -> Forward:
    """
    for: the inverse of concatenate: an equal number of `sections`, or cuts before the given indices.

    by hand:
        >>> [y.shape for y in split(np.zeros((7, 2)), [3, 5])]
        [(3, 2), (2, 2), (2, 2)]

    backward:
        dx = the dy_i, concatenated (0 for pieces that nobody used)
    """
    if np.ndim(sections) == 0:
        n = whole(sections, "split: the number of sections")
        if x.shape[axis] % n:
            raise ValueError(f"split: {n} equal sections of {x.shape[axis]}? give the cuts instead, split(x, [2, 5])")
    ys = tuple(np.split(x, sections, axis))
    if sum(y.shape[axis] for y in ys) != x.shape[axis]:
        raise ValueError(f"split: the cuts go up from 0 to {x.shape[axis]} at most; {sections} were given")

    def backward(dys: tuple[Array, ...]) -> Array:
        return np.concatenate(dys, axis)

    return ys, backward


@op("x")
def pad(x: Array, width: Any, value: float = 0.0) -> Forward:
    """
    for: a margin filled with `value`.

    where:
        width  one number for everywhere, a pair (before, after) for every axis, or such a pair per axis

    backward:
        dx = dy without the margin
    """
    width = np.broadcast_to(integers(width, "pad: widths"), (x.ndim, 2))
    number(value, "pad: value")
    if (width < 0).any():
        raise ValueError(f"pad: widths are not negative, and {width.tolist()} were given; use a slice to cut")
    y = np.full([b + n + a for n, (b, a) in zip(x.shape, width)], value, x.dtype)
    inside = tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, width))
    y[inside] = x

    def backward(dy: Array) -> Array:
        return dy[inside]

    return y, backward


def _shapes(xs: tuple[Array, ...]) -> str:
    return ", ".join(str(x.shape) for x in xs) or "none at all"
