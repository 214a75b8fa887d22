"""Picking elements: backward puts each gradient back where its element came from, and adds where two meet."""
from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from minitx.op import Array, Forward, op
from minitx.tensor import Tensor


@op("x")
def getitem(x: Array, index: Any) -> Forward:
    """
    for: x[index], with all that NumPy takes: integers, slices, `...`, None for a new axis, integer arrays, masks.

    equation:
        y = x[index]

    by hand:
        >>> y, backward = getitem.rule(np.array([5.0, 6.0, 7.0]), [0, 2, 2])
        >>> y, backward(np.array([1.0, 10.0, 100.0]))
        (array([5., 7., 7.]), (array([  1.,   0., 110.]),))

    backward:
        dx_i = Σ dy_j over all j at which y_j is x_i

    why: picking is a product with a matrix of zeros and ones, y = P x, so dx = Pᵀ dy: an element that was picked twice
        gets both gradients, one that was not picked gets 0.

    saved: the index (arrays in it are copied) and the shape of x.

    goes wrong: `dx[index] = dy` and `dx[index] += dy` keep one of several gradients for the same element; np.add.at
        adds them.
    """
    index = tuple(_part(i) for i in index) if isinstance(index, tuple) else (_part(index),)
    repeats = any(isinstance(i, np.ndarray) and i.dtype != np.bool_ for i in index)
    shape, dtype = x.shape, x.dtype

    def backward(dy: Array) -> Array:
        dx = np.zeros(shape, dtype)
        if repeats:
            np.add.at(dx, index, dy)
        else:
            dx[index] = dy
        return dx

    return x[index], backward


def _part(i: Any) -> Any:
    """One entry of an index; an array among them is copied, so that it stays what it was."""
    if i is None or i is Ellipsis or isinstance(i, slice | int | np.integer):
        return i
    array = i.numpy() if isinstance(i, Tensor) else np.array(i)
    return array.astype(np.intp) if array.size == 0 and isinstance(i, list) else array  # x[[]]


@op("x")
def take_along_axis(x: Array, indices: Any, axis: int = -1) -> Forward:
    """
    for: one or more elements of every row, each row with indices of its own: the log-probability of the right token.

    equation:
        y[b, j] = x[b, indices[b, j]]      for axis = -1

    where:
        indices  integers, with as many axes as x; the other axes broadcast

    backward:
        dx_i = Σ dy_j over all j at which y_j is x_i

    saved: the indices (copied) and the shape of x.
    """
    indices = np.array(indices)
    if indices.ndim != x.ndim or indices.dtype.kind not in "iu":
        raise IndexError(
            f"take_along_axis: indices are integers with as many axes as x, which has {x.ndim}; {indices.dtype} with "
            f"{indices.ndim} arrived; indices[..., None] adds one"
        )
    place = list(np.ix_(*(np.arange(n) for n in x.shape)))  # every axis runs along itself ...
    place[normalize_axis_index(axis, x.ndim)] = indices  # ... but this one
    return getitem.definition(x, tuple(place))  # type: ignore[no-any-return]
