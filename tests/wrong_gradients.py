"""What the tests of the gradient check and of its diagnosis share: an op of three inputs, and wrong gradients of it."""
from __future__ import annotations

import numpy as np
import pytest

from minitx import op
from minitx.gradcheck import GradientError, gradcheck

rng = np.random.default_rng(7)
X, W, B = rng.standard_normal((3, 5)), rng.standard_normal(5), rng.standard_normal(5)


@op
def affine(x, w, b):
    return x * w + b, lambda dy: (dy * w, (dy * x).sum(0), dy.sum(0))


def wrong(*gradients):
    """affine with another backward: gradients(dy, x, w, b) for each input, None for the right one."""

    def rule(x, w, b):
        right = (lambda dy: dy * w, lambda dy: (dy * x).sum(0), lambda dy: dy.sum(0))
        return x * w + b, lambda dy: tuple(r(dy) if g is None else g(dy, x, w, b) for g, r in zip(gradients, right))

    return affine.using(rule)


def failure(f, *inputs, **options):
    with pytest.raises(GradientError) as caught:
        gradcheck(f, *inputs, **options)
    return caught.value
