"""The layers that came after 2017: RMSNorm, gates, rotary and relative positions, and attention made of them."""
import numpy as np
import pytest

from minitx import nn
from minitx.gradcheck import gradcheck, gradcheck_model
from minitx.masks import causal, padding, window
from minitx.ops import attention, concatenate, rms_norm, silu
from minitx.ops.position_bias import relative_positions
from minitx.tensor import Tensor

B, T, D, H = 2, 5, 12, 3


def rng(seed=0):
    return np.random.default_rng(seed)


def draw(*shape, seed=2):
    return rng(seed).standard_normal(shape)


def shaken(module, seed=1):
    """In float64, every parameter a little off its start: gains that are not 1, biases that are not 0."""
    r = rng(seed)
    module.astype(np.float64)
    for p in module.parameters():
        p.data = p.data + 0.2 * r.standard_normal(p.shape)
    return module


def layer(**options):
    return shaken(nn.MultiHeadAttention(D, H, rng=rng(), **options))


class Cache:
    def __init__(self):
        self.k = self.v = None

    def append(self, k, v, mask):
        self.k = k if self.k is None else concatenate(self.k, k, axis=2)
        self.v = v if self.v is None else concatenate(self.v, v, axis=2)
        return self.k, self.v, mask, None


# ---------------------------------------------------------------------- RMSNorm, gates, segments


def test_rms_norm_starts_with_a_gain_of_1_in_both_conventions():
    x = Tensor(draw(B, T, D).astype(np.float32))
    plain, shifted = nn.RMSNorm(D), nn.RMSNorm(D, offset=1.0)
    np.testing.assert_array_equal(plain(x).data, shifted(x).data)
    np.testing.assert_array_equal(shifted.weight.data, np.zeros(D))
    assert not plain.weight.decay
    assert plain(x).dtype == np.float32
    np.testing.assert_allclose((plain(x).data ** 2).mean(-1), 1, rtol=1e-5)
    assert repr(shifted) == "RMSNorm 12, eps 1e-06, gain 1 + w  [12]"


def test_rms_norm_is_the_same_in_training_and_inference():
    x, norm = Tensor(draw(B, T, D)), shaken(nn.RMSNorm(D, eps=1e-5, offset=1.0))
    y = norm(x).data
    np.testing.assert_array_equal(norm.eval()(x).data, y)
    np.testing.assert_array_equal(rms_norm(x, norm.weight, 1e-5, offset=1.0).data, y)


def test_gated_feedforward_is_its_equation():
    ff = shaken(nn.GatedFeedForward(D, 7, bias=True, rng=rng()))
    x = Tensor(draw(B, T, D))
    h = silu(ff.gate(x)) * ff.up(x)
    np.testing.assert_allclose(ff(x).data, ff.down(h).data, rtol=1e-14)
    gradcheck(ff, x)
    dy = draw(B, T, D, seed=3)
    gradcheck_model(lambda: (ff(x) * dy).sum(), ff)


@pytest.mark.parametrize("activation", ["glu", "reglu", "geglu", "geglu_tanh", "swiglu"])
def test_gates_have_three_matrices_and_no_biases(activation):
    ff = nn.GatedFeedForward(D, 7, activation, rng=rng())
    assert {name: p.shape for name, p in ff.named_parameters()} == {
        "gate.weight": (7, D), "up.weight": (7, D), "down.weight": (D, 7)
    }  # fmt: skip
    assert ff(Tensor(np.ones((2, D), np.float32))).dtype == np.float32


def test_an_unknown_gate():
    with pytest.raises(ValueError, match="the gate is one of glu, reglu, geglu, geglu_tanh, swiglu, not 'relu'"):
        nn.GatedFeedForward(D, 7, "relu", rng=rng())


def test_gated_dropout_is_off_in_evaluation():
    x = Tensor(draw(B, T, D).astype(np.float32))
    with_dropout, without = (nn.GatedFeedForward(D, 7, dropout=p, rng=rng()) for p in (0.5, 0.0))
    assert (with_dropout(x).data != without(x).data).any()
    np.testing.assert_array_equal(with_dropout.eval()(x).data, without(x).data)


