"""Blocks: the two placements of the norm by their equations, who sees what, and all gradients."""
import numpy as np
import pytest

from minitx import nn
from minitx.gradcheck import gradcheck, gradcheck_model
from minitx.masks import padding
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


@pytest.mark.parametrize("kind", [nn.PreNorm, nn.PostNorm])
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


@pytest.mark.parametrize("kind", [nn.PreNorm, nn.PostNorm])
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
