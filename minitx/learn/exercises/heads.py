"""Heads: split the features, work on each part, merge; a reshape alone would mix the positions."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.op import Array


def draw(rng: Rng, B: int, T: int, H: int, d: int, e: int) -> Arguments:
    return {"x": rng.standard_normal((B, T, H * d)), "w": rng.standard_normal((H, d, e))}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 3, 7, 2, 5, 11)


def adversarial(rng: Rng) -> Cases:
    one, thin, same = draw(rng, 2, 3, 1, 5, 7), draw(rng, 2, 3, 5, 1, 1), draw(rng, 3, 3, 3, 3, 3)
    return {"one-head": one, "one-feature": thin, "same": same}


def per_head(x: Array, w: Array) -> Any:
    B, T, _ = x.shape
    H, d, e = w.shape
    h = x.reshape(B, T, H, d).swapaxes(1, 2)  # split: (B, H, T, d)
    o = h @ w  # (B, H, T, e)
    y = o.swapaxes(1, 2).reshape(B, T, H * e)  # merge

    def backward(dy: Array) -> tuple[Array, Array]:
        # the merge's backward is a split, and the split's a merge
        do = dy.reshape(B, T, H, e).swapaxes(1, 2)  # (B, H, T, e)
        dh = do @ w.swapaxes(1, 2)  # (B, H, T, d)
        dw = (h.swapaxes(2, 3) @ do).sum(0)  # (H, d, e)
        dx = dh.swapaxes(1, 2).reshape(B, T, H * d)
        return dx, dw

    return y, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def split(x: Array, H: int) -> Array:
    B, T, n = x.shape
    return x.reshape(B, T, H, n // H).swapaxes(1, 2)


def merge(h: Array) -> Array:
    B, H, T, d = h.shape
    return h.swapaxes(1, 2).reshape(B, T, H * d)


def bare_split(x: Array, H: int) -> Array:
    B, T, n = x.shape
    return x.reshape(B, H, T, n // H)


def bare_merge(h: Array) -> Array:
    B, H, T, d = h.shape
    return h.reshape(B, T, H * d)


def made_of(split: Any, merge: Any, unsplit: Any, unmerge: Any, weight: Any = None) -> Any:
    """All four moves as given; unsplit and unmerge are for backward. `weight` makes dw of h and do."""

    def function(x: Array, w: Array) -> Any:
        h = split(x, len(w))

        def backward(dy: Array) -> Any:
            do = unmerge(dy, len(w))
            parts = h.swapaxes(2, 3) @ do
            return unsplit(do @ w.swapaxes(1, 2)), parts.sum(0) if weight is None else weight(parts)

        return merge(h @ w), backward

    return function


def forward(x: Array, w: Array) -> Array:
    return merge(split(x, len(w)) @ w)


def heads_next_to_each_other(x: Array, H: int) -> Array:
    """Feature j of the row belongs to head j % H."""
    B, T, n = x.shape
    return x.reshape(B, T, n // H, H).transpose(0, 3, 1, 2)


def and_back(h: Array) -> Array:
    B, H, T, d = h.shape
    return h.transpose(0, 2, 3, 1).reshape(B, T, H * d)


def one_matrix(parts: Array) -> Any:
    """The same dw for every head: that of all of them."""
    return np.tile(parts.sum((0, 1)), (parts.shape[1], 1, 1))


def einsum(x: Array, w: Array) -> Any:
    B, T, _ = x.shape
    H, d, e = w.shape
    X = x.reshape(B, T, H, d)

    def backward(dy: Array) -> Any:
        DY = dy.reshape(B, T, H, e)
        return np.einsum("bthe,hde->bthd", DY, w).reshape(x.shape), np.einsum("bthd,bthe->hde", X, DY)

    return np.einsum("bthd,hde->bthe", X, w).reshape(B, T, H * e), backward


def block_diagonal(x: Array, w: Array) -> Any:
    """One large matrix with the heads' matrices on its diagonal."""
    H, d, e = w.shape
    W = np.zeros((H * d, H * e))
    for h in range(H):
        W[h * d : (h + 1) * d, h * e : (h + 1) * e] = w[h]

    def backward(dy: Array) -> Any:
        dW = x.reshape(-1, H * d).T @ dy.reshape(-1, H * e)
        dw = np.stack([dW[h * d : (h + 1) * d, h * e : (h + 1) * e] for h in range(H)])
        return dy @ W.T, dw

    return x @ W, backward


def slices(x: Array, w: Array) -> Any:
    parts = np.split(x, len(w), -1)

    def backward(dy: Array) -> Any:
        dparts = np.split(dy, len(w), -1)
        dx = np.concatenate([dp @ m.T for dp, m in zip(dparts, w)], -1)
        dw = [p.reshape(-1, p.shape[-1]).T @ dp.reshape(-1, dp.shape[-1]) for p, dp in zip(parts, dparts)]
        return dx, np.stack(dw)

    return np.concatenate([p @ m for p, m in zip(parts, w)], -1), backward


EXERCISE = Exercise(
    slug="heads",
    part=1,
    minutes=30,
    needs=("matmul",),
    idioms=("x.reshape(B, T, H, d)", "x.swapaxes(1, 2)", "w.swapaxes(-1, -2)"),
    equation="h = split(x);  o_bht = h_bht w_h;  y = merge(o)",
    shapes={
        "x": "(B, T, H * d)", "w": "(H, d, e)", "h": "(B, H, T, d)", "o": "(B, H, T, e)",
        "y": "(B, T, H * e)", "dy": "(B, T, H * e)",
    },
    function="per_head",
    signature="x, w",
    gradients=("x", "w"),
    solution=per_head,
    arguments=arguments,
    adversarial=adversarial,
    mutants={
        "bare-reshapes": made_of(bare_split, bare_merge, bare_merge, bare_split),
        "bare-split": made_of(bare_split, merge, bare_merge, split),
        "bare-merge": made_of(split, bare_merge, merge, bare_split),
        "bare-merge-backward": made_of(split, merge, bare_merge, split),
        "interleaved": made_of(heads_next_to_each_other, and_back, and_back, heads_next_to_each_other),
        "batch-not-summed": made_of(split, merge, merge, split, lambda parts: parts),
        "batch-mean": made_of(split, merge, merge, split, lambda parts: parts.mean(0)),
        "one-matrix": made_of(split, merge, merge, split, one_matrix),
    },
    unusual={"einsum": einsum, "block-diagonal": block_diagonal, "slices": slices},
)  # fmt: skip