def test_segments():
    segment, x = shaken(nn.SegmentEmbedding(2, D, rng=rng())), Tensor(draw(B, T, D))
    y = segment(x, [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]])
    np.testing.assert_array_equal(y.data[0, 3], x.data[0, 3] + segment.weight.data[1])
    np.testing.assert_array_equal(segment(x).data, segment(x, np.zeros(T, int)).data)
    with pytest.raises(IndexError, match=r"ids\[1\] is 2, but there are 2 rows"):
        segment(x, [0, 2, 0, 0, 0])
    with pytest.raises(ValueError, match="one segment per token"):
        segment(x, [0, 1])


# ---------------------------------------------------------------------- positions in attention


def rotary(**options):
    return nn.Rotary(D // H, **options)


def positional(name):
    """The layer's options for one method."""
    return {
        "rotary": lambda: {"rotary": rotary()},
        "part of the head, neighbours": lambda: {"rotary": rotary(rotary_dim=2, interleaved=True)},
        "yarn": lambda: {"rotary": rotary(scaling={"type": "yarn", "factor": 4.0, "original_length": 3})},
        "dynamic, length fixed": lambda: {
            "rotary": rotary(scaling={"type": "dynamic", "factor": 2.0, "original_length": 3, "length": 9})
        },
        "alibi": lambda: {"position_bias": nn.AlibiBias(H)},
        "relative": lambda: {
            "position_bias": shaken(nn.RelativeBias(H, 6, 5, bidirectional=False, rng=rng())), "scale": 1.0
        },
    }[name]()


methods = pytest.mark.parametrize(
    "method", ["rotary", "part of the head, neighbours", "yarn", "dynamic, length fixed", "alibi", "relative"]
)


@methods
def test_order_matters_and_only_distances_do(method):
    mha, x = layer(**positional(method)), draw(B, T, D)
    y = mha(Tensor(x)).data
    order = [1, 0, 2, 3, 4]
    assert np.abs(mha(Tensor(x[:, order])).data[:, order] - y).max() > 1e-4  # without positions: equal
    shifted = mha(Tensor(x), positions=np.arange(T) + 1000).data
    np.testing.assert_allclose(shifted, y, atol=1e-11)


@methods
@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1), (2, 3), (4, 1)])
def test_with_a_cache_chunks_equal_the_whole(method, chunks):
    mha, x, cache, start, parts = layer(kv_heads=1, **positional(method)), draw(B, T, D), Cache(), 0, []
    for n in chunks:
        positions = np.arange(start, start + n)
        parts.append(mha(Tensor(x[:, start : start + n]), mask=causal(), positions=positions, cache=cache).data)
        start += n
    np.testing.assert_allclose(np.concatenate(parts, 1), mha(Tensor(x), mask=causal()).data, rtol=1e-12, atol=1e-13)


@methods
def test_left_padding_changes_nothing(method):
    mha, x = layer(**positional(method)), draw(B, T, D)
    padded = np.concatenate([np.full((B, 2, D), 3.0), x], 1)
    y = mha(Tensor(padded), mask=causal() & padding([T] * B, "left")).data[:, 2:]
    np.testing.assert_allclose(y, mha(Tensor(x), mask=causal()).data, atol=1e-12)


@methods
def test_weights_are_those_that_were_used(method):
    mha, x = layer(softcap=3.0, window=3, **positional(method)), Tensor(draw(B, T, D))
    y, w = mha(x, bias=draw(1, 1, T, T, seed=5), weights=True)
    v = nn.split_heads(mha.value(x), H)
    np.testing.assert_allclose(mha.out(nn.merge_heads(Tensor(w @ v.data))).data, y.data, atol=1e-13)
    np.testing.assert_allclose(w.sum(-1), 1)
    assert (w[..., 4, :2] == 0).all()


