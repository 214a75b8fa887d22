"""Positions as a bias: ALiBi's slopes and T5's buckets, under caches, padding and packing."""
import math

import numpy as np
import pytest

from minitx import Tensor
from minitx.masks import causal, padding
from minitx.ops import alibi_bias, attention, relative_bias
from minitx.ops.position_bias import alibi_slopes, relative_buckets, relative_positions


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# ---------------------------------------------------------------------- relative positions


def test_the_last_query_stands_at_the_last_key():
    np.testing.assert_array_equal(relative_positions(2, 3)[0], [[-1, 0, 1], [-2, -1, 0]])
    np.testing.assert_array_equal(relative_positions(2, 3, 0)[0], [[0, 1, 2], [-1, 0, 1]])
    np.testing.assert_array_equal(relative_positions(1, 3, np.array([0, 2]))[:, 0], [[0, 1, 2], [-2, -1, 0]])


# ---------------------------------------------------------------------- ALiBi


def test_pitfall_28_alibi_slopes():
    eight = [2.0**-h for h in range(1, 9)]
    np.testing.assert_array_equal(alibi_slopes(8), eight)
    np.testing.assert_array_equal(alibi_slopes(1), [2**-8])
    np.testing.assert_array_equal(alibi_slopes(6), [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125])
    twelve = [*eight, 0.7071067812, 0.3535533906, 0.1767766953, 0.0883883476]
    np.testing.assert_allclose(alibi_slopes(12), twelve, atol=1e-10)
    for heads in range(1, 40):
        slopes = alibi_slopes(heads)
        assert slopes.shape == (heads,)
        assert len(set(slopes)) == heads
        assert ((slopes > 0) & (slopes < 1)).all()
    for heads in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="one slope per head"):
            alibi_slopes(heads)


def test_alibi_by_hand():
    y = alibi_bias(relative_positions(3, 3), np.array([1.0, 0.5])).numpy()
    assert y.shape == (1, 2, 3, 3)
    np.testing.assert_array_equal(y[0, 0], [[0, -1, -2], [-1, 0, -1], [-2, -1, 0]])
    np.testing.assert_array_equal(y[0, 1], y[0, 0] / 2)


def output(q, k, v, **options):
    relative = relative_positions(q.shape[2], k.shape[2], options.get("query_offset"))
    return attention(q, k, v, bias=alibi_bias(relative, alibi_slopes(q.shape[1])), mask=causal(), **options).numpy()


def test_pitfall_28_absolute_positions_under_a_cache():
    q, k, v = draw(2, 3, 7, 5), draw(2, 3, 7, 5, seed=1), draw(2, 3, 7, 2, seed=2)
    whole = output(q, k, v)
    for start, stop in ((0, 3), (3, 4), (4, 7)):
        part = output(q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop])
        np.testing.assert_allclose(part, whole[:, :, start:stop], atol=1e-14)


def test_pitfall_28_left_padding():
    """A row that begins with padding gives what it gives alone: both sides are shifted, the distance is not."""
    q, k, v = draw(1, 3, 4, 5), draw(1, 3, 4, 5, seed=1), draw(1, 3, 4, 2, seed=2)

    def padded(x):
        return np.concatenate([np.full((1, 3, 3, x.shape[3]), 9.0), x], 2)

    bias = alibi_bias(relative_positions(7, 7), alibi_slopes(3))
    y = attention(padded(q), padded(k), padded(v), bias=bias, mask=causal() & padding([4], "left")).numpy()
    np.testing.assert_allclose(y[:, :, 3:], output(q, k, v), atol=1e-14)


def test_key_positions_alone_give_the_same_weights_under_a_causal_mask():
    q, k, v = draw(1, 3, 4, 5), draw(1, 3, 4, 5, seed=1), draw(1, 3, 4, 2, seed=2)
    bias = alibi_slopes(3).reshape(1, 3, 1, 1) * np.arange(4)
    np.testing.assert_allclose(attention(q, k, v, bias=bias, mask=causal()).numpy(), output(q, k, v), atol=1e-14)


# ---------------------------------------------------------------------- T5


