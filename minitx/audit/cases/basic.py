"""Cases of the basic ops: elementwise, selecting, reducing, moving, picking, multiplying.

Inputs of ops with kinks come from `apart`, where no two numbers are close to each other or to 0.
"""
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minitx import ops
from minitx.audit.case import Case

Arguments = Callable[[np.random.Generator], tuple[tuple[Any, ...], dict[str, Any]]]


def normal(*shapes: tuple[int, ...], **options: Any) -> Arguments:
    return lambda rng: (tuple(rng.standard_normal(shape) for shape in shapes), options)


def positive(*shapes: tuple[int, ...], **options: Any) -> Arguments:
    return lambda rng: (tuple(rng.uniform(0.5, 2.0, shape) for shape in shapes), options)


def apart(*shapes: tuple[int, ...], **options: Any) -> Arguments:
    """Numbers of both signs, all of them at least 0.1 apart and 0.04 from 0."""

    def make(rng: np.random.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
        sizes = [math.prod(shape) for shape in shapes]
        values = 0.1 * (rng.permutation(sum(sizes)) - sum(sizes) // 2) + 0.04
        return tuple(v.reshape(s) for v, s in zip(np.split(values, np.cumsum(sizes)[:-1]), shapes)), options

    return make


def after(make: Arguments, *more: Any) -> Arguments:
    """The arrays that `make` makes, then the arguments `more`; a function among them is given the generator."""

    def both(rng: np.random.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
        arrays, options = make(rng)
        return (*arrays, *(m(rng) if callable(m) else m for m in more)), options

    return both


def before(first: Any, make: Arguments) -> Arguments:
    def both(rng: np.random.Generator) -> tuple[tuple[Any, ...], dict[str, Any]]:
        arrays, options = make(rng)
        return (first(rng) if callable(first) else first, *arrays), options

    return both


def booleans(*shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.permutation(np.arange(math.prod(shape)) % 2 == 0).reshape(shape)


def integers(high: int, *shape: int) -> Callable[[np.random.Generator], Any]:
    return lambda rng: rng.integers(0, high, shape)


ARITHMETIC = [
    Case("add", "", normal((2, 3), (2, 3)), None, lambda torch, x, y: x + y),
    Case("add", "broadcast", normal((2, 3, 5), (3, 1)), None, lambda torch, x, y: x + y),
    Case("sub", "", normal((2, 3), (2, 3)), lambda x, y: x + -y, lambda torch, x, y: x - y),
    Case("sub", "broadcast", normal((5,), (2, 1, 5)), lambda x, y: x + -y, lambda torch, x, y: x - y),
    Case("mul", "", normal((2, 3), (2, 3)), None, lambda torch, x, y: x * y),
    Case("mul", "broadcast", normal((2, 1), (3, 2, 5)), None, lambda torch, x, y: x * y),
    Case("div", "", positive((2, 3), (2, 3)), lambda x, y: x * y**-1, lambda torch, x, y: x / y),
    Case("div", "broadcast", positive((2, 3), ()), lambda x, y: x * y**-1, lambda torch, x, y: x / y),
    Case("neg", "", normal((2, 3)), lambda x: 0 - x, lambda torch, x: -x),
    Case(
        "power", "", positive((2, 3), (2, 3)), lambda x, y: ops.exp(y * ops.log(x)), lambda torch, x, y: x**y
    ),
    Case(
        "power", "broadcast", positive((2, 3), (5, 1, 1)), lambda x, y: ops.exp(y * ops.log(x)),
        lambda torch, x, y: x**y,
    ),
    Case("power", "y=2", after(positive((2, 3)), 2.0), lambda x, y: x * x, lambda torch, x, y: x**y),
    Case("power", "y=-3", after(positive((2, 3)), -3.0), lambda x, y: 1 / (x * x * x), lambda torch, x, y: x**y),
    Case("power", "x=2", before(2.0, normal((2, 3))), lambda x, y: ops.exp(y * math.log(2)), lambda torch, x, y: x**y),
]  # fmt: skip

EXPONENTIAL = [
    Case("exp", "", normal((2, 3)), lambda x: math.e**x, lambda torch, x: torch.exp(x)),
    Case("log", "", positive((2, 3)), None, lambda torch, x: torch.log(x)),
    Case("sqrt", "", positive((2, 3)), lambda x: x**0.5, lambda torch, x: torch.sqrt(x)),
    Case("rsqrt", "", positive((2, 3)), lambda x: 1 / ops.sqrt(x), lambda torch, x: torch.rsqrt(x)),
]


def gelu_of_smaller(x: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        return 0.5 * x * (1 + ops.erf(x * math.sqrt(0.5)))
    return 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def torch_gelu(torch: Any, x: Any, approximate: str = "none") -> Any:
    return torch.nn.functional.gelu(x, approximate=approximate)


ACTIVATION = [
    Case("tanh", "", normal((2, 3)), lambda x: 1 - 2 / (1 + ops.exp(2 * x)), lambda torch, x: torch.tanh(x)),
    Case("sigmoid", "", normal((2, 3)), lambda x: 1 / (1 + ops.exp(-x)), lambda torch, x: torch.sigmoid(x)),
    Case("erf", "", normal((5, 7)), None, lambda torch, x: torch.erf(x)),
    Case("relu", "", apart((2, 3)), lambda x: ops.maximum(x, 0), lambda torch, x: torch.relu(x)),
    Case("gelu", "", normal((5, 7)), gelu_of_smaller, torch_gelu),
    Case("gelu", 'approximate="tanh"', normal((5, 7), approximate="tanh"), gelu_of_smaller, torch_gelu),
    Case("silu", "", normal((2, 3)), lambda x: x * ops.sigmoid(x), lambda torch, x: torch.nn.functional.silu(x)),
]

SELECTION = [
    Case("abs", "", apart((2, 3)), lambda x: ops.maximum(x, -x), lambda torch, x: torch.abs(x)),
    Case(
        "maximum", "", apart((2, 3), (2, 3)), lambda x, y: (x + y + abs(x - y)) / 2,
        lambda torch, x, y: torch.maximum(x, y),
    ),
    Case(
        "maximum", "broadcast", apart((2, 3, 5), (3, 1)), lambda x, y: x + ops.relu(y - x),
        lambda torch, x, y: torch.maximum(x, y),
    ),
    Case(
        "minimum", "", apart((2, 3), (2, 3)), lambda x, y: -ops.maximum(-x, -y),
        lambda torch, x, y: torch.minimum(x, y),
    ),
    Case(
        "minimum", "broadcast", apart((5,), (2, 3, 1)), lambda x, y: -ops.maximum(-x, -y),
        lambda torch, x, y: torch.minimum(x, y),
    ),
    Case(
        "where", "", before(booleans(2, 3), normal((2, 3), (2, 3))), lambda c, x, y: x * c + y * ~c,
        lambda torch, c, x, y: torch.where(torch.as_tensor(c), x, y),
    ),
    Case(
        "where", "broadcast", before(booleans(5, 1, 3), normal((2, 3), (1,))), lambda c, x, y: x * c + y * ~c,
        lambda torch, c, x, y: torch.where(torch.as_tensor(c), x, y),
    ),
    Case(
        "clip", "", after(apart((5, 7)), -0.5, 0.8), lambda x, low, high: ops.minimum(ops.maximum(x, low), high),
        lambda torch, x, low, high: torch.clamp(x, low, high),
    ),
    Case(
        "clip", "low", apart((5, 7), low=-0.5), lambda x, low: ops.maximum(x, low),
        lambda torch, x, low: torch.clamp(x, low),
    ),
]  # fmt: skip


def count(x: Any, axis: Any) -> int:
    return math.prod(x.shape if axis is None else (x.shape[i] for i in np.atleast_1d(axis)))


def mean_of_smaller(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return ops.sum(x, axis, keepdims) / count(x, axis)


def var_of_smaller(x: Any, axis: Any = None, keepdims: bool = False, correction: int = 0) -> Any:
    centred = x - ops.mean(x, axis, True)
    return ops.sum(centred * centred, axis, keepdims) / (count(x, axis) - correction)


def logsumexp_of_smaller(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return ops.log(ops.sum(ops.exp(x), axis, keepdims))


def torch_axes(x: Any, axis: Any) -> Any:
    return tuple(range(x.ndim)) if axis is None else axis


def reduction(name: str, make: Callable[..., Arguments], of_smaller: Any, torch: Any) -> list[Case]:
    return [
        Case(name, "", make((2, 3, 5)), of_smaller, torch),
        Case(name, "axis=0", make((2, 3, 5), axis=0), of_smaller, torch),
        Case(name, "axis=-1, keepdims", make((2, 3, 5), axis=-1, keepdims=True), of_smaller, torch),
        Case(name, "axis=(0, -1)", make((2, 3, 5), axis=(0, -1)), of_smaller, torch),
        Case(name, "keepdims", make((2, 3), keepdims=True), of_smaller, torch),
    ]


REDUCTION = [
    *reduction(
        "sum", normal, lambda x, axis=None, keepdims=False: ops.mean(x, axis, keepdims) * count(x, axis),
        lambda torch, x, axis=None, keepdims=False: torch.sum(x, torch_axes(x, axis), keepdims),
    ),
    *reduction(
        "mean", normal, mean_of_smaller,
        lambda torch, x, axis=None, keepdims=False: torch.mean(x, torch_axes(x, axis), keepdims),
    ),
    *reduction(
        "var", normal, var_of_smaller,
        lambda torch, x, axis=None, keepdims=False: torch.var(x, axis, correction=0, keepdim=keepdims),
    ),
    Case(
        "var", "correction=1", normal((2, 3, 5), axis=1, correction=1), var_of_smaller,
        lambda torch, x, axis, correction: torch.var(x, axis, correction=correction),
    ),
    *reduction(
        "max", apart, lambda x, axis=None, keepdims=False: -ops.min(-x, axis, keepdims),
        lambda torch, x, axis=None, keepdims=False: torch.amax(x, torch_axes(x, axis), keepdims),
    ),
    *reduction(
        "min", apart, lambda x, axis=None, keepdims=False: -ops.max(-x, axis, keepdims),
        lambda torch, x, axis=None, keepdims=False: torch.amin(x, torch_axes(x, axis), keepdims),
    ),
    *reduction(
        "logsumexp", normal, logsumexp_of_smaller,
        lambda torch, x, axis=None, keepdims=False: torch.logsumexp(x, torch_axes(x, axis), keepdims),
    ),
]  # fmt: skip


def torch_pad(torch: Any, x: Any, width: Any, value: float = 0.0) -> Any:
    pairs = np.broadcast_to(width, (x.ndim, 2))
    return torch.nn.functional.pad(x, pairs[::-1].ravel().tolist(), value=value)


SHAPE = [
    Case("reshape", "", after(normal((2, 3, 5)), (5, 6)), None, lambda torch, x, shape: x.reshape(shape)),
    Case("reshape", "-1", after(normal((2, 3, 5)), (3, -1)), None, lambda torch, x, shape: x.reshape(shape)),
    Case(
        "transpose", "", normal((2, 3, 5)), lambda x: ops.einsum("abc->cba", x), lambda torch, x: x.permute(2, 1, 0)
    ),
    Case(
        "transpose", "axes", after(normal((2, 3, 5)), (1, -1, 0)), lambda x, axes: ops.einsum("abc->bca", x),
        lambda torch, x, axes: x.permute(axes),
    ),
    Case(
        "swapaxes", "", after(normal((2, 3, 5)), 0, -1), lambda x, a, b: ops.transpose(x, (2, 1, 0)),
        lambda torch, x, a, b: x.swapaxes(a, b),
    ),
    Case(
        "broadcast_to", "", after(normal((3, 1)), (2, 3, 5)), lambda x, shape: x * np.ones(shape),
        lambda torch, x, shape: torch.broadcast_to(x, shape),
    ),
    Case("squeeze", "", normal((1, 3, 1)), lambda x: ops.reshape(x, 3), lambda torch, x: x.squeeze()),
    Case(
        "squeeze", "axis", after(normal((1, 3, 1)), -1), lambda x, axis: ops.reshape(x, (1, 3)),
        lambda torch, x, axis: x.squeeze(axis),
    ),
    Case(
        "expand_dims", "", after(normal((2, 3)), (0, -1)), lambda x, axis: ops.reshape(x, (1, 2, 3, 1)),
        lambda torch, x, axis: x[None, ..., None],
    ),
    Case("concatenate", "", normal((2, 3), (5, 3)), None, lambda torch, *xs: torch.cat(xs)),
    Case(
        "concatenate", "axis=-1", normal((2, 3), (2, 1), (2, 5), axis=-1),
        lambda *xs, axis: ops.concatenate([x.T for x in xs]).T, lambda torch, *xs, axis: torch.cat(xs, axis),
    ),
    Case(
        "stack", "", normal((2, 3), (2, 3)), lambda *xs: ops.concatenate([x[None] for x in xs]),
        lambda torch, *xs: torch.stack(xs),
    ),
    Case(
        "stack", "axis=-1", normal((2, 3), (2, 3), (2, 3), axis=-1),
        lambda *xs, axis: ops.concatenate([x[..., None] for x in xs], axis=2),
        lambda torch, *xs, axis: torch.stack(xs, axis),
    ),
    Case(
        "split", "", after(normal((6, 5)), 3), lambda x, n: (x[:2], x[2:4], x[4:]),
        lambda torch, x, n: torch.tensor_split(x, n),
    ),
    Case(
        "split", "cuts, axis=1", after(normal((2, 7)), [3, 5], 1),
        lambda x, cuts, axis: (x[:, :3], x[:, 3:5], x[:, 5:]),
        lambda torch, x, cuts, axis: torch.tensor_split(x, cuts, axis),
    ),
    Case("pad", "", after(normal((2, 3)), 2), None, torch_pad),
    Case("pad", "pairs", after(normal((2, 3)), ((1, 0), (2, 5)), 0.7), None, torch_pad),
]  # fmt: skip


def picked(label: str, shape: tuple[int, ...], index: Any, of_smaller: Any = None, in_torch: bool = True) -> Case:
    def torch_index(torch: Any, i: Any) -> Any:
        if isinstance(i, tuple):
            return tuple(torch_index(torch, part) for part in i)
        return torch.as_tensor(i) if isinstance(i, np.ndarray) else i

    torch_pick = (lambda torch, x, i: x[torch_index(torch, i)]) if in_torch else None
    return Case("getitem", label, after(normal(shape), lambda rng: index), of_smaller, torch_pick)


ROWS, COLUMNS = np.array([1, 0, 1, 1]), np.array([4, 2, 4, 0])

INDEXING = [
    picked("slices", (5, 7), (slice(1, 4), slice(None, None, 3))),
    picked("reversed", (5, 7), (slice(None, None, -2), 3), in_torch=False),  # PyTorch has no negative steps
    picked("integers", (2, 3), (1, 2), lambda x, i: ops.sum(x * np.eye(2, 3, k=1) * [[0], [1]])),
    picked("ellipsis, newaxis", (2, 3, 5), (Ellipsis, None, 4)),
    picked("repeats", (2, 5), ROWS, lambda x, i: ops.matmul(np.eye(2)[ROWS], x)),
    picked("pairs, repeats", (2, 5), (ROWS, COLUMNS), lambda x, i: ops.sum(x[ROWS] * np.eye(5)[COLUMNS], -1)),
    picked("mask", (2, 3), np.array([[True, False, True], [False, True, True]])),
    picked("slice and array", (2, 5, 3), (slice(None), COLUMNS, 1)),
    Case(
        "take_along_axis", "", after(normal((2, 5)), integers(5, 2, 7)),
        lambda x, i: ops.matmul(np.eye(5)[i], x[..., None])[..., 0],
        lambda torch, x, i: torch.take_along_dim(x, torch.as_tensor(i), -1),
    ),
    Case(
        "take_along_axis", "axis=0, broadcast", after(normal((5, 3)), integers(5, 7, 1), 0), None,
        lambda torch, x, i, axis: torch.take_along_dim(x, torch.as_tensor(i), axis),
    ),
]  # fmt: skip


def product(label: str, x: tuple[int, ...], y: tuple[int, ...], subscripts: str) -> Case:
    return Case(
        "matmul", label, normal(x, y), lambda x, y: ops.einsum(subscripts, x, y), lambda torch, x, y: torch.matmul(x, y)
    )


def contraction(label: str, subscripts: str, *shapes: tuple[int, ...], of_smaller: Any = None) -> Case:
    composition = (lambda s, *xs: of_smaller(*xs)) if of_smaller else None
    return Case("einsum", label, before(subscripts, normal(*shapes)), composition, lambda torch, *a: torch.einsum(*a))


MATMUL = [
    product("", (2, 3), (3, 5), "ij,jk->ik"),
    product("vector, vector", (3,), (3,), "i,i->"),
    product("vector, matrix", (3,), (3, 5), "j,jk->k"),
    product("matrix, vector", (2, 3), (3,), "ij,j->i"),
    product("stack, vector", (7, 2, 3), (3,), "bij,j->bi"),
    product("vector, stack", (3,), (7, 3, 5), "j,bjk->bk"),
    product("stack, matrix", (7, 2, 3), (3, 5), "bij,jk->bik"),
    product("matrix, stack", (2, 3), (7, 3, 5), "ij,bjk->bik"),
    product("broadcast stacks", (7, 1, 2, 3), (5, 3, 5), "...ij,...jk->...ik"),
    contraction(
        "attention scores", "bhtd,bhsd->bhts", (2, 3, 5, 7), (2, 3, 11, 7), of_smaller=lambda q, k: q @ k.swapaxes(2, 3)
    ),
    contraction("implicit", "ij,jk", (2, 3), (3, 5), of_smaller=lambda x, y: x @ y),
    contraction(
        "letters of one operand", "ij,jk->k", (2, 3), (3, 5), of_smaller=lambda x, y: ops.sum(x @ y, 0)
    ),
    contraction("sum of all", "ij->", (2, 3), of_smaller=lambda x: ops.sum(x)),
    contraction("diagonal", "iji->ij", (3, 2, 3)),
    contraction(
        "a diagonal of length 1, broadcast", "jii,ij->i", (2, 1, 1), (3, 2), of_smaller=lambda x, y: y @ x[:, 0, 0]
    ),
    contraction("trace", "ii", (5, 5), of_smaller=lambda x: ops.sum(x * np.eye(5))),
    contraction("ellipsis", "...i,ij->...j", (2, 7, 3), (3, 5), of_smaller=lambda x, y: x @ y),
    contraction(
        "ellipsis, broadcast", "...i,...i->...", (2, 1, 3), (5, 3), of_smaller=lambda x, y: ops.sum(x * y, -1)
    ),
    contraction("three operands", "ij,jk,kl->il", (2, 3), (3, 5), (5, 7), of_smaller=lambda x, y, z: x @ y @ z),
]  # fmt: skip

CASES: list[Case] = [
    *ARITHMETIC, *EXPONENTIAL, *ACTIVATION, *SELECTION, *REDUCTION, *SHAPE, *INDEXING, *MATMUL,
]  # fmt: skip
