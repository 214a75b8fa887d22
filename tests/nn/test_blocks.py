"""Blocks: the two placements of the norm by their equations, who sees what, and all gradients."""
import numpy as np
import pytest

from minitx import nn
from minitx.gradcheck import gradcheck, gradcheck_model
from minitx.masks import padding
from minitx.ops import feed_forward
from minitx.tensor import Tensor

B, T, S, D, H, FF = 2, 5, 7, 6, 3, 11


def randomize(module, seed=9):
    rng = np.random.default_rng(seed)
    module.astype(np.float64)
    for p in module.parameters():
        p.data = p.data + 0.2 * rng.standard_normal(p.shape)
    return module


def encoder_block(kind, dropout=0.0):
    rng = np.random.default_rng(0)
    return randomize(
        nn.EncoderBlock(
            nn.MultiHeadAttention(D, H, rng=rng),
            nn.FeedForward(D, FF, "gelu", rng=rng),
            lambda: kind(nn.LayerNorm(D), dropout, rng=rng),
        )
    )


def decoder_block(kind, cross=True):
    rng = np.random.default_rng(0)
    return randomize(
        nn.DecoderBlock(
            nn.MultiHeadAttention(D, H, rng=rng),
            nn.MultiHeadAttention(D, H, rng=rng) if cross else None,
            nn.FeedForward(D, FF, rng=rng),
            lambda: kind(nn.LayerNorm(D), rng=rng),
        )
    )


def draw(*shape, seed=2):
    return Tensor(np.random.default_rng(seed).standard_normal(shape))


def test_post_norm_is_the_equation_of_2017():
    block, x = encoder_block(nn.PostNorm), draw(B, T, D)
    h = block.attention_residual.norm(x + block.attention(x))
    expected = block.feedforward_residual.norm(h + block.feedforward(h))
    np.testing.assert_array_equal(block(x).data, expected.data)


def test_pre_norm_is_its_equation_and_not_the_same_function():
    block, x = encoder_block(nn.PreNorm), draw(B, T, D)
    h = x + block.attention(block.attention_residual.norm(x))
    expected = h + block.feedforward(block.feedforward_residual.norm(h))
    np.testing.assert_array_equal(block(x).data, expected.data)
    assert np.abs(block(x).data - encoder_block(nn.PostNorm)(x).data).max() > 0.1


def both_norm(norm, dropout=0.0, *, rng):
    return nn.BothNorm(norm, nn.RMSNorm(D, offset=1.0), dropout, rng=rng)


def test_both_norms_are_their_equation():
    block, x = encoder_block(both_norm), draw(B, T, D)
    one, two = block.attention_residual, block.feedforward_residual
    h = x + one.norm_after(block.attention(one.norm(x)))
    expected = h + two.norm_after(block.feedforward(two.norm(h)))
    np.testing.assert_array_equal(block(x).data, expected.data)
    named = [name for name, _ in block.named_parameters() if "norm_after" in name]
    assert named == ["attention_residual.norm_after.weight", "feedforward_residual.norm_after.weight"]


def test_with_both_norms_no_update_is_large():
    """However large the sublayer's output is, the update has the size that the norm's gain gives it."""
    block, x = encoder_block(both_norm), draw(B, T, D)
    with block.feedforward.down.weight.writing() as value:
        value *= 1e6
    assert np.abs((block(x) - x).data).max() < 20


@pytest.mark.parametrize("make", [nn.EncoderBlock, nn.DecoderBlock])
def test_a_mixture_of_experts_is_told_which_tokens_are_real(make):
    rng = np.random.default_rng(0)
    cross = [None] if make is nn.DecoderBlock else []
    mixture = nn.MixtureOfExperts(D, FF, 4, 2, rng=rng)
    block = randomize(
        make(nn.MultiHeadAttention(D, H, rng=rng), *cross, mixture, lambda: nn.PreNorm(nn.LayerNorm(D), rng=rng))
    )
    x, aux = draw(B, T, D), nn.Aux()
    poisoned = x.numpy()
    poisoned[1, 3:] = 1e3
    y = block(x, mask=padding([5, 3]), aux=aux.at("decoder.0"))
    assert sorted(aux.losses) == ["decoder.0.balance", "decoder.0.router_z"]
    assert aux.usage["decoder.0"].counts.sum() == 2 * (5 + 3)  # padding is not routed
    other = nn.Aux()
    z = block(Tensor(poisoned), mask=padding([5, 3]), aux=other.at("decoder.0"))
    np.testing.assert_array_equal(z.data[0], y.data[0])
    np.testing.assert_array_equal(z.data[1, :3], y.data[1, :3])
    assert other.losses["decoder.0.balance"].item() == aux.losses["decoder.0.balance"].item()
    assert block(x).shape == (B, T, D)  # without a collector nothing is collected


