"""Exact gradients where differences cannot judge: at ties, kinks, infinities and both ends."""
from __future__ import annotations

from typing import Any

import numpy as np

INF = np.inf
LOG2, LOG3 = float(np.log(2)), float(np.log(3))

# (op, arguments, options, dy, the gradients)
CORNERS: list[tuple[str, Any, Any, Any, Any]] = [
    ("abs", ([-2, 0, 3],), {}, 7, [[-7, 0, 7]]),
    ("relu", ([-2, 0, 3],), {}, 7, [[0, 0, 7]]),
    ("clip", ([-3, -2, 0, 1, 3], -2, 1), {}, 7, [[0, 7, 7, 7, 0]]),
    ("maximum", ([1, 2, 3], [1, 3, 2]), {}, 6, [[3, 0, 6], [3, 6, 0]]),
    ("minimum", ([1, 2, 3], [1, 3, 2]), {}, 6, [[3, 6, 0], [3, 0, 6]]),
    ("max", ([1, 3, 3, 0],), {}, 6, [[0, 3, 3, 0]]),
    ("min", ([1, 0, 3, 0],), {}, 6, [[0, 3, 0, 3]]),
    ("max", ([[1, np.nan], [3, 2]], 1), {}, [6, 5], [[[0, 0], [5, 0]]]),
    ("min", ([[1, np.nan], [3, 2]], 1), {}, [6, 5], [[[0, 0], [0, 5]]]),
    ("power", ([0, 0, 2, 3], [0, 2, 0, 2]), {}, 1, [[0, 0, 0, 6], [0, 0, LOG2, 9 * LOG3]]),
    ("erf", ([-1e200, 1e200],), {}, 1, [[0, 0]]),
    ("logsumexp", ([[-INF, -INF], [0, -INF]], 1), {}, [6, 5], [[[0, 0], [5, 0]]]),
    ("softmax", ([[-INF, -INF], [0, -INF]],), {}, [[3, 1], [3, 1]], [[[0, 0], [0, 0]]]),
    ("log_softmax", ([[-INF, -INF], [0, LOG3]],), {}, [[3, 1], [3, 1]], [[[0, 0], [2, -2]]]),
    ("embedding", (np.array([0, 0, 2]), [[1, 2], [3, 4], [5, 6]]), {"padding_idx": 0}, 1, [[[0, 0], [0, 0], [1, 1]]]),
    (  # a bias with one number for all keys of a query shifts its scores, and changes nothing
        "tiled_attention", ([[[[0], [0]], [[0], [0]]]], [[[[0], [0]]]], [[[[1], [3]]]]),
        {"bias": np.array([[[[0.5], [-1.0]], [[2.0], [0.0]]]]), "block_k": 1}, 1,
        [np.zeros((1, 2, 2, 1)), np.zeros((1, 1, 2, 1)), [[[[2], [2]]]], np.zeros((1, 2, 2, 1))],
    ),
]
