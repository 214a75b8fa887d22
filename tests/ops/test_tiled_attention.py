"""Tiled attention: the textbook's values and gradients, for every mask, every option and every size of tile."""
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitx
from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.kernels.hash import keep, keep_at
from minitx.masks import causal, documents, full, padding, window
from minitx.ops import attention, tiled_attention


def normal(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def qkv(B=2, H=3, H_kv=3, T=3, S=5, d=7, d_v=11, seed=0):
    return normal((B, H, T, d), (B, H_kv, S, d), (B, H_kv, S, d_v), seed=seed)


def run(f, q, k, v, do, bias=None, **options):
    """Value and gradients of q, k, v and, where given, bias."""
    leaves = [Tensor(a, requires_grad=True) for a in (q, k, v)]
    if bias is not None:
        leaves.append(Tensor(bias, requires_grad=True))
        options["bias"] = leaves[3]
    with minitx.reference():
        o = f(*leaves[:3], **options)
        o.backward(do)
    return [o.numpy(), *(t.grad for t in leaves)]


def column(*values):
    """One batch row, one head, one feature."""
    return np.array(values, float).reshape(1, 1, -1, 1)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_equals_the_textbook(data):
    draw = data.draw
    B, H_kv, group = (draw(st.integers(1, 3)) for _ in range(3))
    T, S = draw(st.integers(0, 7)), draw(st.integers(0, 7))
    H, d, d_v = H_kv * group, draw(st.integers(1, 3)), draw(st.integers(1, 3))
    q, k, v = qkv(B, H, H_kv, T, S, d, d_v, seed=draw(st.integers(0, 99)))
    lengths = draw(st.lists(st.integers(0, S), min_size=B, max_size=B))
    dense = np.random.default_rng(0).random((B, draw(st.sampled_from([1, H])), T, S)) < 0.5
    of_masks = [None, full(), causal(), window(2), causal() & padding(lengths, "left"), padding(lengths), dense]
    if T == S:
        of_masks.append(causal() & documents(np.sort(np.arange(S) % 3)))
    options = {
        "mask": draw(st.sampled_from(of_masks)),
        "query_offset": draw(st.sampled_from([None, 0, np.arange(B)])) if T < S - B else None,
        "softcap": draw(st.sampled_from([None, 0.8])),
        "scale": draw(st.sampled_from([None, 0.4])),
    }
    bias = None
    if kind := draw(st.sampled_from(["", "finite", "-inf"])):
        shape = [draw(st.sampled_from([1, n])) for n in (B, H, T, S)]
        bias = normal(shape[draw(st.sampled_from([0, 2])) :])[0]
        if kind == "-inf":
            bias = np.where(np.random.default_rng(1).random(bias.shape) < 0.4, -np.inf, bias)
    do = normal((B, H, T, d_v), seed=1)[0]
    blocks = {"block_q": draw(st.integers(1, 4)), "block_k": draw(st.integers(1, 4))}
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        tiled = run(tiled_attention, q, k, v, do, bias, **options, **blocks)
    for a, b in zip(tiled, run(attention, q, k, v, do, bias, **options), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("block", [1, 2, 128])
def test_pitfall_01_fully_masked_row(block):
    q, k, v = column(1, 1), column(0, 0), column(1, 3)
    mask = np.array([[False, False], [True, True]])
    with np.errstate(all="raise"):
        o, dq, dk, dv = run(
            tiled_attention, q, k, v, np.ones((1, 1, 2, 1)), scale=1.0, mask=mask, block_q=2, block_k=block
        )
    np.testing.assert_array_equal(o.ravel(), [0, 2])
    np.testing.assert_allclose(dq.ravel(), [0, 0], atol=1e-15)
    np.testing.assert_allclose(dk.ravel(), [-0.5, 0.5], rtol=1e-14)
    np.testing.assert_allclose(dv.ravel(), [0.5, 0.5], rtol=1e-14)


def test_pitfall_01_the_first_tile_of_a_row_is_masked():
    """The maximum is still -inf when the second tile comes; a neighbour keeps the first tile from being skipped."""
    q, k, v = column(1, 1), column(0, 5), column(1, 3)
    mask = np.array([[True, True], [False, True]])
    with np.errstate(all="raise"):
        o, dq, dk, dv = run(tiled_attention, q, k, v, np.ones((1, 1, 2, 1)), mask=mask, block_q=2, block_k=1)
    assert o.ravel()[1] == 3
    for a, b in zip((o, dq, dk, dv), run(attention, q, k, v, np.ones((1, 1, 2, 1)), mask=mask)):
        np.testing.assert_allclose(a, b, atol=1e-15)


@pytest.mark.parametrize("order", [1, -1])
def test_large_scores_in_any_order(order):
    """The maximum rises from tile to tile, or stands in the first one; nothing overflows."""
    k = column(*[0, 300, 600, 900, 1200][::order]).astype(np.float32)
    q, v = column(1).astype(np.float32), column(1, 2, 3, 4, 5).astype(np.float32)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        o, dq, dk, dv = run(tiled_attention, q, k, v, np.ones((1, 1, 1, 1), np.float32), scale=1.0, block_k=1)
    assert o.dtype == dq.dtype == dk.dtype == dv.dtype == np.float32
    assert o.item() == (5 if order == 1 else 1)


@pytest.mark.parametrize("as_bias", [False, True])
def test_keys_that_nobody_sees_are_not_read(as_bias):
    q, k, v = qkv()
    do = normal((2, 3, 3, 11), seed=1)[0]
    visible = padding([3, 0]).dense(2, 3, 5)
    options = {"bias": np.where(visible, 0.0, -np.inf)[:, None]} if as_bias else {"mask": padding([3, 0])}
    clean = run(tiled_attention, q, k, v, do, block_k=2, **options)
    k[0, :, 3:] = v[0, :, 3:] = k[1] = v[1] = np.nan
    with np.errstate(all="raise"):
        poisoned = run(tiled_attention, q, k, v, do, block_k=2, **options)
    for a, b in zip(poisoned, clean):
        np.testing.assert_array_equal(a, b)


def test_pitfall_10_documents_across_tiles():
    q, k, v = qkv(T=5, S=5)
    do = normal((2, 3, 5, 11), seed=1)[0]
    options = {"mask": causal() & documents([0, 0, 0, 1, 1]), "block_q": 2, "block_k": 2}
    before = run(tiled_attention, q, k, v, do, **options)
    for x in (q, k, v):
        x[:, :, :3] += 1
    after = run(tiled_attention, q, k, v, do, **options)
    for a, b in zip(after, before):
        np.testing.assert_array_equal(a[:, :, 3:], b[:, :, 3:])


def test_pitfall_33_dropout_is_the_textbooks():
    """The same generator, the same weights dropped, whatever the tiles; one key drawn."""
    q, k, v = qkv(H=6)
    do = normal((2, 6, 3, 11), seed=1)[0]
    for p in (0.0, 0.4, 1.0):
        rngs = [np.random.default_rng(5) for _ in range(2)]
        tiled = run(tiled_attention, q, k, v, do, dropout=p, rng=rngs[0], block_q=2, block_k=3)
        for a, b in zip(tiled, run(attention, q, k, v, do, dropout=p, rng=rngs[1]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-14)
        assert rngs[0].bit_generator.state == rngs[1].bit_generator.state
    with pytest.raises(TypeError, match="rng is a numpy Generator"):
        tiled_attention(q, k, v, dropout=0.5)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_a_part_of_the_hash_is_the_part_of_the_whole(p):
    whole = keep(12345, (7, 11), p)
    index = np.arange(77, dtype=np.uint64).reshape(7, 11)[2:5, 3:8]
    np.testing.assert_array_equal(keep_at(12345, index, p), whole[2:5, 3:8])
    np.testing.assert_array_equal(index.ravel()[:2], [25, 26])  # left alone


def test_gradients_by_differences():
    q, k, v = qkv(H=6, d=2, d_v=3)
    gradcheck(tiled_attention, q, k, v, mask=causal(), softcap=1.5, bias=normal((1, 6, 3, 5))[0], block_q=2, block_k=2)


def test_memory_does_not_grow_with_the_square():
    """T x S weights of 4 heads would be 33 MB here."""
    q, k, v = (a.astype(np.float32) for a in qkv(1, 4, 4, 1024, 2048, 4, 4))
    do = np.ones((1, 4, 1024, 4), np.float32)
    tracemalloc.start()
    run(tiled_attention, q, k, v, do, mask=causal() & window(500))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


def test_bad_input():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="a tile has at least one query and key, not 0 and 4"):
        tiled_attention(q, k, v, block_q=0, block_k=4)
    with pytest.raises(ValueError, match="q and k have one batch and one last axis"):
        tiled_attention(q, k[..., :3], v)
    with pytest.raises(TypeError, match="a mask is boolean"):
        tiled_attention(q, k, v, mask=np.ones((3, 5)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_common_offset_does_not_change_the_weights(dtype):
    """With only the log-sum-exp saved, M + log l = M, and backward's weights would sum to S."""
    q, v = np.zeros((1, 1, 1, 1)), np.arange(1.0, 5.0).reshape(1, 1, 4, 1)
    inputs = [Tensor(a.astype(dtype), requires_grad=True) for a in (q, v - 1, v)]
    bias = np.full((1, 1, 1, 4), -1e9 if dtype == np.float32 else -1e18)
    tiled_attention(*inputs, bias=bias).backward(np.ones((1, 1, 1, 1)))
    np.testing.assert_allclose(inputs[0].grad.ravel(), [1.25], rtol=1e-6)
    np.testing.assert_allclose(inputs[2].grad.ravel(), [0.25] * 4, rtol=1e-6)


def test_a_bias_with_minus_inf_that_is_shared_by_all_queries():
    q, k, v = qkv(2, 1, 1, 2, 2, 1, 1, seed=0)
    bias = np.array([0.5, -np.inf, -np.inf, 0.3]).reshape(2, 1, 1, 2)
    do = normal((2, 1, 2, 1), seed=1)[0]
    tiled = run(tiled_attention, q, k, v, do, bias, block_q=1, block_k=1)
    for a, b in zip(tiled, run(attention, q, k, v, do, bias), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
