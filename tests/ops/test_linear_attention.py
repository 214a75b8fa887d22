"""Linear attention: its own definition pair by pair, the chunks, and how far from softmax attention it is."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.masks import causal, documents, full, padding, window
from minitx.ops import attention, linear_attention


def normal(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def qkv(B=2, H=3, H_kv=3, T=5, S=5, d=7, d_v=11, seed=0):
    return normal((B, H, T, d), (B, H_kv, S, d), (B, H_kv, S, d_v), seed=seed)


def phi(x):
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def pair_by_pair(q, k, v, allowed):
    (B, H, T, _), (H_kv, S) = q.shape, k.shape[1:3]
    o = np.zeros((B, H, T, v.shape[3]))
    for b, h, i in np.ndindex(B, H, T):
        g = h // (H // H_kv)
        w = np.array([phi(q[b, h, i]) @ phi(k[b, g, j]) if allowed[b, i, j] else 0.0 for j in range(S)])
        if w.sum():
            o[b, h, i] = w @ v[b, g] / w.sum()
    return o


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_every_pair_by_itself(data):
    draw = data.draw
    B, H_kv, group = (draw(st.integers(1, 3)) for _ in range(3))
    T, S, d, d_v = draw(st.integers(0, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    q, k, v = qkv(B, H_kv * group, H_kv, T, S, d, d_v, seed=draw(st.integers(0, 99)))
    lengths = draw(st.lists(st.integers(0, S), min_size=B, max_size=B))
    pad = padding(lengths, draw(st.sampled_from(["left", "right"])))
    mask = draw(st.sampled_from([None, full(), causal(), pad, causal() & pad]))
    allowed = np.broadcast_to((mask or full()).dense(B, T, S), (B, T, S))
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        o = linear_attention(q, k, v, mask=mask, chunk=draw(st.integers(1, 4))).numpy()
    np.testing.assert_allclose(o, pair_by_pair(q, k, v, allowed), atol=1e-13)
    gradcheck(linear_attention, q, k, v, mask=mask, chunk=draw(st.integers(1, 4)))


@pytest.mark.parametrize("T", [63, 64, 65, 200])
def test_chunks_change_the_rounding_only(T):
    q, k, v = qkv(1, 2, 1, T, T, 3, 2)
    do, results = normal((1, 2, T, 2), seed=1)[0], []
    for chunk in (64, 7, 1000):
        leaves = [Tensor(a, requires_grad=True) for a in (q, k, v)]
        o = linear_attention(*leaves, mask=causal(), chunk=chunk)
        o.backward(do)
        results.append([o.numpy(), *(t.grad for t in leaves)])
    for other in results[1:]:
        for a, b in zip(other, results[0]):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_the_future_is_not_seen():
    q, k, v = qkv()
    before = linear_attention(q, k, v, mask=causal(), chunk=2).numpy()
    for x in (q, k, v):
        x[:, :, 3:] += 1
    after = linear_attention(q, k, v, mask=causal(), chunk=2).numpy()
    np.testing.assert_array_equal(after[:, :, :3], before[:, :, :3])


def test_padding_is_not_read():
    q, k, v = qkv(H=6)
    k[0, :, 2:] = v[0, :, 2:] = k[1] = v[1] = np.nan
    leaves = [Tensor(a, requires_grad=True) for a in (q, k, v)]
    with np.errstate(all="raise"):
        o = linear_attention(*leaves, mask=padding([2, 0]))
        o.backward(np.ones(o.shape))
    alone = linear_attention(q[:1], k[:1, :, :2], v[:1, :, :2]).numpy()
    np.testing.assert_allclose(o.numpy()[:1], alone, rtol=1e-13)
    np.testing.assert_array_equal(o.numpy()[1], 0)
    assert all(np.isfinite(t.grad).all() for t in leaves)


def test_with_one_key_it_is_attention():
    q, k, v = qkv(S=1)
    np.testing.assert_allclose(linear_attention(q, k, v).numpy(), attention(q, k, v).numpy(), rtol=1e-14)


def test_error_against_the_length():
    """The page's figures: relative error against softmax attention over the last quarter of the queries."""
    errors = {}
    for T in (16, 64, 256, 1024):
        q, k, v = np.random.default_rng(0).standard_normal((3, 1, 8, T, 16))
        exact, linear = (f(q, k, v, mask=causal()).numpy()[:, :, -T // 4 :] for f in (attention, linear_attention))
        errors[T] = float(np.linalg.norm(linear - exact) / np.linalg.norm(exact))
    assert errors == pytest.approx({16: 0.65, 64: 0.73, 256: 0.77, 1024: 0.77}, abs=0.01)


def test_the_weight_of_the_one_right_key_falls_with_the_length():
    """Queries that equal their keys: softmax finds them, linear attention a little less of them the longer the text."""
    own = []
    for T in (16, 64, 256):
        k = np.random.default_rng(0).standard_normal((1, 1, T, 16))
        k *= 8 / np.linalg.norm(k, axis=-1, keepdims=True)
        weights = [f(k, k, np.eye(T)[None, None]).numpy()[0, 0] for f in (attention, linear_attention)]
        own.append([np.diag(w).mean() for w in weights])
    softmax, linear = np.array(own).T
    assert softmax.min() > 0.95
    np.testing.assert_allclose(linear * [16, 64, 256], linear[0] * 16, rtol=0.1)


def test_float32_stays_float32():
    leaves = [Tensor(a.astype(np.float32), requires_grad=True) for a in qkv()]
    o = linear_attention(*leaves, mask=causal() & padding([3, 5]))
    o.backward(np.ones(o.shape, np.float32))
    assert {o.dtype, *(t.grad.dtype for t in leaves)} == {np.dtype(np.float32)}


def test_far_out():
    """φ of a key underflows to 0 on one side and grows without bound on the other; a query's scale does not count."""
    q, k = np.array([-1e4, 1e4]).reshape(1, 1, 2, 1), np.array([-1e4, 1e4]).reshape(1, 1, 2, 1)
    leaves = [Tensor(a, requires_grad=True) for a in (q, k, np.array([3.0, 5.0]).reshape(1, 1, 2, 1))]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        o = linear_attention(*leaves)
        o.backward(np.ones(o.shape))
    np.testing.assert_allclose(o.numpy().ravel(), [5, 5])
    assert all(np.isfinite(t.grad).all() for t in leaves)


@pytest.mark.parametrize(
    ("query", "key", "seen"),
    [(-60, -60, 1), (-46, -46, 1), (-200, -50, 1), (-1e30, 1, 1), (0, -75, 1), (0, -87, 1), (3, -200, 0)],
)
@pytest.mark.parametrize("mask", [None, causal()])
def test_one_key_has_all_the_weight_until_it_is_as_good_as_nothing(query, key, seen, mask):
    """o = v, do/dv = 1 and nothing else, in float32. φ(q) φ(k) underflows at -60, do / φ(k) overflows at -87."""
    leaves = [Tensor(np.full((1, 1, 1, 1), x, np.float32), requires_grad=True) for x in (query, key, 5)]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        o = linear_attention(*leaves, mask=mask)
        o.backward(np.full(o.shape, 1000, np.float32))
    assert o.item() == pytest.approx(5 * seen, rel=1e-6)
    assert leaves[2].grad.item() == pytest.approx(1000 * seen, rel=1e-6)
    for t in leaves[:2]:
        assert abs(t.grad.item()) <= 4 * 5000 * np.finfo(np.float32).eps


def test_a_factor_in_a_query_cancels():
    """Far below 0, x - 770 in all features of a query is φ(q) e^-770, which underflows in float64: the same o."""
    q, k, v = qkv()
    far = np.minimum(q, 0) - 30
    expected = linear_attention(far, k, v).numpy()
    np.testing.assert_allclose(linear_attention(far - 770, k, v).numpy(), expected, rtol=1e-11)
    np.testing.assert_allclose(linear_attention(q, np.minimum(k, 0) - 700, v).numpy(),
                               linear_attention(q, np.minimum(k, 0) - 5, v).numpy(), rtol=1e-11)  # fmt: skip


@pytest.mark.parametrize("mask", [window(2), documents([0, 0, 1, 1, 1]), causal() & window(2), np.ones((5, 5), bool)])
def test_masks_that_running_sums_cannot_do(mask):
    with pytest.raises(ValueError, match="one running sum of the keys: its mask is causal"):
        linear_attention(*qkv(), mask=mask)


def test_bad_input():
    q, k, v = qkv()
    with pytest.raises(ValueError, match="a chunk has at least one position, not 0"):
        linear_attention(q, k, v, chunk=0)
    with pytest.raises(ValueError, match="there is one value for every key"):
        linear_attention(q, k, v[:, :, :3])
    with pytest.raises(ValueError, match="only 5 keys"):
        linear_attention(q, k, v, mask=padding([6, 1]))
