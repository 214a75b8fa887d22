"""Tiled attention against the definition: masks, bias, groups, caps, dropout, widths; and what must not be read."""
from collections import namedtuple

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from equal import on_threads
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import ops
from minitx.kernels import attention as module
from minitx.kernels.attention import KEYS, attention
from minitx.masks import causal, documents, padding, window

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
Need = namedtuple("Need", "q k v bias")
NO_BIAS = Need(True, True, True, False)


def numbers(rng, B, H, H_kv, T, S, d, d_v, dtype):
    shapes = (B, H, T, d), (B, H_kv, S, d), (B, H_kv, S, d_v), (B, H, T, d_v)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def compare(q, k, v, do, dtype, dropout=0.0, **options):
    """Values and all gradients; the definition in float64."""

    def run(f, q, k, v, do, options):
        rng = np.random.default_rng(11)  # the same key for both
        result = f(q, k, v, dropout=dropout, rng=rng, **options)
        assert result is not NotImplemented
        o, backward = result
        grads = backward(do, Need(True, True, True, options.get("bias") is not None))
        return [o, *grads]

    wide = {n: a.astype(np.float64) if n == "bias" and a is not None else a for n, a in options.items()}
    got = run(attention, q, k, v, do, options)
    expected = run(ops.attention.definition, *(a.astype(np.float64) for a in (q, k, v, do)), wide)
    n = max(q.shape[2], k.shape[2], q.shape[3], v.shape[3], 64)
    tolerance = 4 * np.finfo(np.float32).eps * np.sqrt(n) if dtype == np.float32 else 1e-12
    for a, b in zip(got, expected):
        if b is None:
            assert a is None
        else:
            assert a.dtype == dtype
            assert a.shape == b.shape
            size = max(np.abs(b).max(), 0.5)
            if np.abs(b).max() < 1e-12:  # one key: its weight is 1 whatever the scores, and terms of this size cancel
                size = np.abs(do).max() * np.abs(v).max() * max(np.abs(q).max(), np.abs(k).max())
            assert np.abs(a - b).max() <= tolerance * size
    return got


@st.composite
def masks(draw, B, T, S):
    """Structured masks and their combinations, and boolean arrays."""
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    kind = draw(st.sampled_from(["none", "causal", "window", "padding", "both", "documents", "boolean", "mixed"]))
    lengths = rng.integers(0, S + 1, B)
    side = draw(st.sampled_from(["left", "right"]))
    runs = np.sort(rng.integers(0, 4, S))
    return {
        "none": None, "causal": causal(), "window": window(3), "padding": padding(lengths, side),
        "both": causal() & padding(lengths, side) & window(7), "documents": documents(runs) if T <= S else None,
        "boolean": rng.random((B, 1, T, S)) < 0.6, "mixed": causal() & (rng.random((T, S)) < 0.6),
    }[kind]  # fmt: skip


@DTYPES
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_equals_the_definition(dtype, data):
    draw = data.draw
    B, H_kv, group = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    T, S = draw(st.sampled_from([1, 3, 16, 17, 33, 70])), draw(st.sampled_from([1, 5, 16, 31, KEYS, KEYS + 1, 150]))
    d, d_v = draw(st.sampled_from([1, 7, 8, 16, 24, 32, 65])), draw(st.sampled_from([1, 8, 11, 16, 32, 48]))
    mask = draw(masks(B, T, S))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    options = {
        "softcap": draw(st.sampled_from([None, None, 3.0])),
        "dropout": draw(st.sampled_from([0.0, 0.0, 0.3])),
        "bias": draw(st.sampled_from([None, None, (T, S), (1, H_kv * group, 1, S), (B, 1, T, S)])),
        "scale": draw(st.sampled_from([None, 0.7 / np.sqrt(d)])),
    }
    if options["bias"] is not None:
        options["bias"] = rng.standard_normal(options["bias"]).astype(dtype)
    compare(*numbers(rng, B, H_kv * group, H_kv, T, S, d, d_v, dtype), dtype, mask=mask, **options)


