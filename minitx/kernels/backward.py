"""`python -m minitx.kernels.backward`: compile what a training step needs after its forward pass; ahead.py says why."""
from __future__ import annotations

import numpy as np

from minitx.kernels import arithmetic, attention, linear, loss, normalization, optimizer, side_by_side

PARTS = (
    attention.attend_backward, linear.linear_backward, side_by_side.backward_kernel, normalization.backward_rows,
    normalization.layer_norm_backward, loss.gradient_rows, loss.cross_entropy_backward, optimizer.look,
    optimizer.over_all, optimizer.square_block, optimizer.scale_block, optimizer.adam_block, arithmetic.add_part,
    arithmetic.add_kernel,
)  # fmt: skip


def compile_all() -> None:
    for part in PARTS:
        part[np.dtype(np.float32)]


if __name__ == "__main__":
    compile_all()
