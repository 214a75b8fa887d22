"""The matrix product on the register tile: right, and the same bits whatever else is computed."""
import contextlib
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from equal import close, on_threads, tolerance
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor, ops, reference
from minitx.kernels import matmul
from minitx.kernels.block import COLUMNS, DEPTH, cut
from minitx.kernels.epilogue import GATE, GATE_BACKWARD, NOTHING, PLUS, RELU, SIGMOID, TIMES
from minitx.kernels.matmul import product

SIZES = st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 129, DEPTH - 1, DEPTH, DEPTH + 1, 2 * DEPTH + 3]))
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def laid_out(rng, rows, columns, layout, dtype):
    """A matrix (rows, columns) that lies in memory in one of several ways."""
    if layout == "transposed":
        return rng.standard_normal((columns, rows)).astype(dtype).T
    if layout == "sliced":
        return rng.standard_normal((2 * rows, 3 * columns)).astype(dtype)[::2, 1::3]
    if layout == "reversed":
        return rng.standard_normal((rows, columns)).astype(dtype)[::-1, ::-1]
    if layout == "wide rows":
        return rng.standard_normal((rows, columns + 1024)).astype(dtype)[:, 5 : 5 + columns]
    if layout == "one row for all":
        return np.broadcast_to(rng.standard_normal(columns).astype(dtype), (rows, columns))
    return rng.standard_normal((rows, columns)).astype(dtype)


LAYOUTS = ["plain", "transposed", "sliced", "reversed", "wide rows", "one row for all"]


@DTYPES
@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, SIZES, st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS), st.booleans(), st.integers(0, 9))
def test_equals_numpy_in_float64(dtype, m, k, n, layout_a, layout_b, with_bias, seed):
    rng = np.random.default_rng(seed)
    a, b = laid_out(rng, m, k, layout_a, dtype), laid_out(rng, k, n, layout_b, dtype)
    bias = rng.standard_normal(n).astype(dtype) if with_bias else None
    expected = a.astype(np.float64) @ b.astype(np.float64) + (0 if bias is None else bias)
    scale = np.abs(a).max() * np.abs(b).max() * np.sqrt(k) + 1
    close(product(a, b, bias), expected, tolerance(dtype, k), scale)


@DTYPES
def test_the_law_a_row_alone_has_the_same_bits(dtype):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((131, 613)).astype(dtype), rng.standard_normal((613, 331)).astype(dtype)
    whole = on_threads(lambda: [product(a, b)])[0]
    for rows in ([0], [130], [7], [8, 9, 10], range(5, 77)):
        np.testing.assert_array_equal(product(a[list(rows)], b), whole[list(rows)])
    for columns in (slice(0, 1), slice(330, 331), slice(31, 97)):
        np.testing.assert_array_equal(product(a, b[:, columns]), whole[:, columns])
    np.testing.assert_array_equal(product(np.asfortranarray(a), np.asfortranarray(b)), whole)
    np.testing.assert_array_equal(product(a, np.ascontiguousarray(b[:, ::-1])[:, ::-1]), whole)


@DTYPES
def test_repeats_are_bit_identical_on_any_number_of_threads(dtype):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((517, 257)).astype(dtype), rng.standard_normal((263, 257)).astype(dtype).T
    first = on_threads(lambda: [product(a, b)])[0]
    for _ in range(20):
        np.testing.assert_array_equal(product(a, b), first)


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1, 1), (8, 3, 32), (9, 300, 33), (6, 5, 16), (130, 257, 65)])
def test_nothing_is_written_outside(dtype, shape):
    """C stands between guard bands, and everything around A and B is NaN."""
    m, k, n = shape
    rng = np.random.default_rng(2)

    def guarded(rows, columns):
        whole = np.full(rows * columns + 2000, np.nan, dtype)
        inside = whole[1000:-1000].reshape(rows, columns)
        inside[:] = rng.standard_normal((rows, columns))
        return whole, inside

    (_, a), (_, b), (whole, c) = guarded(m, k), guarded(k, n), guarded(m, n)
    product(a, b, out=c)
    close(c, a.astype(np.float64) @ b, tolerance(dtype, k), np.sqrt(k) * 4)
    assert np.isnan(whole[:1000]).all()
    assert np.isnan(whole[-1000:]).all()


@DTYPES
@pytest.mark.parametrize("shape", [(1, 1, 1), (9, 300, 33), (130, 257, 65)])
@pytest.mark.parametrize("how", range(NOTHING, GATE_BACKWARD + 1))
def test_no_epilogue_writes_outside(dtype, shape, how):
    """C and the slopes stand between guard bands; what is read, between NaN."""
    m, k, n = shape
    rng = np.random.default_rng(2)

    def guarded(rows):
        whole = np.full(rows * n + 2000, np.nan, dtype)
        inside = whole[1000:-1000].reshape(rows, n)
        inside[:] = rng.standard_normal((rows, n))
        return whole, inside

    a, b = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
    (_, extra), (around, slope), (whole, c) = guarded(2 * m), guarded(m), guarded(m)
    has_slope = RELU <= how <= SIGMOID or how >= GATE
    product(a, b, None, how, extra if how >= TIMES else None, slope if has_slope else None, out=c)
    for memory in (whole, around):
        assert np.isnan(memory[:1000]).all()
        assert np.isnan(memory[-1000:]).all()
    assert np.isfinite(c).all()
    assert np.isfinite(slope).all()