@DTYPES
@pytest.mark.parametrize("offset", [0, 5, -2, np.array([0, 3])])
def test_query_offset(dtype, offset):
    arrays = numbers(np.random.default_rng(0), 2, 2, 1, 7, 41, 8, 11, dtype)
    compare(*arrays, dtype, mask=causal() & window(6), query_offset=offset)


def test_pitfall_01_a_query_that_sees_nothing():
    q, k, v = np.ones((1, 1, 2, 1)), np.zeros((1, 1, 2, 1)), np.array([1.0, 3.0]).reshape(1, 1, 2, 1)
    mask = np.array([[False, False], [True, True]])
    with np.errstate(all="raise"):
        o, backward = attention(q, k, v, mask=mask, scale=1.0)
        dq, dk, dv, _ = backward(np.ones_like(o), NO_BIAS)
    np.testing.assert_array_equal(o.ravel(), [0, 2])
    np.testing.assert_array_equal(dq.ravel(), [0, 0])
    np.testing.assert_allclose(dk.ravel(), [-0.5, 0.5])
    np.testing.assert_allclose(dv.ravel(), [0.5, 0.5])


def test_pitfall_03_and_04_window_and_alignment():
    def values(T, S, mask):
        v = np.arange(1.0, S + 1).reshape(1, 1, S, 1)
        return attention(np.zeros((1, 1, T, 1)), np.zeros((1, 1, S, 1)), v, mask=mask)[0].ravel()

    np.testing.assert_allclose(values(4, 4, window(2)), [1, 1.5, 2.5, 3.5])
    np.testing.assert_allclose(values(2, 5, causal()), [2.5, 3.0])
    np.testing.assert_allclose(values(5, 2, causal()), [0, 0, 0, 1, 1.5])


@DTYPES
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dense", [False, True])
def test_poison_what_nobody_sees_is_not_read(dtype, side, dense):
    lengths = np.array([90, 3])
    q, k, v, do = numbers(np.random.default_rng(0), 2, 2, 1, 37, 150, 8, 16, dtype)
    mask = padding(lengths, side)
    if dense:
        mask = mask.dense(2, 37, 150)
    o, backward = attention(q, k, v, mask=mask)
    clean = [o, *backward(do, NO_BIAS)[:3]]
    for b, n in enumerate(lengths):
        rows = slice(n, None) if side == "right" else slice(0, 150 - n)
        k[b, :, rows], v[b, :, rows] = np.nan, np.inf
    o, backward = attention(q, k, v, mask=mask)
    for a, c in zip([o, *backward(do, NO_BIAS)[:3]], clean):
        np.testing.assert_array_equal(a, c)


@DTYPES
def test_the_bits_do_not_depend_on_other_queries_or_threads(dtype):
    """Token by token with a cache, in chunks, or all at once; one thread or several."""
    T = 150
    q, k, v, do = numbers(np.random.default_rng(0), 2, 4, 2, T, T, 32, 8, dtype)

    def run():
        o, backward = attention(q, k, v, mask=causal())
        return o, *backward(do, NO_BIAS)[:3]

    whole = on_threads(run)[0]
    for chunk in (1, 7, 64):
        for start in range(0, T, chunk):
            end = min(T, start + chunk)
            part = attention(q[:, :, start:end], k[:, :, :end], v[:, :, :end], mask=causal())[0]
            np.testing.assert_array_equal(part, whole[:, :, start:end])


@DTYPES
def test_pitfall_10_packed_documents_are_as_if_alone(dtype):
    ids = np.repeat([0, 1, 2], [3, 70, 41])
    q, k, v, _ = numbers(np.random.default_rng(0), 1, 2, 2, len(ids), len(ids), 16, 16, dtype)
    whole = attention(q, k, v, mask=causal() & documents(ids))[0]
    first = attention(q[:, :, :3], k[:, :, :3], v[:, :, :3], mask=causal())[0]
    np.testing.assert_array_equal(whole[:, :, :3], first)
    changed = k.copy()
    changed[:, :, :3] += 1
    other = attention(q, changed, v, mask=causal() & documents(ids))[0]
    np.testing.assert_array_equal(other[:, :, 3:], whole[:, :, 3:])


