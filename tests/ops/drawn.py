"""What hypothesis draws for the tests of the ops: shapes (0-d and empty ones too), numbers, axes."""
from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

quick = settings(deadline=None, max_examples=40)

shapes = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def apart(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Arrays in which no two numbers are equal and none is 0: away from every kink."""
    sizes = [int(np.prod(s)) for s in shapes]
    values = 0.1 * (rng.permutation(sum(sizes)) - sum(sizes) // 2) + 0.04
    return [v.reshape(s) for v, s in zip(np.split(values, np.cumsum(sizes)[:-1]), shapes)]


@st.composite
def axes_of(draw: st.DrawFn, ndim: int):
    """None, one axis, or several, some counted from the end."""
    if ndim == 0 or draw(st.booleans()):
        return None
    axes = draw(st.lists(st.integers(0, ndim - 1), min_size=1, unique=True))
    chosen = tuple(a - ndim if draw(st.booleans()) else a for a in axes)
    return chosen[0] if len(chosen) == 1 and draw(st.booleans()) else chosen
