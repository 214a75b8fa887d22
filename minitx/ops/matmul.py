"""Matrix products, and einsum: any sum of products of elements."""
from __future__ import annotations

import functools
import math
import string
from typing import Any

import numpy as np

from minitx.op import Array, Forward, op


@op(broadcasts=True)
def matmul(x: Array, y: Array) -> Forward:
    """
    for: linear maps: every layer of a Transformer is some of them.

    equation:
        z_ij = Σ_k x_ik y_kj      z = x y

    where:
        x  (..., n, k)  or (k,), which stands for one row, and the result has no axis n
        y  (..., k, m)  or (k,), which stands for one column, and the result has no axis m
        z  (..., n, m)  the axes in front broadcast

    by hand:
        >>> matmul([[1, 2], [3, 4]], [1, 10]).numpy()
        array([21., 43.], dtype=float32)

    backward:
        dx = dz yᵀ
        dy = xᵀ dz

    why: x_ik enters z_ij for every j, with weight y_kj: dx_ik = Σ_j dz_ij y_kj. The shapes leave no other choice:
        (n, m) and (k, m) make (n, k) in one way only. (With n = k = m they do: test with sizes that differ.)

    saved: x and y.

    cost: 2 n k m FLOPs forward, twice that backward.

    goes wrong: a transpose forgotten in a test of square matrices goes unseen.

    exercise: matmul
    """
    try:
        z = x @ y
    except ValueError as error:
        raise ValueError(
            "matmul: the last axis of x has the length of the last but one of y (or of its only one), and the axes in "
            f"front broadcast; {x.shape} and {y.shape} were given. Is a transpose missing?"
        ) from error
    X = x[None, :] if x.ndim == 1 else x  # (..., n, k)
    Y = y[:, None] if y.ndim == 1 else y  # (..., k, m)

    def backward(dz: Array, need: Any) -> tuple[Array | None, Array | None]:
        dZ = dz[..., None] if y.ndim == 1 else dz
        dZ = dZ[..., None, :] if x.ndim == 1 else dZ  # (..., n, m)
        dx = dy = None
        if need.x:
            # Z = X Y
            dx = dZ @ Y.swapaxes(-1, -2)  # (..., n, k); of a vector n = 1, an axis in front for the engine to sum
        if need.y:
            # Z = X Y
            if Y.ndim == 2 < X.ndim:  # one Y for the whole stack: one product also sums over it
                rows = math.prod(X.shape[:-1])
                dY = X.reshape(rows, X.shape[-1]).T @ dZ.reshape(rows, dZ.shape[-1])  # (k, m)
            else:
                dY = X.swapaxes(-1, -2) @ dZ  # (..., k, m)
            dy = dY.squeeze(-1) if y.ndim == 1 else dY
        return dx, dy

    return z, backward