@pytest.mark.parametrize("kernel", ["textbook", "tiled"])
def test_gradients_of_everything_at_once(kernel):
    mha = layer(
        kv_heads=1, head_dim=4, value_dim=5, rotary=nn.Rotary(4), qk_norm=nn.RMSNorm, softcap=2.0, scale=0.7,
        window=3, out_bias=False, position_bias=nn.RelativeBias(H, 4, 5, rng=rng()), kernel=kernel,
    )  # fmt: skip
    x = Tensor(draw(B, T, D))
    gradcheck(lambda x: mha(x, mask=padding([5, 4])), x)
    dy = draw(B, T, D, seed=4)
    gradcheck_model(lambda: (mha(x) * dy).sum(), mha)
    assert mha.out.weight.shape == (D, H * 5)
    assert mha.out.bias is None


def test_is_the_ops_put_together():
    mha = layer(head_dim=4, value_dim=5, qk_norm=nn.RMSNorm, rotary=nn.Rotary(4), softcap=2.0, scale=0.7, window=2)
    x = Tensor(draw(B, T, D))
    q, k, v = (nn.split_heads(p(x), H) for p in (mha.query, mha.key, mha.value))
    q, k = mha.rotary(mha.query_norm(q), np.arange(T)), mha.rotary(mha.key_norm(k), np.arange(T))
    o = attention(q, k, v, mask=window(2), softcap=2.0, scale=0.7)
    np.testing.assert_array_equal(mha(x).data, mha.out(nn.merge_heads(o)).data)


def test_query_key_norm_makes_the_scores_blind_to_the_size_of_the_projections():
    mha, x = layer(bias=False, qk_norm=lambda n: nn.RMSNorm(n, eps=0.0)), Tensor(draw(B, T, D))
    y = mha(x).data
    mha.query.weight.data *= 100
    np.testing.assert_allclose(mha(x).data, y, rtol=1e-12)
    assert {n for n, _ in mha.named_parameters()} >= {"query_norm.weight", "key_norm.weight"}


def test_kernels():
    x, options = Tensor(draw(B, T, D)), {"mask": causal() & padding([5, 3])}
    textbook, tiled, linear = (layer(kernel=kernel)(x, **options).data for kernel in ("textbook", "tiled", "linear"))
    np.testing.assert_allclose(tiled, textbook, rtol=1e-12)
    assert np.abs(linear - textbook).max() > 1e-3  # an approximation
    with pytest.raises(ValueError, match="attention kernel is one of textbook, tiled, linear, not 'flash'"):
        layer(kernel="flash")


def test_linear_attention_in_chunks_with_a_cache():
    mha, x, cache = layer(kernel="linear", rotary=rotary()), draw(B, T, D), Cache()
    whole = mha(Tensor(x), mask=causal()).data
    for part in (slice(0, 2), slice(2, 5)):
        y = mha(Tensor(x[:, part]), mask=causal(), positions=np.arange(T)[part], cache=cache).data
        np.testing.assert_allclose(y, whole[:, part], rtol=1e-12)


def test_linear_attention_has_no_scores():
    mha, x = layer(kernel="linear"), Tensor(draw(B, T, D))
    with pytest.raises(ValueError, match="never has the scores that a bias is added to"):
        mha(x, bias=np.zeros((1, 1, T, T)))
    with pytest.raises(ValueError, match="never makes its weights"):
        mha(x, weights=True)
    alibi = {"position_bias": nn.AlibiBias(H)}
    for options in ({"dropout": 0.1}, {"softcap": 1.0}, {"scale": 1.0}, {"window": 2}, alibi):
        with pytest.raises(ValueError, match="linear attention has no scores"):
            layer(kernel="linear", **options)


@pytest.mark.parametrize("options", [{"rotary": nn.Rotary(4)}, {"position_bias": nn.AlibiBias(H)}, {"window": 2}])
def test_distances_are_for_self_attention(options):
    with pytest.raises(ValueError, match="are for self-attention"):
        layer(**options)(Tensor(draw(B, T, D)), Tensor(draw(B, 3, D)))


# ---------------------------------------------------------------------- the position layers themselves


