"""A graph with two fan-outs: when is a gradient complete, so that it may be sent on?"""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.learn.exercise import Arguments, Cases, Exercise, Rng
from minitx.learn.exercises.pieces import with_backward
from minitx.op import Array


def arguments(rng: Rng) -> Arguments:
    return {"x": rng.uniform(0.4, 1.6, (3, 5)) * rng.choice([-1.0, 1.0], (3, 5))}


def adversarial(rng: Rng) -> Cases:
    return {"number": {"x": np.array(1.5)}, "zero": {"x": np.zeros((2, 3))}}


def terms(dy: Array, x: Array) -> dict[str, list[Array]]:
    db, da = parts(dy, x)
    return {"x": [da * 2 * x, db * x**2]}


def intermediates(dy: Array, x: Array) -> dict[str, Array]:
    db, da = parts(dy, x)
    return {"dc": dy, "db": db, "da": da}


def parts(dy: Array, x: Array) -> tuple[Array, Array]:
    """db and da, each complete."""
    db = dy + dy * x**2
    return db, dy * x**3 + db * x


def fan_out(x: Array) -> Any:
    a = x * x
    b = a * x
    c = a * b
    y = b + c

    def backward(dy: Array) -> Any:
        # y = b + c
        db = dy.copy()
        dc = dy
        # c = a b: now db is complete, both of b's consumers have spoken
        db += dc * a
        da = dc * b
        # b = a x: now da is complete
        da += db * x
        dx = db * a
        # a = x x
        dx += da * 2 * x
        return dx

    return y, backward


# ---------------------------------------------------------------------- wrong ones, and right ones by other ways


def forward(x: Array) -> Any:
    return x**3 + x**5


def with_parts(db: Any, da: Any) -> Any:
    """dx from a db(dy, a, b) and a da(dy, a, b, db, x) that are not what they should be."""

    def backward(dy: Array, x: Array) -> Any:
        a, b = x * x, x**3
        d_b = db(dy, a, b)
        return d_b * a + da(dy, a, b, d_b, x) * 2 * x

    return with_backward(forward, backward)


def whole_db(dy: Array, a: Array, b: Array) -> Any:
    return dy + dy * a


def whole_da(dy: Array, a: Array, b: Array, db: Array, x: Array) -> Any:
    return dy * b + db * x


def b_sent_on_twice(dy: Array, x: Array) -> Any:
    """b is passed when the first of its gradients arrives, and again, whole, when the second does."""
    a, b = x * x, x**3
    db = dy + dy * a
    return (dy + db) * a + (dy * b + (dy + db) * x) * 2 * x


def x_once(dy: Array, x: Array) -> Any:
    """a = x x taken to use x once."""
    db, da = parts(dy, x)
    return db * x**2 + da * x


def polynomial(x: Array) -> Any:
    """No graph at all: y = x³ + x⁵."""
    return x**3 * (1 + x**2), lambda dy: dy * (3 * x**2 + 5 * x**4)


def path_by_path(x: Array) -> Any:
    """Each path from y to x by itself; the gradient is the sum over the paths."""
    a, b = x * x, x * x * x
    to_a = [1 * x, a * x, b]  # dy/da along y-b-a, y-c-b-a, y-c-a
    to_x = [1 * a, a * a]  # along y-b-x, y-c-b-x
    slope = sum(to_x) + sum(s * x for s in to_a) + sum(x * s for s in to_a)
    return b + a * b, lambda dy: dy * slope


EXERCISE = Exercise(
    slug="fan-out",
    part=1,
    minutes=10,
    needs=("multiply", "residual"),
    idioms=("db = dy.copy()", "db += ..."),
    equation="a = x * x;  b = a * x;  c = a * b;  y = b + c",
    shapes={"x": "(...)", "a, b, c": "(...)", "y": "(...)", "dy": "(...)"},
    function="fan_out",
    signature="x",
    gradients=("x",),
    solution=fan_out,
    arguments=arguments,
    adversarial=adversarial,
    terms=terms,
    intermediates=intermediates,
    mutants={
        "b-too-early": with_parts(lambda dy, a, b: dy, whole_da),
        "b-overwritten": with_parts(lambda dy, a, b: dy * a, whole_da),
        "a-too-early": with_parts(whole_db, lambda dy, a, b, db, x: dy * b),
        "a-overwritten": with_parts(whole_db, lambda dy, a, b, db, x: db * x),
        "b-twice": with_backward(forward, b_sent_on_twice),
        "x-once": with_backward(forward, x_once),
    },
    unusual={"polynomial": polynomial, "paths": path_by_path},
)
