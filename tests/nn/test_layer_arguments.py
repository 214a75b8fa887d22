"""What a layer refuses when it is made, and not at the first step: no generator, sizes and options that cannot be."""
import numpy as np
import pytest

from minitx import nn
from minitx.tensor import Tensor


def rng():
    return np.random.default_rng(0)


LAYERS = [
    lambda rng: nn.Linear(2, 3, rng=rng),
    lambda rng: nn.Embedding(2, 3, rng=rng),
    lambda rng: nn.LearnedPositions(2, 3, rng=rng),
    lambda rng: nn.SegmentEmbedding(2, 3, rng=rng),
    lambda rng: nn.RelativeBias(2, rng=rng),
    lambda rng: nn.Dropout(0.5, rng=rng),
    lambda rng: nn.MultiHeadAttention(4, 2, rng=rng),
    lambda rng: nn.FeedForward(2, 3, rng=rng),
    lambda rng: nn.GatedFeedForward(2, 3, rng=rng),
    lambda rng: nn.MixtureOfExperts(2, 3, 2, rng=rng),
    lambda rng: nn.PatchEmbedding(2, 3, rng=rng),
]


@pytest.mark.parametrize("bad", [None, 0, np.random, np.random.RandomState(0)])
@pytest.mark.parametrize("make", LAYERS)
def test_rng_is_a_generator(make, bad):
    with pytest.raises(TypeError, match=r"rng is a numpy Generator, np.random.default_rng\(0\), not"):
        make(bad)
    make(rng())


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: nn.Linear(2.0, 3, rng=rng()), TypeError, "Linear: d_in is a whole number, not 2.0"),
        (lambda: nn.Linear(2, True, rng=rng()), TypeError, "Linear: d_out is a whole number, not True"),
        (lambda: nn.Linear(2, 0, rng=rng()), ValueError, "Linear: d_out is at least 1, not 0"),
        (lambda: nn.Linear(2, 3, rng=rng(), init=lambda *_: np.ones(3)), ValueError, r"gave an array of .*\(3,\)"),
        (lambda: nn.Embedding(5, 0, rng=rng()), ValueError, "Embedding: d_model is at least 1"),
        (lambda: nn.Embedding(5, 3, rng=rng(), padding_idx=-1), ValueError, "padding_idx is an id from 0 to 4, not -1"),
        (lambda: nn.Embedding(5, 3, rng=rng(), padding_idx=5), ValueError, "padding_idx is an id from 0 to 4, not 5"),
        (lambda: nn.Embedding(5, 3, rng=rng(), padding_idx=True), ValueError, "padding_idx is an id"),
        (lambda: nn.Embedding(5, 3, rng=rng(), scale="2"), TypeError, "Embedding: scale is a number, not '2'"),
        (lambda: nn.Dropout("a", rng=rng()), TypeError, "dropout is a number, not 'a'"),
        (lambda: nn.Dropout(True, rng=rng()), TypeError, "dropout is a number, not True"),
        (lambda: nn.Dropout(-0.1, rng=rng()), ValueError, "dropout is between 0 and 1, not -0.1"),
        (lambda: nn.FeedForward(2, 3, dropout=2, rng=rng()), ValueError, "dropout is between 0 and 1"),
        (lambda: nn.MultiHeadAttention(4, 2, dropout=2.0, rng=rng()), ValueError, "dropout is between 0 and 1"),
        (lambda: nn.MultiHeadAttention(4, 2, dropout="a", rng=rng()), TypeError, "dropout is a number, not 'a'"),
        (lambda: nn.MultiHeadAttention(4, 2, head_dim=0, rng=rng()), ValueError, "head_dim is at least 1, not 0"),
        (lambda: nn.MultiHeadAttention(4, 2, value_dim=0, rng=rng()), ValueError, "value_dim is at least 1, not 0"),
        (lambda: nn.MultiHeadAttention(4, 2.0, rng=rng()), TypeError, "heads is a whole number, not 2.0"),
        (lambda: nn.MultiHeadAttention(4, 2, "1", rng=rng()), TypeError, "kv_heads is a whole number, not '1'"),
        (lambda: nn.LayerNorm(0), ValueError, "LayerNorm: d_model is at least 1"),
        (lambda: nn.LayerNorm(3, eps=-1), ValueError, "eps is not negative"),
        (lambda: nn.LayerNorm(3, eps=None), TypeError, "eps is a number, not None"),
        (lambda: nn.RMSNorm(3.0), TypeError, "RMSNorm: d_model is a whole number"),
        (lambda: nn.RMSNorm(3, eps=float("nan")), ValueError, "eps is not negative"),
    ],
)
def test_what_cannot_be(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_numpy_integers_are_sizes():
    assert nn.Linear(np.int64(2), np.int32(3), rng=rng()).weight.shape == (3, 2)
    assert nn.MultiHeadAttention(np.int64(4), np.int64(2), rng=rng()).head_dim == 2


def test_attention_wants_three_axes():
    attention = nn.MultiHeadAttention(4, 2, rng=rng())
    x = Tensor(np.ones((3, 4), np.float32))
    with pytest.raises(ValueError, match=r"x is \(B, T, d_model\), not \(3, 4\); of one row: x\[None\]"):
        attention(x)
    with pytest.raises(ValueError, match=r"memory is \(B, T, d_model\), not \(3, 4\)"):
        attention(x[None], x)


def test_ids_and_positions_as_integer_tensors_and_empty_lists():
    table = nn.Embedding(5, 2, rng=rng())
    np.testing.assert_array_equal(table(Tensor(np.array([[1, 3]]))).numpy(), table([[1, 3]]).numpy())
    assert table([]).shape == (0, 2)
    x, places = Tensor(np.ones((1, 2, 4), np.float32)), np.array([1, 0])
    for layer in (nn.SinusoidalPositions(4), nn.LearnedPositions(3, 4, rng=rng())):
        np.testing.assert_array_equal(layer(x, Tensor(places)).numpy(), layer(x, places).numpy())
        with pytest.raises(TypeError, match="positions are integers, not float64"):
            layer(x, places * 1.0)
    real = np.array([[True, False]])
    np.testing.assert_array_equal(nn.pool(x, Tensor(real)).numpy(), nn.pool(x, real).numpy())
    segments = nn.SegmentEmbedding(2, 4, rng=rng())
    np.testing.assert_array_equal(segments(x, Tensor(places)).numpy(), segments(x, places).numpy())
