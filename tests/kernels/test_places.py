"""The bits of a result do not depend on where its arrays lie in memory.

A loop that the compiler turns into vector instructions first looks whether what it writes overlaps what it reads, and
takes another road, with sums in another order, where it seems to. That look is coarse: arrays that are mere
neighbours may seem to overlap. Loops that sum and store at once therefore say `no_overlap` (kernels/pointer.py).
"""
import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from minitx import ops
from minitx.tensor import wrap

EMPTY = np.empty
FAR, GAPS = 1000, (0, 1, 7, 18)  # numbers between two arrays
IDS = np.array([3, 0, 4, 3, 1])


def cases(n):
    row, square = [(3, n)], [(2, 7, n), (2 * n, n), (2 * n,), (n, 2 * n), (n,)]
    yield "softmax", ops.softmax, row
    yield "softmax of one row", ops.softmax, [(n,)]
    yield "log_softmax", ops.log_softmax, row
    yield "layer_norm", ops.layer_norm, [(3, n), (n,), (n,)]
    yield "rms_norm", ops.rms_norm, [(3, n), (n,)]
    yield "cross_entropy", lambda x: ops.cross_entropy(x, IDS, label_smoothing=0.1), [(5, n)]
    yield "gelu", ops.gelu, row
    yield "silu", ops.silu, row
    yield "swiglu", ops.swiglu, [(3, n), (3, n)]
    yield "geglu", ops.geglu, [(3, n), (3, n)]
    yield "embedding", lambda w: ops.embedding(IDS, w), [(6, n)]
    yield "rotary", lambda x: ops.rotary(x, np.arange(7)), [(2, 3, 7, n // 2 * 2)]
    yield "linear", ops.linear, [(3, n), (11, n), (11,)]
    yield "matmul", ops.matmul, [(2, 3, n), (2, n, 11)]
    yield "attention", lambda q, k, v: ops.attention(q, k, v, mask=None), [(2, 3, 19, n), (2, 3, 19, n), (2, 3, 19, n)]
    yield "feed_forward", lambda *a: ops.feed_forward(*a, "gelu"), square
    yield "feed_forward with a residual", lambda *a: ops.feed_forward(*a[1:], "relu", a[0]), [square[0], *square]
    yield "gated", lambda *a: ops.gated_feed_forward(*a, "swiglu"), [*square[:3], *square[1:]]
    heads = [(3, 7, n), *[(6, n)] * 3, (n, 6)]
    yield "multi_head_attention", lambda x, q, k, v, o: ops.multi_head_attention(
        x, None, q, None, k, None, v, None, o, None, x, heads=2, kv_heads=2
    ), heads
    yield "output_projection", ops.output_projection, [(2, 5, 7, n), (11, 5 * n), (11,), (2, 7, 11)]


UNTOUCHED = 1.25e30


class Row:
    """Memory in which each array begins right behind the one before, or `gap` numbers later; nothing writes between."""

    def __init__(self, dtype, gap):
        self.memory, self.at, self.gap = np.full(1 << 20, UNTOUCHED, dtype), gap, gap
        self.taken = np.zeros(1 << 20, bool)

    def place(self, shape, dtype, values=0):
        array = EMPTY(shape, dtype)
        if dtype == self.memory.dtype and self.at + array.size <= len(self.memory):
            array = self.memory[self.at : self.at + array.size].reshape(shape)
            self.taken[self.at : self.at + array.size] = True
            self.at += array.size + self.gap
        array[...] = values
        return array


def everything(f, shapes, dtype, gap, turn, monkeypatch):
    """Values and gradients of f; all arrays lie `gap` numbers apart, of the inputs number `turn` first."""
    row, rng = Row(dtype, gap), np.random.default_rng(0)
    values = [rng.standard_normal(s) for s in shapes]
    leaves = {}
    for i in [*range(turn, len(shapes)), *range(turn)]:
        leaves[i] = wrap(row.place(shapes[i], dtype, values[i]))
        leaves[i].requires_grad = True
    leaves = [leaves[i] for i in range(len(shapes))]
    y = f(*leaves)
    y.backward(np.ones(y.shape, dtype))  # kernels are compiled now: numba knows no other np.empty
    for leaf in leaves:
        leaf.grad = None
    monkeypatch.setattr(np, "empty", lambda shape, dtype=float, order="C": row.place(shape, np.dtype(dtype)))
    y = f(*leaves)
    y.backward(row.place(y.shape, dtype, rng.standard_normal(y.shape)))
    monkeypatch.undo()
    assert row.at > 0
    assert (row.memory[~row.taken] == row.memory.dtype.type(UNTOUCHED)).all()
    return [y.numpy(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("f8")], ids=str)
@pytest.mark.parametrize("n", [5, 13, 37, 40])
def test_the_bits_do_not_depend_on_places(n, dtype, monkeypatch):
    for name, f, shapes in cases(n):
        for turn in range(len(shapes)):
            apart = everything(f, shapes, dtype, FAR, turn, monkeypatch)
            for gap in GAPS:
                close = everything(f, shapes, dtype, gap, turn, monkeypatch)
                for a, b in zip(apart, close):
                    np.testing.assert_array_equal(a, b, err_msg=f"{name}, {gap} numbers apart")