@op("operands", broadcasts=True)
def einsum(subscripts: str, *operands: Array) -> Forward:
    """
    for: a product of arrays summed over any axes, which letters name: einsum("bhtd,bhsd->bhts", q, k).

    equation:
        y[output letters] = Σ_(all other letters) Π_i x_i[letters of i]

    where:
        subscripts  the letters of each operand, a comma between, then `->` and those of the result. Without `->` these
                    are the letters that occur once, in alphabetical order. `...` stands for axes without names, which
                    broadcast from the right. A letter that occurs twice in one operand takes its diagonal.

    by hand:
        >>> einsum("i,j->ij", [1, 2], [3, 4]).numpy()
        array([[3., 4.],
               [6., 8.]], dtype=float32)

    backward:
        dx_i = einsum of dy and the other operands, with the letters of x_i as output

    why: x_i enters y linearly, and its factor is the product of the others; the letters that x_i does not have are
        summed. A letter that x_i alone has (and y has not) was summed away: dy is the same for all its values, and is
        repeated. Where a letter occurred twice, all of dx_i outside of the diagonal is 0.

    saved: the operands.
    """
    if not isinstance(subscripts, str):
        raise TypeError('einsum: first the subscripts, as in einsum("ij,jk->ik", x, y)')
    inputs, output = _letters(subscripts, tuple(x.ndim for x in operands))
    try:
        y = np.einsum(_join(inputs, output), *operands, optimize=len(operands) > 1)
    except ValueError as error:
        lengths: dict[str, set[int]] = {}
        for letter, n in ((c, n) for own, x in zip(inputs, operands) for c, n in zip(own, x.shape)):
            lengths.setdefault(letter, set()).update({n} - {1})
        clash = [f"{c!r} stands for {' and '.join(map(str, sorted(n)))}" for c, n in lengths.items() if len(n) > 1]
        shapes = ", ".join(str(x.shape) for x in operands)
        raise ValueError(f"einsum: {', '.join(clash) or error}, in {subscripts!r} with shapes {shapes}") from error

    def backward(dy: Array, need: Any) -> tuple[Array | None, ...]:
        def gradient(i: int) -> Array:
            x, own = operands[i], inputs[i]
            others = [output, *inputs[:i], *inputs[i + 1 :]]
            arrays = [dy, *operands[:i], *operands[i + 1 :]]
            letters = "".join(dict.fromkeys(own))  # each once
            shared = "".join(c for c in letters if any(c in other for other in others))
            g = np.einsum(_join(others, shared), *arrays, optimize=True)
            g = np.expand_dims(g, tuple(j for j, c in enumerate(letters) if c not in shared))
            g = np.broadcast_to(g, np.broadcast_shapes(g.shape, tuple(x.shape[own.index(c)] for c in letters)))
            if letters == own:
                return g
            repeated = tuple(j for j, c in enumerate(letters) if x.shape[own.index(c)] == 1)
            g = g.sum(repeated, keepdims=True)  # a diagonal of length 1 that was broadcast; the rest is the engine's
            dx = np.zeros(x.shape, x.dtype)
            np.einsum(_join([own], letters), dx)[...] = g  # NumPy gives a view of the diagonal
            return dx

        return tuple(gradient(i) if need[i] else None for i in range(len(operands)))

    return y, backward


def _join(inputs: list[str] | tuple[str, ...], output: str) -> str:
    return f"{','.join(inputs)}->{output}"


@functools.lru_cache(maxsize=256)
def _letters(subscripts: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """The letters of each operand and of the result, `...` written out in letters that are still free."""

    def refuse(why: str) -> ValueError:
        return ValueError(f"einsum: {why}, in {subscripts!r} with operands of {', '.join(map(str, ndims))} axes")

    left, arrow, output = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise refuse(f"{len(terms)} terms for {len(ndims)} operands")
    named = [term.replace("...", "", 1) for term in [*terms, output]]
    if not all(c in string.ascii_letters for c in "".join(named)):
        raise refuse("letters, commas, `...` once a term and one `->` are all that may stand there")
    free = [c for c in string.ascii_letters if c not in subscripts]
    unnamed = [ndim - len(names) for ndim, names in zip(ndims, named)]
    for term, n in zip(terms, unnamed):
        if n < 0 or (n > 0 and "..." not in term):
            raise refuse(f"the term {term!r} does not name every axis of its operand (`...` stands for the rest)")
    dots = "".join(free[: max(unnamed, default=0)])
    inputs = tuple(term.replace("...", dots[len(dots) - n :]) for term, n in zip(terms, unnamed))
    if not arrow:
        output = dots + "".join(sorted(c for c in set("".join(named)) if "".join(named).count(c) == 1))
    elif dots and "..." not in output:
        raise refuse("the result has no place for the axes of `...`")
    else:
        output = output.replace("...", dots)
    if len(set(output)) != len(output) or not set(output) <= set("".join(inputs)):
        raise refuse("each letter of the result occurs there once, and in some operand")
    return inputs, output