def by_logarithm(relative, buckets, max_distance, bidirectional):
    """One pair at a time, as the paper says it, away from the borders where a logarithm may round."""
    n, after = (buckets // 2, buckets // 2 * (relative > 0)) if bidirectional else (buckets, 0)
    distance = abs(relative) if bidirectional else max(-relative, 0)
    if distance < n // 2:
        return after + distance
    share = math.log(distance / (n // 2)) / math.log(max_distance / (n // 2))
    return after + min(n // 2 + math.floor(share * (n - n // 2) + 1e-9), n - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 20), (12, 300)])
def test_buckets(buckets, max_distance, bidirectional):
    relative = np.arange(-400, 401)
    found = relative_buckets(relative, buckets, max_distance, bidirectional)
    expected = [by_logarithm(int(r), buckets, max_distance, bidirectional) for r in relative]
    np.testing.assert_array_equal(found, expected)
    assert set(found) == set(range(buckets)) - ({buckets // 2} if bidirectional else set())  # (distance 0 is not after)


def test_buckets_of_t5_by_value():
    near_and_far = np.array([0, -1, -7, -8, -11, -12, -15, -16, -127, -128, -5000, 1, 8, 128])
    np.testing.assert_array_equal(
        relative_buckets(near_and_far), [0, 1, 7, 8, 8, 9, 9, 10, 15, 15, 15, 17, 24, 31]
    )
    np.testing.assert_array_equal(
        relative_buckets([3, 0, -15, -16, -18, -19, -127, -128], bidirectional=False), [0, 0, 15, 16, 16, 17, 31, 31]
    )


def test_relative_bias_under_a_cache():
    table = draw(32, 3)
    whole = relative_bias(relative_positions(40, 40), table, bidirectional=False).numpy()
    part = relative_bias(relative_positions(1, 31), table, bidirectional=False).numpy()
    np.testing.assert_array_equal(part[0, :, 0], whole[0, :, 30, :31])
    by_offset = relative_bias(relative_positions(5, 40, 20), table, bidirectional=False).numpy()
    np.testing.assert_array_equal(by_offset, whole[:, :, 20:25])


def test_the_gradient_counts_every_pair():
    table = Tensor(np.zeros((8, 2)), requires_grad=True)
    y = relative_bias(relative_positions(3, 5), table, max_distance=20)
    y.backward(np.ones(y.shape))
    assert table.grad.sum() == 2 * 3 * 5
    counts = np.bincount(relative_buckets(relative_positions(3, 5), 8, 20).ravel(), minlength=8)
    np.testing.assert_array_equal(table.grad[:, 0], counts)


def test_packed_documents_have_distances_of_their_own():
    """Relative positions may come from restarted positions: any integers (B, T, S) will do."""
    positions = np.array([[0, 1, 2, 0, 1]])
    relative = positions[:, None, :] - positions[:, :, None]
    y = alibi_bias(relative, np.array([1.0])).numpy()
    np.testing.assert_array_equal(y[0, 0, 3:, 3:], [[0, -1], [-1, 0]])


def test_float32_stays_float32():
    for f, parameter in ((alibi_bias, np.ones(2, np.float32)), (relative_bias, np.ones((8, 2), np.float32))):
        p = Tensor(parameter, requires_grad=True)
        y = f(relative_positions(2, 3), p)
        y.backward(np.ones(y.shape, np.float32))
        assert y.dtype == p.grad.dtype == np.float32


@pytest.mark.parametrize(
    "options", [{"buckets": 7}, {"buckets": 2}, {"buckets": 1, "bidirectional": False}, {"max_distance": 8}]
)
def test_buckets_that_cannot_be(options):
    with pytest.raises(ValueError, match="a direction has at least 2 buckets"):
        relative_buckets(np.zeros((2, 2), int), **options)


def test_bad_input():
    with pytest.raises(TypeError, match="relative positions are integers, not float64"):
        alibi_bias(np.zeros((2, 2)), np.ones(2))
    with pytest.raises(ValueError, match=r"relative positions are \(T, S\) or \(B, T, S\)"):
        alibi_bias([1, 2], np.ones(2))
    with pytest.raises(ValueError, match="one slope per head"):
        alibi_bias([[1, 2]], np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"weight is \(buckets, heads\)"):
        relative_bias([[1, 2]], np.ones(8))
