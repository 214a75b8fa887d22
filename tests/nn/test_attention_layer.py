"""Multi-head attention: the split into heads, grouped heads, cross-attention, and a cache."""
import numpy as np
import pytest

from minitx import nn, settings
from minitx.gradcheck import gradcheck, gradcheck_model
from minitx.masks import causal, padding
from minitx.ops import concatenate
from minitx.tensor import Tensor

B, T, S, D, H = 2, 3, 5, 12, 4


def layer(seed=0, **options):
    attention = nn.MultiHeadAttention(D, H, rng=np.random.default_rng(seed), **options)
    rng = np.random.default_rng(seed + 1)
    for p in attention.parameters():
        p.data = p.data + 0.1 * rng.standard_normal(p.shape)
    return attention.astype(np.float64)


def draw(*shape, seed=2):
    return np.random.default_rng(seed).standard_normal(shape)


def test_pitfall_30_heads_are_split_by_features():
    x = Tensor([[[0, 1, 2, 3], [4, 5, 6, 7]]])
    heads = nn.split_heads(x, 2)
    np.testing.assert_array_equal(heads.data[0], [[[0, 1], [4, 5]], [[2, 3], [6, 7]]])
    np.testing.assert_array_equal(nn.merge_heads(heads).data, x.data)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("head_dim", [None, 7])
def test_equals_plain_loops(kv_heads, head_dim):
    attention = layer(kv_heads=kv_heads, head_dim=head_dim)
    width = head_dim or D // H
    x, memory = draw(B, T, D), draw(B, S, D, seed=3)
    visible = np.arange(S) < np.array([5, 2])[:, None]

    def project(p, z):
        return z @ p.weight.data.T + p.bias.data

    q, k, v = project(attention.query, x), project(attention.key, memory), project(attention.value, memory)
    joined = np.zeros((B, T, H * width))
    for b in range(B):
        for t in range(T):
            for h in range(H):
                g = h // (H // kv_heads)
                scores = np.array([q[b, t, h * width : (h + 1) * width] @ k[b, s, g * width : (g + 1) * width]
                                   for s in range(S)]) / np.sqrt(width)  # fmt: skip
                w = np.where(visible[b], np.exp(scores), 0)
                joined[b, t, h * width : (h + 1) * width] = (w / w.sum()) @ v[b, :, g * width : (g + 1) * width]
    expected = project(attention.out, joined)
    y = attention(Tensor(x), Tensor(memory), mask=padding([5, 2]))
    np.testing.assert_allclose(y.data, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_gradients_of_everything(kv_heads):
    attention = layer(kv_heads=kv_heads)
    x, memory = Tensor(draw(B, T, D)), Tensor(draw(B, S, D, seed=3))
    gradcheck(lambda x, m: attention(x, m, mask=padding([5, 2])), x, memory)
    gradcheck(lambda x: attention(x, mask=causal()), x)
    dy = draw(B, T, D, seed=4)
    gradcheck_model(lambda: (attention(x, memory) * dy).sum(), attention)


def test_the_weights_are_those_that_were_used():
    attention = layer()
    x = Tensor(draw(B, T, D))
    y, weights = attention(x, mask=causal(), weights=True)
    assert isinstance(weights, np.ndarray)
    assert weights.shape == (B, H, T, T)
    np.testing.assert_allclose(weights.sum(-1), 1)
    assert (np.triu(weights, 1) == 0).all()
    np.testing.assert_array_equal(y.data, attention(x, mask=causal()).data)


class Cache:
    def __init__(self):
        self.k = self.v = None

    def append(self, k, v, mask):
        self.k = k if self.k is None else concatenate(self.k, k, axis=2)
        self.v = v if self.v is None else concatenate(self.v, v, axis=2)
        return self.k, self.v, mask, None


@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (2, 3), (4, 1)])
def test_with_a_cache_chunks_equal_the_whole(chunks):
    attention = layer(kv_heads=2)
    x, cache, start, parts = draw(B, S, D), Cache(), 0, []
    for n in chunks:
        parts.append(attention(Tensor(x[:, start : start + n]), mask=causal(), cache=cache).data)
        start += n
    whole = attention(Tensor(x), mask=causal()).data
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, rtol=1e-12, atol=1e-13)


def test_pitfall_33_attention_dropout_is_off_in_evaluation():
    x = Tensor(draw(B, T, D))
    with_dropout, without = layer(dropout=0.5), layer()
    assert (with_dropout(x).data != without(x).data).any()
    np.testing.assert_array_equal(with_dropout.eval()(x).data, without.eval()(x).data)


class Watcher:
    """Who looks on gets every part, op by op."""

    def __init__(self):
        self.seen = []

    def forward(self, op, arrays, options, out, node):
        self.seen.append(op.name)

    def backward(self, node, dy, grads):
        pass


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("crossed", [False, True])
def test_by_one_op_or_by_its_parts(kv_heads, crossed):
    """The same values, gradients and dropout; a part that was replaced, or is another kind's, is not passed over."""
    options = {"kv_heads": kv_heads, "dropout": 0.3, "softcap": 3.0} | ({} if crossed else {"window": 2})

    def run(watched, kind=nn.MultiHeadAttention):
        attention = layer(**options)
        attention.__class__ = kind
        x, memory, residual = (Tensor(draw(B, n, D, seed=n), requires_grad=True) for n in (T, S, T))
        mask = padding([2, 5]) if crossed else None
        with settings.changed(observer=watched):
            y = attention(x, memory if crossed else None, mask=mask, residual=residual)
        y.backward(draw(*y.shape, seed=9))
        leaves = [x, residual, *attention.parameters(), *([memory] if crossed else [])]
        return [y.numpy(), *[leaf.grad for leaf in leaves]]

    class Doubled(nn.MultiHeadAttention):
        def mixed(self, o, residual):
            return super().mixed(2 * o, residual)

    watcher = Watcher()
    short, long, other = run(None), run(watcher), run(None, Doubled)
    assert "attention" in watcher.seen
    for a, b in zip(short, long, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-13)
    assert np.abs(other[0] - short[0]).max() > 0.01


def test_methods_replaced_on_an_instance_are_called():
    x = Tensor(draw(B, T, D))
    for name in ("mixed", "of_itself", "keys_and_values"):
        attention, called = layer(), []
        method = getattr(attention, name)
        setattr(attention, name, lambda *a, method=method, called=called: called.append(1) or method(*a))
        attention(x, x if name == "keys_and_values" else None)
        assert called


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((10, 4), "heads divides d_model"), ((12, 4, 3), "kv_heads divides heads"), ((12, 0), "kv_heads divides heads")],
)
def test_heads_that_do_not_divide(arguments, words):
    with pytest.raises(ValueError, match=words):
        nn.MultiHeadAttention(*arguments, rng=np.random.default_rng(0))
