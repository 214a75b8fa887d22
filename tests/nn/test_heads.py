"""Pooling that never reads padding, and the heads on top of it."""
import numpy as np
import pytest

from minitx import masks, nn
from minitx.gradcheck import gradcheck, gradcheck_model
from minitx.nn import ClassificationHead, MaskedLanguageModelHead, TokenLabellingHead, pool, real_tokens
from minitx.ops import cross_entropy, embedding, gelu, layer_norm
from minitx.tensor import Tensor

B, T, D, V, C = 2, 5, 3, 11, 7
REAL = {
    "right": np.arange(T) < [[3], [5]],
    "left": np.arange(T) >= [[2], [0]],
}
MASKS = {
    "padding": (masks.padding([3, 5]), "right"),
    "left": (masks.padding([3, 5], side="left"), "left"),
    "and": (masks.causal() & masks.padding([3, 5]) & masks.window(2), "right"),
    "booleans": (REAL["right"], "right"),
    "keys": (REAL["right"][:, None], "right"),
    "keys of all heads": (REAL["left"][:, None, None], "left"),
    "documents": (masks.documents([[0, 0, 1, -1, -1], [0, 0, 0, 1, 1]]), "right"),
}
each_mask = pytest.mark.parametrize(("mask", "side"), MASKS.values(), ids=list(MASKS))


def hidden(seed=0):
    return np.random.default_rng(seed).standard_normal((B, T, D))


def rng():
    return np.random.default_rng(0)


# ---------------------------------------------------------------------- pool


@each_mask
@pytest.mark.parametrize("how", ["first", "mean", "last"])
def test_pool_reads_real_tokens_only(mask, side, how):
    h, real = hidden(), REAL[side]
    take = {"first": lambda row: row[0], "mean": lambda row: row.mean(0), "last": lambda row: row[-1]}[how]
    expected = np.stack([take(row[keep]) for row, keep in zip(h, real)])
    h[~real] = np.nan  # poison
    x = Tensor(h, requires_grad=True)
    with np.errstate(all="raise"):
        y = pool(x, mask, how)
        y.backward(hidden(1)[:, 0])
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-14)
    np.testing.assert_array_equal(x.grad[~real], 0)
    assert np.isfinite(x.grad).all()


@pytest.mark.parametrize("how", ["first", "mean", "last"])
def test_pool_gradient(how):
    gradcheck(lambda h: pool(h, masks.padding([3, 5]), how), hidden())


def test_pool_by_hand():
    h = np.array([[[1.0], [2.0], [9.0]], [[4.0], [5.0], [6.0]]], np.float32)
    mask = masks.padding([2, 3])
    assert [pool(Tensor(h), mask, how).numpy().ravel().tolist() for how in ("first", "mean", "last")] == [
        [1, 4], [1.5, 5], [2, 6],
    ]  # fmt: skip
    assert pool(Tensor(h), mask).dtype == np.float32
    assert pool(Tensor(h)).numpy().ravel().tolist() == [4, 5]
    assert pool(Tensor(h), masks.causal(), "last").numpy().ravel().tolist() == [9, 6]


def test_pool_refuses():
    h = Tensor(hidden())
    for how in ("first", "mean", "last"):
        with pytest.raises(ValueError, match="row 1 has no real token"):
            pool(h, masks.padding([3, 0]), how)
        with pytest.raises(ValueError, match="row 0 has no real token"):
            pool(h[:, :0], None, how)
        assert pool(h[:0], None, how).shape == (0, D)
    with pytest.raises(ValueError, match="'max'"):
        pool(h, None, "max")
    with pytest.raises(ValueError, match="one vector per token"):
        pool(h[0])
    with pytest.raises(ValueError, match="about pairs"):
        pool(h, np.tri(T, dtype=bool))
    with pytest.raises(TypeError, match="boolean"):
        pool(h, REAL["right"].astype(float))
    with pytest.raises(ValueError, match="batch of 3"):
        pool(h, masks.padding([1, 2, 3]))
    with pytest.raises(ValueError, match="only 5 keys"):
        pool(h, masks.padding([6, 2]))


@each_mask
def test_real_tokens(mask, side):
    np.testing.assert_array_equal(real_tokens(mask, (B, T)), REAL[side])