def test_pitfall_26_dynamic_scaling_refuses_a_cache_past_the_limit():
    mha = layer(rotary=rotary(scaling={"type": "dynamic", "factor": 2.0, "original_length": 3}))
    x, cache = Tensor(draw(B, 3, D)), Cache()
    mha(x, mask=causal(), positions=np.arange(3), cache=cache)  # up to the limit the base stands still
    with pytest.raises(ValueError, match=r"every length past 3, and keys in a cache are turned already \(position 3"):
        mha(Tensor(draw(B, 1, D)), mask=causal(), positions=[3], cache=cache)
    with pytest.raises(ValueError, match="with a cache rotary needs positions"):
        mha(x, cache=Cache())


def test_pitfall_16_casting_the_model_leaves_the_angles_alone():
    layer64, layer32 = rotary().astype(np.float64), rotary().astype(np.float32)
    x = draw(1, 1, 2, 4)
    far = [99_999, 1_000_003]
    wide = layer64(Tensor(x), far).data
    narrow = layer32(Tensor(x.astype(np.float32)), far)
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow.data, wide, atol=1e-6)
    assert not list(layer32.parameters())


def test_one_relative_bias_for_all_layers_counts_once():
    shared = nn.RelativeBias(H, rng=rng())
    stack = [nn.MultiHeadAttention(D, H, position_bias=shared, rng=rng()) for _ in range(3)]

    class Stack(nn.Module):
        def __init__(self):
            self.layers = stack

    names = [n for n, _ in Stack().named_parameters() if "position_bias" in n]
    assert names == ["layers.0.position_bias.weight"]
    assert not shared.weight.decay
    assert shared(2, 3).shape == (1, H, 2, 3)
    assert shared(2, 3).dtype == np.float32


def test_alibi_alone_does_not_tell_left_from_right():
    """It knows distances. A decoder's causal mask knows the direction; an encoder would need something else."""
    mha, x = layer(position_bias=nn.AlibiBias(H)), draw(B, T, D)
    np.testing.assert_allclose(mha(Tensor(x[:, ::-1])).data[:, ::-1], mha(Tensor(x)).data, rtol=1e-12)


def test_alibi_layer():
    bias = nn.AlibiBias(8)
    np.testing.assert_array_equal(bias(2, 3)[0, 0], -0.5 * np.abs(relative_positions(2, 3)[0]))
    assert bias(1, 3, np.array([0, 2])).shape == (2, 8, 1, 3)
    assert not list(bias.parameters())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.Rotary(5), "head_dim 5 is odd, so give an even rotary_dim"),
        (lambda: nn.Rotary(5, rotary_dim=3), "rotary_dim is even"),
        (lambda: nn.Rotary(4, rotary_dim=6), "rotary_dim is at most head_dim"),
        (lambda: nn.Rotary(4, base=0.5), "base is above 1"),
        (lambda: nn.Rotary(4, scaling={"type": "ntk"}), "one of linear, dynamic, yarn, llama3"),
        (lambda: nn.AlibiBias(0), "one slope per head"),
        (lambda: nn.RelativeBias(H, 7, rng=rng()), "an even number in all"),
        (lambda: layer(window=0), "counts the query itself"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_made(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_block_of_today():
    """Pre-RMSNorm, rotary, grouped heads, SwiGLU: causal, and its gradients are right."""
    mha = nn.MultiHeadAttention(D, H, kv_heads=1, bias=False, rotary=nn.Rotary(4), rng=rng())
    ff = nn.GatedFeedForward(D, 7, rng=rng())
    block = shaken(nn.DecoderBlock(mha, None, ff, lambda: nn.PreNorm(nn.RMSNorm(D), rng=rng())))
    x = draw(B, T, D)
    y = block(Tensor(x)).data
    x[:, 3:] += 1
    np.testing.assert_array_equal(block(Tensor(x)).data[:, :3], y[:, :3])
    gradcheck(block, Tensor(draw(1, 3, D)))
    dy = draw(B, T, D, seed=4)
    gradcheck_model(lambda: (block(Tensor(x)) * dy).sum(), block)