@pytest.mark.parametrize("kind", [nn.PreNorm, nn.PostNorm, both_norm])
@pytest.mark.parametrize("cross", [True, False])
def test_a_decoder_block_is_causal_and_reads_only_real_source_tokens(kind, cross):
    block = decoder_block(kind, cross)
    x, memory = draw(B, T, D).data, draw(B, S, D, seed=3).data
    options = {"memory_mask": padding([7, 4])} if cross else {}

    def run(x, memory):
        return block(Tensor(x), Tensor(memory) if cross else None, **options).data

    before = run(x, memory)
    later = x.copy()
    later[:, 3:] += 10
    np.testing.assert_array_equal(run(later, memory)[:, :3], before[:, :3])
    assert (run(later, memory)[:, 3:] != before[:, 3:]).any()
    poisoned = memory.copy()
    poisoned[1, 4:] = np.nan
    np.testing.assert_array_equal(run(x, poisoned), before)


@pytest.mark.parametrize("kind", [nn.PreNorm, nn.PostNorm, both_norm])
def test_gradients_of_inputs_and_parameters(kind):
    block = decoder_block(kind)
    x, memory = draw(B, T, D), draw(B, S, D, seed=3)
    gradcheck(lambda x, m: block(x, m, mask=padding([5, 3]), memory_mask=padding([7, 4])), x, memory)
    encoder, dy = encoder_block(kind), draw(B, T, D, seed=4)
    for module, run in [(block, lambda: block(x, memory)), (encoder, lambda: encoder(x, mask=padding([5, 3])))]:
        gradcheck_model(lambda run=run: (run() * dy).sum(), module)


def test_the_record_receives_both_maps():
    record = {}
    decoder_block(nn.PostNorm)(draw(B, T, D), draw(B, S, D), record=record)
    assert record["self"].shape == (B, H, T, T)
    assert record["cross"].shape == (B, H, T, S)


def test_residual_dropout_only_touches_the_update():
    rng = np.random.default_rng(0)
    residual = nn.PreNorm(nn.LayerNorm(D), dropout=0.999999, rng=rng).astype(np.float64)
    x = draw(B, T, D)
    y = residual(x, lambda h: h).data
    assert (y == x.data).mean() > 0.9


def test_an_unknown_activation():
    with pytest.raises(ValueError, match="activation is one of relu, gelu"):
        nn.FeedForward(D, FF, "swish", rng=np.random.default_rng(0))


def test_feedforward_by_hand():
    ff = randomize(nn.FeedForward(D, FF, "relu", rng=np.random.default_rng(0)))
    x = draw(B, T, D)
    h = np.maximum(x.data @ ff.up.weight.data.T + ff.up.bias.data, 0)
    np.testing.assert_allclose(ff(x).data, h @ ff.down.weight.data.T + ff.down.bias.data, rtol=1e-12, atol=1e-13)
    assert h.shape[-1] == FF


class Plainly(nn.FeedForward):
    """A layer of somebody else's, which knows nothing of a residual."""

    def forward(self, x):
        return super().forward(x)


@pytest.mark.parametrize("kind", [nn.PreNorm, nn.PostNorm, both_norm])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_last_product_adds_the_residual_and_the_sum_is_the_same(kind, dropout):
    """The same numbers, bit for bit, as with a feed-forward network whose result is added by the block."""
    x, dy = draw(B, T, D).numpy(), draw(B, T, D, seed=3).numpy()
    results = []
    for network in (nn.FeedForward, Plainly):
        rng = np.random.default_rng(0)
        block = nn.EncoderBlock(
            nn.MultiHeadAttention(D, H, rng=rng),
            network(D, FF, "gelu", rng=rng),
            lambda rng=rng: kind(nn.LayerNorm(D), dropout, rng=rng),
        )
        inputs = Tensor(x.astype(np.float32), requires_grad=True)
        y = block(inputs)
        y.backward(dy.astype(np.float32))
        results.append([y.numpy(), inputs.grad, *[p.grad for p in block.parameters()]])
        if kind is nn.PreNorm and dropout == 0 and feed_forward.kernel is not None:  # (where numba is installed)
            assert y.node.op.name == ("feed_forward" if network is nn.FeedForward else "add")
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def small_block(residual=None):
    rng = np.random.default_rng(0)
    attention, network = nn.MultiHeadAttention(D, H, rng=rng), nn.FeedForward(D, FF, rng=rng)
    return nn.EncoderBlock(attention, network, residual or (lambda: nn.PreNorm(nn.LayerNorm(D), rng=rng)))


class Nothing(nn.Dropout):
    def forward(self, x):
        return x * 0.0


class Halfway(nn.PreNorm):
    def forward(self, x, f):
        return x + 0.5 * f(self.norm(x))


def test_what_somebody_else_has_put_in_is_called():
    x = Tensor(np.random.default_rng(1).standard_normal((B, T, D)).astype(np.float32))
    block = small_block()
    block.attention.out.forward = lambda h: h * 0.0
    block.feedforward.down.forward = lambda h: h[..., :D] * 0.0
    np.testing.assert_array_equal(block(x).numpy(), x.numpy())

    block = small_block()
    for residual in (block.attention_residual, block.feedforward_residual):
        residual.dropout = Nothing(0.0, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(block(x).numpy(), x.numpy())

    block = small_block(lambda: Halfway(nn.LayerNorm(D), rng=np.random.default_rng(0)))
    y = x + 0.5 * block.attention(block.attention_residual.norm(x))
    y = y + 0.5 * block.feedforward(block.feedforward_residual.norm(y))
    np.testing.assert_array_equal(block(x).numpy(), y.numpy())