def test_real_tokens_where_the_mask_does_not_say():
    for mask in (None, masks.causal(), masks.full() & masks.window(3), np.ones((B, T, T), bool)):
        assert real_tokens(mask, (B, T)) is None
    both = real_tokens(np.ones((B, T, T), bool) & masks.padding([3, 5]), (B, T))
    np.testing.assert_array_equal(both, REAL["right"])
    with pytest.raises(ValueError, match=r"tokens \(B, T\)"):
        real_tokens(masks.padding([3]), (T,))


# ---------------------------------------------------------------------- heads


def test_masked_language_model_head_is_its_equation():
    table = nn.Embedding(V, D, rng=rng()).astype(np.float64)
    head = MaskedLanguageModelHead(D, V, table, rng=rng()).astype(np.float64)
    r = np.random.default_rng(3)
    for p in head.parameters():
        p.data = p.data + r.standard_normal(p.shape)
    x = Tensor(hidden())
    parts = head.dense, head.norm, head.decoder
    h = gelu(x @ parts[0].weight.T + parts[0].bias)
    h = layer_norm(h, head.norm.weight, head.norm.bias, 1e-12)
    np.testing.assert_allclose(head(x).numpy(), (h @ table.weight.T + head.decoder.bias).numpy(), rtol=1e-12)


def test_pitfall_12_the_tied_table_gets_both_gradients():
    table = nn.Embedding(V, D, rng=rng()).astype(np.float64)
    head = MaskedLanguageModelHead(D, V, table, rng=rng()).astype(np.float64)
    assert head.decoder.weight is table.weight
    ids, targets = np.array([[1, 4, 4]]), np.array([[2, -100, 9]])

    def loss():
        return cross_entropy(head(embedding(ids, table.weight)), targets)

    gradcheck_model(loss, head)
    names = [name for name, _ in head.named_parameters()]
    assert names == ["dense.weight", "dense.bias", "norm.weight", "norm.bias", "decoder.weight", "decoder.bias"]
    free = MaskedLanguageModelHead(D, V, rng=rng())
    assert free.decoder.weight.shape == (V, D)


def test_masked_language_model_head_at_masked_places_only():
    head = MaskedLanguageModelHead(D, V, rng=rng()).astype(np.float64)
    x, chosen = Tensor(hidden()), REAL["left"]
    np.testing.assert_allclose(head(x[chosen]).numpy(), head(x).numpy()[chosen], rtol=1e-13)


@pytest.mark.parametrize("how", ["first", "mean", "last"])
@pytest.mark.parametrize("dense", [True, False])
def test_classification_head(how, dense):
    head = ClassificationHead(D, C, how, dense, rng=rng()).astype(np.float64)
    h, mask = hidden(), masks.padding([3, 5])
    logits = head.eval()(Tensor(h), mask)
    assert logits.shape == (B, C)
    h[0, 3:] = np.nan
    np.testing.assert_array_equal(head(Tensor(h), mask).numpy(), logits.numpy())
    x = Tensor(hidden())
    gradcheck_model(lambda: cross_entropy(head(x, mask), [1, 6]), head)
    head.train()
    assert (head(x, mask).numpy() != logits.numpy()).any()


def test_token_labelling_head():
    head = TokenLabellingHead(D, C, rng=rng()).astype(np.float64).eval()
    x, targets = Tensor(hidden()), np.where(REAL["right"], 2, -100)
    assert head(x).shape == (B, T, C)
    gradcheck_model(lambda: cross_entropy(head(x), targets), head)


def test_heads_refuse():
    with pytest.raises(ValueError, match="'max'"):
        ClassificationHead(D, C, "max", rng=rng())
    with pytest.raises(ValueError, match=r"\(11, 3\), not \(7, 3\)"):
        MaskedLanguageModelHead(D, V, nn.Embedding(7, D, rng=rng()), rng=rng())
    with pytest.raises(ValueError, match="'swish'"):
        MaskedLanguageModelHead(D, V, activation="swish", rng=rng())


def test_a_module_tree_with_heads():
    text = repr(ClassificationHead(D, C, rng=rng())) + repr(ClassificationHead(D, C, "mean", rng=rng()))
    assert "first token" in text
    assert "mean over tokens" in text