@DTYPES
def test_epilogues(dtype):
    rng = np.random.default_rng(3)
    a, b, other = (rng.standard_normal(s).astype(dtype) for s in ((37, 300), (300, 131), (37, 131)))
    plain = product(a, b)
    np.testing.assert_array_equal(product(a, b, how=TIMES, extra=other), plain * other)
    np.testing.assert_array_equal(product(a, b, how=PLUS, extra=other), plain + other)


@pytest.mark.parametrize("most", [COLUMNS // 2, COLUMNS])
@pytest.mark.parametrize("n", [31, 33, 224, 255, 257, 384, 448, 511, 513, 896, 1537])
@pytest.mark.parametrize("m", [31, 33, 1025, 2048])
def test_blocks_cover_the_matrix_and_are_as_much_for_each_thread(m, n, most):
    for threads in (1, 2, 3, 8):
        height, width = cut.py_func(m, n, most, 32, threads)
        assert width <= most
        assert width % 32 == 0
        widths = [min(width, n - j) for j in range(0, n, width)]
        if m >= 32 * threads * threads:
            tiles = [-(-w // 32) for w in widths] * -(-m // height)
            ends = [len(tiles) * t // threads for t in range(threads + 1)]
            assert len({sum(tiles[i:j]) for i, j in pairwise(ends)}) == 1


@pytest.mark.parametrize("shape", [(70, 5, 257), (33, 257, 513), (1025, 3, 300), (900, 64, 64)], ids=str)
def test_the_same_bits_on_any_number_of_threads(shape):
    m, k, n = shape
    rng = np.random.default_rng(5)
    a, b, other = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))
    on_threads(lambda: [product(a, b, how=PLUS, extra=other), product(a.T.copy().T, b.T.copy().T)])


def test_infinity_and_nan_stay_where_they_belong():
    a, b = np.ones((37, 65), np.float32), np.ones((65, 41), np.float32)
    a[3, 7], a[36, 64] = np.inf, np.nan
    c = product(a, b)
    assert np.isinf(c[3]).all()
    assert np.isnan(c[36]).all()
    assert (np.delete(c, [3, 36], 0) == 65).all()


def test_empty_is_refused():
    with pytest.raises(ValueError, match="nothing to multiply"):
        product(np.zeros((3, 0)), np.zeros((0, 5)))


STACKS = [
    ((7, 5), (5, 3)), ((2, 3, 7, 5), (5, 3)), ((11, 7, 5), (11, 5, 3)), ((2, 1, 7, 65), (3, 65, 33)),
    ((70, 300), (3, 300, 37)),
]  # fmt: skip


@pytest.mark.parametrize("shapes", STACKS, ids=str)
@DTYPES
def test_stacks_equal_the_definition(shapes, dtype):
    """The op, over its kernel: stacks, broadcast in front, and the gradients."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(dtype) for s in shapes)
    dz = rng.standard_normal((x @ y).shape)
    found = []
    for dt, switch in ((dtype, contextlib.nullcontext()), (np.float64, reference())):
        a, b = (Tensor(v.astype(dt), requires_grad=True) for v in (x, y))
        with switch:
            z = ops.matmul(a, b)
            z.backward(dz.astype(dt))
        found.append((z.numpy(), a.grad, b.grad))
    for got, expected in zip(*found, strict=True):
        assert got.dtype == dtype
        assert got.shape == expected.shape
        assert np.abs(got - expected).max() <= tolerance(dtype, 300) * np.abs(expected).max() * 4


def test_the_kernel_reads_turned_and_sliced_stacks():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 9, 6)), rng.standard_normal((4, 10, 9))
    got = matmul.matmul(x.swapaxes(1, 2)[::-1], y.swapaxes(1, 2)[::-1, ::1, ::2])[0]
    np.testing.assert_allclose(got, x.swapaxes(1, 2)[::-1] @ y.swapaxes(1, 2)[::-1, :, ::2], rtol=1e-12, atol=1e-12)


LEFT = [((5,), (5, 3)), ((7, 5), (5,)), ((7, 5), (4, 3)), ((2, 7, 5), (3, 5, 3)), ((0, 5), (5, 3))]


@pytest.mark.parametrize("shapes", LEFT, ids=str)
def test_what_the_op_leaves_to_its_definition(shapes):
    x, y = (np.ones(s) for s in shapes)
    assert matmul.matmul(x, y) is NotImplemented
