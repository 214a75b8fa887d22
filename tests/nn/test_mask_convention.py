"""True = may see, wherever a mask comes in: what is hidden is as if it were not there."""
import numpy as np
import pytest

from minitx import nn
from minitx.masks import padding
from minitx.models import Transformer, TransformerConfig
from minitx.ops import attention, tiled_attention
from minitx.tensor import Tensor

KEEP = np.array([[True, False]])  # of two keys, the first


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def layer(kernel="textbook"):
    return nn.MultiHeadAttention(6, heads=2, rng=np.random.default_rng(0), kernel=kernel).astype(np.float64)


def block(of):
    def residual():
        return nn.PreNorm(nn.LayerNorm(6), rng=np.random.default_rng(0))

    cross = [layer()] if of is nn.DecoderBlock else []
    network = nn.FeedForward(6, 7, rng=np.random.default_rng(1))
    return of(layer(), *cross, network, residual).astype(np.float64)


def model(**changes):
    config = TransformerConfig(layers=1, d_model=6, heads=2, vocab_size=5, position="none", dropout=0.0, **changes)
    return Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)


def heads(n):
    return (normal(1, 2, size, 3, seed=i)[:, :, :n] for i, size in enumerate((1, 2, 2)))


def tokens(n):
    return Tensor(normal(1, 2, 6)[:, :n])


ASKING, IDS, ENCODER = Tensor(normal(1, 1, 6, seed=5)), np.array([[3, 4]]), {"architecture": "encoder", "head": "none"}

# name → a function of how many of two keys there are, and of the mask; of encoders the first token's result
WAYS = {
    "attention": lambda n, mask: attention(*heads(n), mask=mask),
    "tiled attention": lambda n, mask: tiled_attention(*heads(n), mask=mask),
    "layer": lambda n, mask: layer()(ASKING, tokens(n), mask=mask),
    "tiled layer": lambda n, mask: layer("tiled")(ASKING, tokens(n), mask=mask),
    "encoder block": lambda n, mask: block(nn.EncoderBlock)(tokens(n), mask=mask)[:, :1],
    "memory of a decoder block": lambda n, mask: block(nn.DecoderBlock)(ASKING, tokens(n), memory_mask=mask),
    "encoder": lambda n, mask: model(**ENCODER)(IDS[:, :n], mask=mask).hidden[:, :1],
    "source of an encoder-decoder": lambda n, mask: model()(IDS[:, :n], np.array([[1]]), mask=mask).logits,
    "pool": lambda n, mask: nn.pool(tokens(n), mask),
}


@pytest.mark.parametrize("way", WAYS)
def test_pitfall_31_every_way_in(way):
    alone = WAYS[way](1, None).numpy()
    # a line of keys for every query, as (B, 1, T_k), which for pooling says as well which tokens are real
    for mask in (KEEP[None], padding([1])):
        np.testing.assert_allclose(WAYS[way](2, mask).numpy(), alone, rtol=1e-12, atol=1e-14)
    assert np.abs(WAYS[way](2, ~KEEP[None]).numpy() - alone).max() > 1e-3
    assert np.abs(WAYS[way](2, None).numpy() - alone).max() > 1e-3
