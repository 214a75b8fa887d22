"""A router's weights: how much each chosen expert counts, and how the router learns of it."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import softmax, softmax_backward, with_backward
from minitx.op import Array


def draw(rng: Rng, N: int, E: int, k: int) -> Arguments:
    scores = rng.standard_normal((N, E))
    return {"scores": scores, "chosen": np.argsort(-scores, axis=1)[:, :k]}


def arguments(rng: Rng) -> Arguments:
    return draw(rng, 5, 7, 3)


def forward_cases(rng: Rng) -> Cases:
    made = draw(rng, 5, 7, 3)
    return {"large": made | {"scores": 1000 * made["scores"]}}


def adversarial(rng: Rng) -> Cases:
    unsorted = draw(rng, 5, 7, 2)
    unsorted["chosen"] = unsorted["chosen"][:, ::-1]
    low = draw(rng, 5, 7, 7)
    return {
        "one": draw(rng, 5, 7, 1),
        "all": draw(rng, 5, 7, 7),
        "unsorted": unsorted,
        "lowest": low | {"chosen": low["chosen"][:, -2:]},
    }


def terms(dw: Array, scores: Array, chosen: Array) -> dict[str, list[Array]]:
    w = forward(scores, chosen)
    if chosen.shape[1] == 1:
        return {"scores": [placed(dw * w, scores, chosen), -dw * w * softmax(scores)]}
    one, two = w * dw, -w * (dw * w).sum(1, keepdims=True)
    return {"scores": [placed(one, scores, chosen), placed(two, scores, chosen)]}


def intermediates(dw: Array, scores: Array, chosen: Array) -> dict[str, Array]:
    return {"w": forward(scores, chosen)}


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def picked(scores: Array, chosen: Array) -> Array:
    return np.take_along_axis(scores, chosen, 1)


def placed(g: Array, scores: Array, chosen: Array) -> Array:
    """g at the chosen places, 0 elsewhere."""
    out = np.zeros(scores.shape)
    np.put_along_axis(out, chosen, g, 1)
    return out


def forward(scores: Array, chosen: Array) -> Array:
    return picked(softmax(scores), chosen) if chosen.shape[1] == 1 else softmax(picked(scores, chosen))


def right(dw: Array, scores: Array, chosen: Array) -> Any:
    if chosen.shape[1] == 1:
        return softmax_backward(softmax(scores), placed(dw, scores, chosen))
    return placed(softmax_backward(forward(scores, chosen), dw), scores, chosen)


def not_renormalised(scores: Array, chosen: Array) -> Any:
    p = softmax(scores)
    return picked(p, chosen), lambda dw: softmax_backward(p, placed(dw, scores, chosen))


def always_renormalised(scores: Array, chosen: Array) -> Any:
    """With k = 1 too: a weight that is always 1."""
    w = softmax(picked(scores, chosen))
    return w, lambda dw: placed(softmax_backward(w, dw), scores, chosen)


def in_order_of_choice(dw: Array, scores: Array, chosen: Array) -> Array:
    """Gradient j goes to expert j, not to the expert that was choice j."""
    first = np.tile(np.arange(chosen.shape[1]), (len(scores), 1))
    return placed(picked(right(dw, scores, chosen), chosen), scores, first)


def all_experts(dw: Array, scores: Array, chosen: Array) -> Any:
    """The softmax's backward over all experts, although the weights are renormalised."""
    return softmax_backward(softmax(scores), placed(dw, scores, chosen))


def straight_through(dw: Array, scores: Array, chosen: Array) -> Array:
    return placed(dw, scores, chosen)


def weight_in_front(dw: Array, scores: Array, chosen: Array) -> Array:
    w = forward(scores, chosen)
    return placed(dw - (dw * w).sum(1, keepdims=True), scores, chosen)


def of_weights(dw: Array, scores: Array, chosen: Array) -> Array:
    w = forward(scores, chosen)
    return placed(w * (w - (w * w).sum(1, keepdims=True)), scores, chosen)


def by_quotient(scores: Array, chosen: Array) -> Any:
    """p_c / Σ p_c as it is written, and the quotient rule."""
    p = softmax(scores)
    if chosen.shape[1] == 1:
        return picked(p, chosen), lambda dw: softmax_backward(p, placed(dw, scores, chosen))
    with np.errstate(all="ignore"):
        c = picked(p, chosen)
        total = c.sum(1, keepdims=True)
    if not (total > 1e-12).all():  # the quotient of two numbers that rounded to 0
        return always_renormalised(scores, chosen)
    w = c / total

    def backward(dw: Array) -> Any:
        dc = dw / total - (dw * c).sum(1, keepdims=True) / total**2
        return softmax_backward(p, placed(dc, scores, chosen))

    return w, backward


def masked(scores: Array, chosen: Array) -> Any:
    """All other scores -inf, and the softmax over everything."""
    k = chosen.shape[1]
    mask = placed(np.ones(chosen.shape), scores, chosen) > 0
    p = softmax(scores if k == 1 else np.where(mask, scores, -np.inf))
    return picked(p, chosen), lambda dw: softmax_backward(p, placed(dw, scores, chosen))


EXERCISE = Exercise(
    slug="expert-weights",
    part=1,
    minutes=30,
    needs=("softmax", "embedding"),
    idioms=("np.take_along_axis(scores, chosen, 1)", "np.put_along_axis(ds, chosen, g, 1)"),
    equation="""\
p = softmax(scores)
k > 1:  w_j = p_(c_j) / Σ_i p_(c_i);        k = 1:  w = p_c""",
    shapes={"scores": "(N, E)", "chosen": "(N, k) int  c", "w": "(N, k)", "dw": "(N, k)"},
    function="expert_weights",
    signature="scores, chosen",
    results=("w",),
    gradients=("scores",),
    op="expert_weights",
    arguments=arguments,
    forward_cases=forward_cases,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "not-renormalised": not_renormalised,
        "always-renormalised": always_renormalised,
        "order-of-choice": with_backward(forward, in_order_of_choice),
        "all-experts": with_backward(forward, all_experts),
        "straight-through": with_backward(forward, straight_through),
        "weight-in-front": with_backward(forward, weight_in_front),
        "cotangent-forgotten": with_backward(forward, of_weights),
        "detached": with_backward(forward, lambda dw, scores, chosen: 0 * scores),
    },
    unusual={"quotient": by_quotient, "masked": masked},
)