@DTYPES
def test_pitfall_39_heads_in_place_and_other_layouts(dtype):
    arrays = numbers(np.random.default_rng(0), 2, 2, 2, 19, 23, 16, 8, dtype)
    expected = compare(*arrays, dtype)
    as_projected = [np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2) for a in arrays]
    fortran = [np.asfortranarray(a) for a in arrays]
    reversed_rows = [a[:, :, ::-1].copy()[:, :, ::-1] for a in arrays]
    for other in (as_projected, fortran, reversed_rows):
        for a, b in zip(compare(*other, dtype), expected):
            if b is not None:
                np.testing.assert_array_equal(a, b)
    assert attention(*as_projected[:3])[0].swapaxes(1, 2).flags.c_contiguous  # merging the heads copies nothing


def test_small_weights_behind_a_large_one_are_summed_as_they_are():
    """Values with 131,071 weights of 0.1: in one float32 chain, from a total of 8,192 on each would count as 0.0996."""
    S = 2**17
    q, k, v = np.ones((1, 1, 1, 1)), np.zeros((1, 1, S, 1)), np.random.default_rng(0).random((1, 1, S, 1))
    k[0, 0, 0] = np.log(10)
    compare(*(x.astype(np.float32) for x in (q, k, v, q)), np.float32, scale=1.0)
    o = attention(*(x.astype(np.float32) for x in (q, k, np.ones_like(v))), scale=1.0)[0]
    assert abs(o.item() - 1) <= 8 * np.finfo(np.float32).eps


def test_declines_what_it_cannot_do():
    q, k, v = np.zeros((1, 3, 2, 4)), np.zeros((1, 2, 5, 4)), np.zeros((1, 2, 5, 4))
    assert attention(q, k, v) is NotImplemented  # 2 does not divide 3
    assert attention(q[:, :2], k, v[:, :, :4]) is NotImplemented
    assert attention(q[:, :2, :0], k, v) is NotImplemented
    assert attention(q[:, :2], k, v, dropout=0.5) is NotImplemented  # no rng
    many = np.broadcast_to(k[:, :2, :1], (*q[:, :2].shape[:2], 2**24 + 1, k.shape[3]))  # positions beyond float32's
    assert attention(q[:, :2], many, many) is NotImplemented


def test_a_cap_too_small_for_the_dtype_is_left_to_the_definition():
    q = np.ones((1, 1, 3, 4), np.float32)
    assert attention(q, q, q, softcap=1e-50) is NotImplemented
    assert attention(q, q, q, softcap=0.5) is not NotImplemented


SHAPES = [(2, 4, 2, 70, 83, 24, 32), (8, 4, 4, 33, 40, 48, 40)]  # the second: its next head is asked for


@DTYPES
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mask", [None, causal(), window(9)])
def test_what_is_for_long_sequences_gives_the_same_bits(shape, mask, dtype, monkeypatch):
    """Copies of heads, also where the arrays have changed in the meantime, and twice as many queries in a task."""
    q, k, v, do = numbers(np.random.default_rng(0), *shape, dtype)

    def run():
        first, backward = attention(q, k, v, mask=mask)
        grads = backward(do, NO_BIAS)[:3]
        k[:] = -k
        second = attention(q, k, v, mask=mask)[0]
        k[:] = -k
        return first, *grads, second

    expected = on_threads(run)
    for a, b in zip(expected[:4], compare(q, k, v, do, dtype, mask=mask)):
        np.testing.assert_array_equal(a, b)
    assert (expected[0] != expected[-1]).any()
    for names in (("COPY",), ("LONG",), ("WIDE",), ("COPY", "LONG")):
        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(module, name, 1)
            for i, (a, b) in enumerate(zip(on_threads(run), expected)):
                if names == ("COPY",) or i in (0, 4):
                    np.testing.assert_array_equal(a, b)
                else:  # sums over queries in other groups
                    assert np.abs(a - b).max() <= 8 * np.finfo(dtype).eps * np.abs(b).max()
