"""A tied table: it is read on the way in and multiplied with on the way out, and both uses send a gradient back."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    ids = rng.integers(0, 6, (3, 4))
    ids[0, 1] = ids[1, 2] = 2  # at least one id twice
    return {"ids": ids, "weight": rng.standard_normal((7, 5))}


def adversarial(rng: Rng) -> Cases:
    return {
        "all-one": {"ids": np.full((2, 3), 4), "weight": rng.standard_normal((7, 5))},
        "identity": {"ids": np.array([[0]]), "weight": np.eye(2)},
        "square": {"ids": np.array([[3, 0, 3]]), "weight": rng.standard_normal((5, 5))},
    }


def terms(dy: Array, ids: Array, weight: Array) -> dict[str, list[Array]]:
    h = np.tanh(weight[ids])
    looked_up = np.zeros(weight.shape)
    np.add.at(looked_up, ids, dy @ weight * (1 - h * h))
    return {"weight": [looked_up, into_logits(dy, ids, weight)]}


def intermediates(dy: Array, ids: Array, weight: Array) -> dict[str, Array]:
    h = np.tanh(weight[ids])
    return {"h": h, "dh": dy @ weight, "de": dy @ weight * (1 - h * h)}


def tied(ids: Array, weight: Array) -> Any:
    d = weight.shape[1]
    e = weight[ids]  # (B, T, d)
    h = np.tanh(e)  # what stands for the model
    y = h @ weight.T  # (B, T, V)

    def backward(dy: Array) -> Array:
        # y = h Eᵀ
        dweight = dy.reshape(-1, len(weight)).T @ h.reshape(-1, d)  # term 2: as the last layer
        dh = dy @ weight
        # h = tanh(e)
        de = dh * (1 - h * h)
        # e = E[ids]
        np.add.at(dweight, ids, de)  # term 1: as the table that was read
        return dweight

    return y, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(ids: Array, weight: Array) -> Array:
    return np.tanh(weight[ids]) @ weight.T


def into_logits(dy: Array, ids: Array, weight: Array) -> Array:
    h = np.tanh(weight[ids])
    return dy.reshape(-1, len(weight)).T @ h.reshape(-1, weight.shape[1])


def kept_one(dy: Array, ids: Array, weight: Array) -> Array:
    h = np.tanh(weight[ids])
    dE = into_logits(dy, ids, weight)
    dE[ids] += dy @ weight * (1 - h * h)
    return dE


def assigned(dy: Array, ids: Array, weight: Array) -> Array:
    """The rows that were read lose what the last layer had sent."""
    h = np.tanh(weight[ids])
    looked_up = np.zeros(weight.shape)
    np.add.at(looked_up, ids, dy @ weight * (1 - h * h))
    read = np.isin(np.arange(len(weight)), ids)[:, None]
    return np.where(read, looked_up, into_logits(dy, ids, weight))


def through_twice(slope: Any, out: Any) -> Any:
    def backward(dy: Array, ids: Array, weight: Array) -> Any:
        h = np.tanh(weight[ids])
        dE = dy.reshape(-1, len(weight)).T @ out(weight[ids], h).reshape(-1, weight.shape[1])
        np.add.at(dE, ids, dy @ weight * slope(h))
        return dE

    return with_backward(forward, backward)


def averaged(dy: Array, ids: Array, weight: Array) -> Array:
    first, second = terms(dy, ids, weight)["weight"]
    return (first + second) / 2


def one_hot(ids: Array, weight: Array) -> Any:
    """Both uses as matrix products."""
    O = (ids.ravel()[:, None] == np.arange(len(weight))).astype(float)
    h = np.tanh(O @ weight)

    def backward(dy: Array) -> Any:
        D = dy.reshape(-1, len(weight))
        return D.T @ h + O.T @ (D @ weight * (1 - h**2))

    return (h @ weight.T).reshape(*ids.shape, -1), backward


def token_by_token(ids: Array, weight: Array) -> Any:
    def backward(dy: Array) -> Array:
        dE = np.zeros(weight.shape)
        for n in np.ndindex(ids.shape):
            h = np.tanh(weight[ids[n]])
            dE += np.outer(dy[n], h)
            dE[ids[n]] += (weight.T @ dy[n]) * (1 - h * h)
        return dE

    return forward(ids, weight), backward


EXERCISE = Exercise(
    slug="tied-embedding",
    part=1,
    minutes=30,
    needs=("embedding", "linear", "fan-out"),
    idioms=("np.add.at(dE, ids, de)",),
    equation="e = E[ids];  h = tanh(e);  y = h Eᵀ",
    shapes={"ids": "(B, T) int", "weight": "(V, d)  E", "e, h": "(B, T, d)", "y": "(B, T, V)", "dy": "(B, T, V)"},
    function="tied",
    signature="ids, weight",
    gradients=("weight",),
    solution=tied,
    arguments=arguments,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "kept-one": with_backward(forward, kept_one),
        "assigned": with_backward(forward, assigned),
        "averaged": with_backward(forward, averaged),
        "no-slope": through_twice(lambda h: 1.0, lambda e, h: h),
        "before-the-bend": through_twice(lambda h: 1 - h * h, lambda e, h: e),
    },
    unusual={"one-hot": one_hot, "tokens": token_by_token},
)
