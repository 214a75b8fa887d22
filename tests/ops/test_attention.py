import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.kernels.hash import draw_key, keep
from minitx.masks import causal, documents, full, padding, window
from minitx.ops import attention, attention_weights, tiled_attention


def normal(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def qkv(B=2, H=3, H_kv=3, T=3, S=5, d=7, d_v=11, seed=0):
    return normal((B, H, T, d), (B, H_kv, S, d), (B, H_kv, S, d_v), seed=seed)


def run(q, k, v, do, bias=None, **options):
    """Value and gradients of q, k, v and, where given, bias."""
    leaves = [Tensor(a, requires_grad=True) for a in (q, k, v)]
    if bias is not None:
        leaves.append(Tensor(bias, requires_grad=True))
        options["bias"] = leaves[3]
    o = attention(*leaves[:3], **options)
    o.backward(do)
    return [o.numpy(), *(t.grad for t in leaves)]


def same_bits(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        np.testing.assert_array_equal(x, y)


def column(*values):
    """One batch row, one head, one feature."""
    return np.array(values, float).reshape(1, 1, -1, 1)


# ---------------------------------------------------------------------- against the sentence "for every query ..."


def one_query_at_a_time(q, k, v, allowed, bias, scale, softcap):
    (B, H, T, _), (H_kv, S), d_v = q.shape, k.shape[1:3], v.shape[3]
    o = np.zeros((B, H, T, d_v))
    for b, h, i in np.ndindex(B, H, T):
        scores = {}
        for j in range(S):
            s = scale * sum(q[b, h, i] * k[b, h // (H // H_kv), j])
            s = s if softcap is None else softcap * math.tanh(s / softcap)
            if allowed[b, i, j]:
                scores[j] = s + bias[b, h, i, j]
        total = sum(math.exp(s) for s in scores.values())
        for j, s in scores.items():
            o[b, h, i] += math.exp(s) / total * v[b, h // (H // H_kv), j]
    return o


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_query_by_itself(data):
    draw = data.draw
    B, H_kv, group, T, S = (draw(st.integers(1, 3)) for _ in range(5))
    H, d, d_v = H_kv * group, draw(st.integers(1, 3)), draw(st.integers(1, 3))
    q, k, v = qkv(B, H, H_kv, T, S, d, d_v, seed=draw(st.integers(0, 99)))
    options = {
        "mask": draw(st.sampled_from([None, full(), causal(), window(2), causal() & padding([S - 1] * B, "left")])),
        "query_offset": draw(st.sampled_from([None, 0, S - 1, np.arange(B)])),
        "softcap": draw(st.sampled_from([None, 0.8])),
        "scale": draw(st.sampled_from([None, 0.4])),
    }
    shape = [draw(st.sampled_from([1, n])) for n in (B, H, T, S)]
    bias = normal(shape[draw(st.sampled_from([0, 2])) :])[0] if draw(st.booleans()) else None
    given_mask = options["mask"] if options["mask"] is not None else full()
    allowed = np.broadcast_to(given_mask.dense(B, T, S, options["query_offset"]), (B, T, S))
    expected = one_query_at_a_time(
        q, k, v, allowed, np.broadcast_to(0.0 if bias is None else bias, (B, H, T, S)),
        options["scale"] or 1 / math.sqrt(d), options["softcap"],
    )
    np.testing.assert_allclose(attention(q, k, v, bias=bias, **options).numpy(), expected, atol=1e-13)
    gradcheck(attention, q, k, v, **options, **({} if bias is None else {"bias": bias}))
    gradcheck(attention_weights, q, k, **options, **({} if bias is None else {"bias": bias}))


def test_weights_are_what_attention_uses():
    q, k, v = qkv(H=6)
    options = {"mask": causal() & padding([3, 5]), "softcap": 2.0, "bias": normal((1, 6, 3, 5))[0]}
    w = attention_weights(q, k, **options).numpy()
    np.testing.assert_allclose(w.sum(-1), 1, rtol=1e-14)
    np.testing.assert_allclose(attention(q, k, v, **options).numpy(), w @ v[:, np.arange(6) // 2], atol=1e-14)


# ---------------------------------------------------------------------- masks and alignment


@pytest.mark.parametrize("as_array", [False, True])
def test_pitfall_01_fully_masked_row(as_array):
    q, k, v = column(1, 1), column(0, 0), column(1, 3)
    mask = np.array([[False, False], [True, True]])
    with np.errstate(all="raise"):
        o, dq, dk, dv = run(q, k, v, np.ones((1, 1, 2, 1)), scale=1.0, mask=mask if as_array else full() & mask)
    np.testing.assert_array_equal(o.ravel(), [0, 2])
    np.testing.assert_array_equal(dq.ravel(), [0, 0])
    np.testing.assert_array_equal(dk.ravel(), [-0.5, 0.5])
    np.testing.assert_array_equal(dv.ravel(), [0.5, 0.5])


def test_pitfall_01_rows_masked_by_an_empty_sequence():
    """Row 1 of the batch has no keys at all; nothing of it is read, and its neighbours do not notice."""
    q, k, v = qkv()
    k[1], v[1] = np.nan, np.inf
    do = normal((2, 3, 3, 11), seed=1)[0]
    with np.errstate(all="raise"):
        o, dq, dk, dv = run(q, k, v, do, mask=padding([5, 0]))
    for whole, alone in zip((o, dq, dk, dv), run(q[:1], k[:1], v[:1], do[:1])):
        np.testing.assert_array_equal(whole[1], 0)
        np.testing.assert_allclose(whole[:1], alone, atol=1e-14)


def test_pitfall_03_window():
    zeros = column(0, 0, 0, 0)
    o = attention(zeros, zeros, column(1, 2, 3, 4), mask=window(2))
    np.testing.assert_array_equal(o.numpy().ravel(), [1, 1.5, 2.5, 3.5])


def test_pitfall_04_causal_bottom_right():
    def o(T, v, **options):
        return attention(column(*[0] * T), column(*[0] * len(v)), column(*v), mask=causal(), **options).numpy().ravel()

    np.testing.assert_allclose(o(2, [1, 2, 3, 4, 5]), [2.5, 3.0])
    np.testing.assert_allclose(o(2, [1, 2, 3, 4, 5], query_offset=0), [1.0, 1.5])  # upper left, if that is wanted
    np.testing.assert_allclose(o(5, [1, 2]), [0, 0, 0, 1, 1.5])


@pytest.mark.parametrize("mask", [causal(), window(2), window(3)])
def test_pitfall_03_04_chunks_equal_the_whole(mask):
    q, k, v = qkv(T=7, S=7)
    whole = attention(q, k, v, mask=mask).numpy()
    for sizes in ([3, 4], [1] * 7, [5, 1, 1], [2, 5]):
        done = 0
        for n in sizes:
            new = slice(done, done + n)
            part = attention(q[:, :, new], k[:, :, : done + n], v[:, :, : done + n], mask=mask)
            np.testing.assert_allclose(part.numpy(), whole[:, :, new], atol=1e-14)
            done += n


def test_offset_per_row_is_a_cache_filled_differently():
    """Two rows of a batch with 2 and 4 keys in a cache of 6 slots, and one new query each."""
    q, k, v = qkv(T=1, S=6)
    both = attention(q, k, v, mask=causal() & padding([3, 5]), query_offset=np.array([2, 4])).numpy()
    for b, n in enumerate([3, 5]):
        row = slice(b, b + 1)
        alone = attention(q[row], k[row, :, :n], v[row, :, :n], mask=causal()).numpy()
        np.testing.assert_allclose(both[row], alone, atol=1e-14)


def test_pitfall_10_packed_documents():
    """Two documents of 3 and 2 tokens in one row: as if each were alone, and no gradient across."""
    q, k, v = qkv(B=1, T=5)
    mask = documents([0, 0, 0, 1, 1]) & causal()
    do = normal((1, 3, 5, 11), seed=1)[0]
    do[:, :, :3] = 0  # a loss on document b only
    o, dq, dk, dv = run(q, k, v, do, mask=mask)
    alone = run(*(a[:, :, 3:] for a in (q, k, v, do)), mask=causal())
    for whole, b in zip((o, dq, dk, dv), alone):
        np.testing.assert_allclose(whole[:, :, 3:], b, rtol=1e-12, atol=1e-14)
    for whole in (dq, dk, dv):
        np.testing.assert_array_equal(whole[:, :, :3], 0)
    for a in (q, k, v):
        a[:, :, :3] += 1
    np.testing.assert_array_equal(attention(q, k, v, mask=mask).numpy()[:, :, 3:], o[:, :, 3:])


def test_pitfall_31_true_means_may_see():
    q, k, v = qkv(S=2)
    first = np.broadcast_to(v[:, :, :1], (2, 3, 3, 11))
    keys = np.array([True, False])
    for mask in (keys[None], *(np.tile(keys, (*n, 1)) for n in ((3,), (2, 3), (2, 3, 3))), padding([1, 1])):
        np.testing.assert_array_equal(attention(q, k, v, mask=mask).numpy(), first)
    bias = np.where(keys, 0, -np.inf)[None]
    np.testing.assert_array_equal(attention(q, k, v, bias=bias).numpy(), first)
    np.testing.assert_array_equal(attention(q, k, v, bias=bias, mask=np.ones((3, 2), bool)).numpy(), first)


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_pitfall_31_numbers_are_no_mask(dtype):
    q, k, v = qkv()
    with pytest.raises(TypeError, match=r"a mask is boolean, True = may see.*bias="):
        attention(q, k, v, mask=np.ones((3, 5), dtype))


def test_minus_infinity_in_bias_is_a_mask():
    q, k, v = qkv()
    hidden = np.random.default_rng(5).random((2, 1, 3, 5)) < 0.5
    hidden[0, 0, 1] = True  # a query that sees nothing
    do, bias = normal((2, 3, 3, 11), (2, 1, 3, 5), seed=1)
    with np.errstate(all="raise"):
        by_bias = run(q, k, v, do, np.where(hidden, -np.inf, bias))
        by_mask = run(q, k, v, do, bias, mask=~hidden)
    same_bits(by_bias, by_mask)
    np.testing.assert_array_equal(by_bias[4][hidden], 0)


# ---------------------------------------------------------------------- poison

NOT_THE_SECOND = np.array([[0.1, -np.inf, 0.2, 0.3, 0.4]])


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("H_kv", [3, 1])
@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"mask": padding([3, 5])}, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
        ({"mask": padding([2, 4], "left")}, [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]]),
        ({"mask": causal(), "query_offset": 0}, [[1, 1, 1, 0, 0]] * 2),
        ({"mask": causal(), "query_offset": np.array([1, -2])}, [[1, 1, 1, 1, 0], [1, 0, 0, 0, 0]]),
        ({"mask": window(2)}, [[0, 1, 1, 1, 1]] * 2),
        ({"mask": np.array([True, False, True, True, False])[None]}, [[1, 0, 1, 1, 0]] * 2),
        ({"bias": NOT_THE_SECOND}, [[1, 0, 1, 1, 1]] * 2),
        ({"bias": NOT_THE_SECOND, "mask": padding([3, 5])}, [[1, 0, 1, 0, 0], [1, 0, 1, 1, 1]]),
        ({"mask": padding([3, 5]), "softcap": 1.5}, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
    ],
)
def test_keys_that_nobody_may_see_are_not_read(options, seen, H_kv, poison):
    q, k, v = qkv(H_kv=H_kv)
    do = normal((2, 3, 3, 11), seed=1)[0]
    expected = run(q, k, v, do, **options)
    hidden = np.broadcast_to(~np.array(seen, bool)[:, None, :], k.shape[:3])
    k[hidden] = v[hidden] = poison
    with np.errstate(invalid="raise", over="raise", divide="raise"):
        same_bits(run(q, k, v, do, **options), expected)
    weights = attention_weights(q, k, **options).numpy()
    assert np.isfinite(weights).all()


def test_a_key_that_somebody_sees_is_read():
    q, k, v = qkv()
    v[0, 0, 4] = np.nan
    o = attention(q, k, v, mask=causal()).numpy()
    assert np.isnan(o[0, 0]).all()  # seen by the last query only, but then its row has to be finite
    assert np.isfinite(o[0, 1:]).all()
    assert np.isfinite(o[1]).all()


# ---------------------------------------------------------------------- groups, bias, cap, dropout


def test_groups_are_repeated_heads_and_their_gradients_are_summed():
    q, k, v = qkv(H=6, H_kv=3)
    do = normal((2, 6, 3, 11), seed=1)[0]
    o, dq, dk, dv = run(q, k, v, do, mask=causal())
    o2, dq2, dk2, dv2 = run(q, k.repeat(2, 1), v.repeat(2, 1), do, mask=causal())
    np.testing.assert_allclose(o, o2, atol=1e-14)
    np.testing.assert_allclose(dq, dq2, atol=1e-14)
    np.testing.assert_allclose(dk, dk2.reshape(2, 3, 2, 5, 7).sum(2), atol=1e-14)
    np.testing.assert_allclose(dv, dv2.reshape(2, 3, 2, 5, 11).sum(2), atol=1e-14)


@pytest.mark.parametrize(
    "shape", [(3, 5), (1, 5), (1, 1), (2, 3, 3, 5), (1, 3, 3, 5), (2, 1, 3, 5), (1, 3, 1, 5), (1, 1, 1, 1)]
)
def test_bias_gradient_is_summed_where_bias_was_repeated(shape):
    q, k, v = qkv()
    do, bias = normal((2, 3, 3, 11), shape, seed=1)
    repeated = np.broadcast_to(bias, (2, 3, 3, 5)).copy()
    whole = run(q, k, v, do, repeated)[4]
    axes = tuple(i for i, n in enumerate((1,) * (4 - len(shape)) + shape) if n != whole.shape[i])
    expected = whole.sum(axes, keepdims=True).reshape(shape)
    np.testing.assert_allclose(run(q, k, v, do, bias)[4], expected, atol=1e-14)


def test_softcap_bounds_the_scores_before_the_bias():
    q, k = column(100, -100), column(100)
    k = np.concatenate([k, column(0)], 2)
    w = attention_weights(q, k, scale=1.0, softcap=2.0, bias=np.array([[0.0, 1.0]])).numpy()[0, 0]
    e = np.exp([[2.0, 1.0], [-2.0, 1.0]])
    np.testing.assert_allclose(w, e / e.sum(1, keepdims=True))


def test_scale_is_one_over_root_d():
    q, k, v = qkv(d=16)
    np.testing.assert_array_equal(attention(q, k, v).numpy(), attention(q, k, v, scale=0.25).numpy())
    assert attention(*(a.astype(np.float32) for a in (q, k, v)), scale=np.float64(0.25)).dtype == np.float32


@pytest.mark.parametrize("H_kv", [6, 3])
def test_dropout_falls_on_weights_by_their_flat_index(H_kv):
    """Element (b, h, i, j) of (B, H, T, S), in C order, whatever the grouping of the heads."""
    q, k, v = qkv(H=6, H_kv=H_kv)
    v = np.broadcast_to(np.eye(5), (2, H_kv, 5, 5)).copy()  # so that the output is the weights
    w = attention_weights(q, k).numpy()
    m = keep(draw_key(np.random.default_rng(3)), (2, 6, 3, 5), 0.4) / 0.6
    o = attention(q, k, v, dropout=0.4, rng=np.random.default_rng(3)).numpy()
    np.testing.assert_allclose(o, m * w, atol=1e-15)


def test_pitfall_33_dropout_of_everything():
    q, k, v = qkv()
    for a in run(q, k, v, np.ones((2, 3, 3, 11)), dropout=1.0):
        np.testing.assert_array_equal(a, 0)


def test_large_scores():
    for dtype in (np.float32, np.float64):
        q, k, v = (a.astype(dtype) for a in qkv())
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            for a in run(q * 1e9, k * 1e9, v, np.ones((2, 3, 3, 11), dtype), mask=causal()):
                assert np.isfinite(a).all()
                assert a.dtype == dtype


@pytest.mark.parametrize(("T", "S", "B"), [(0, 5, 2), (3, 0, 2), (0, 0, 2), (3, 5, 0)])
@pytest.mark.parametrize("mask", [None, causal(), full() & np.ones((1, 1, 1, 0), bool)])
def test_pitfall_35_no_queries_no_keys_no_rows(T, S, B, mask):
    if mask is not None and "boolean" in repr(mask):
        mask = causal() & np.ones((T, S), bool)
    q, k, v = qkv(B=B, T=T, S=S)
    do, bias = normal((B, 3, T, 11), (1, 3, T, S), seed=1)
    o, dq, dk, dv, dbias = run(q, k, v, do, bias, mask=mask)
    assert o.shape == do.shape
    assert [g.shape for g in (dq, dk, dv, dbias)] == [a.shape for a in (q, k, v, bias)]
    if S == 0:
        np.testing.assert_array_equal(o, 0)
    if T == 0:
        np.testing.assert_array_equal(dk, 0)
        np.testing.assert_array_equal(dv, 0)


def test_differs_from_pytorch_in_the_alignment_of_causal():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    q, k, v = qkv(T=2, S=5)
    theirs = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)), is_causal=True).numpy()
    np.testing.assert_allclose(attention(q, k, v, mask=causal(), query_offset=0).numpy(), theirs, atol=1e-14)
    assert np.abs(attention(q, k, v, mask=causal()).numpy() - theirs).max() > 0.1


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": (2, 3, 7)}, r"q is \(B, H, T, d\).*not \(2, 3, 7\), \(2, 3, 5, 7\), \(2, 3, 5, 11\)"),
        ({"q": (2, 3, 3, 13)}, r"one batch and one last axis; q is \(2, 3, 3, 13\), k is \(2, 3, 5, 7\)"),
        ({"q": (1, 3, 3, 7)}, "one batch and one last axis"),
        ({"q": (2, 5, 3, 7)}, "3 key heads do not divide 5 query heads"),
        ({"v": (2, 3, 3, 11)}, r"one value for every key; k is \(2, 3, 5, 7\), v is \(2, 3, 3, 11\)"),
        ({"v": (2, 1, 5, 11)}, "one value for every key"),
        ({"bias": np.zeros((2, 3, 5))}, r"bias is \(T, S\) or.*not \(2, 3, 5\); one matrix per head is bias\[None\]"),
        ({"bias": np.zeros((5, 3))}, r"not \(5, 3\)"),
        ({"bias": np.zeros((2, 7, 3, 5))}, r"not \(2, 7, 3, 5\)"),
        ({"mask": np.ones((2, 7, 3, 5), bool)}, "the mask has 7 heads, and the queries have 3"),
        ({"mask": padding([3])}, "for a batch of 1, and this batch is 2"),
        ({"softcap": 0.0}, "softcap bounds the scores, so it is above 0"),
        ({"softcap": float("nan")}, "above 0"),
        ({"softcap": float("inf")}, "above 0 and finite.*not inf"),
        ({"dropout": 1.5}, "attention: dropout is between 0 and 1"),
        ({"query_offset": np.array([1, 2, 3]), "mask": causal()}, "one integer per batch row"),
    ],
)
def test_errors(change, message):
    arrays = dict(zip("qkv", qkv()))
    arrays |= {n: np.zeros(change.pop(n)) for n in "qkv" if n in change}
    with pytest.raises(ValueError, match=message):
        attention(**arrays, **change)


def test_dropout_wants_a_generator():
    with pytest.raises(TypeError, match="default_rng"):
        attention(*qkv(), dropout=0.5)


@pytest.mark.parametrize("softcap", [1e-50, 1e50])
def test_a_softcap_that_float32_does_not_have_is_refused_there(softcap):
    q, k, v = qkv()
    assert np.isfinite(attention(q, k, v, softcap=softcap).numpy()).all()
    for f in (attention, tiled_attention):
        with np.errstate(over="raise", under="ignore"), pytest.raises(ValueError, match="as a number of their dtype"):
            f(*(a.astype(np.float32) for a in (q, k, v)), softcap=softcap)
