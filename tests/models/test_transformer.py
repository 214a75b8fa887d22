"""Whole models: who sees what, tying, gradients through everything, initialisation."""
import numpy as np
import pytest

from minitx.gradcheck import gradcheck_model
from minitx.masks import padding
from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy
from minitx.optim import AdamW

V, D, B, S, T = 11, 12, 2, 5, 7


def config(architecture="decoder", **changes):
    base = {"layers": 2, "d_model": D, "heads": 3, "d_ff": 20, "vocab_size": V, "max_length": 16, "dropout": 0.0}
    if architecture == "decoder":
        base |= {"norm_placement": "pre", "position": "learned", "activation": "gelu", "scale_embeddings": False}
    return TransformerConfig.from_dict(base | {"architecture": architecture} | changes)


def build(*args, **changes):
    return Transformer(config(*args, **changes), rng=np.random.default_rng(0)).astype(np.float64)


def ids(*shape, seed=1):
    return np.random.default_rng(seed).integers(0, V, shape)


def test_decoder_does_not_see_the_future():
    model, x = build(), ids(B, T)
    before = model(x).logits.data
    changed = x.copy()
    changed[:, 4:] = (changed[:, 4:] + 1) % V
    after = model(changed).logits.data
    np.testing.assert_array_equal(after[:, :4], before[:, :4])
    assert (after[:, 4:] != before[:, 4:]).any()


def test_encoder_decoder_padding_and_causality():
    model, x, y = build("encoder-decoder"), ids(B, S), ids(B, T, seed=2)
    options = {"mask": padding([5, 3]), "target_mask": padding([7, 4])}
    before = model(x, y, **options).logits.data
    other_x, other_y = x.copy(), y.copy()
    other_x[1, 3:] = (other_x[1, 3:] + 1) % V
    other_y[1, 4:] = (other_y[1, 4:] + 1) % V
    after = model(other_x, other_y, **options).logits.data
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_array_equal(after[1, :4], before[1, :4])


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("tie", [True, False])
def test_gradients_of_the_encoder_decoder(placement, tie):
    model = build("encoder-decoder", norm_placement=placement, tie_embeddings=tie, layers=1, d_ff=5)
    rng = np.random.default_rng(5)
    for p in model.parameters():
        p.data = p.data + 0.1 * rng.standard_normal(p.shape)
    x, y, targets = ids(B, S), ids(B, T, seed=2), ids(B, T, seed=3)
    targets[1, 4:] = -100

    def loss():
        logits = model(x, y, mask=padding([5, 3]), target_mask=padding([7, 4])).logits
        return cross_entropy(logits, targets, label_smoothing=0.1)

    gradcheck_model(loss, model)


def test_gradients_of_the_decoder():
    model = build(layers=1, d_ff=5, kv_heads=1)
    x, targets = ids(B, T), ids(B, T, seed=3)
    gradcheck_model(lambda: cross_entropy(model(x).logits, targets), model)


def test_pitfall_12_a_tied_matrix_is_one_parameter():
    model = build("encoder-decoder")
    assert model.head.weight is model.embedding.weight
    assert model.target_embedding is model.embedding
    names = [name for name, _ in model.named_parameters()]
    assert names.count("embedding.weight") == 1
    assert "head.weight" not in names
    untied = build("encoder-decoder", tie_embeddings=False)
    assert untied.num_parameters() == model.num_parameters() + 2 * V * D


def test_pitfall_12_a_tied_step_equals_the_sum_of_both_paths():
    tied = build(position="none")
    untied = build(position="none", tie_embeddings=False)
    state = tied.state_dict()
    untied.load_state_dict(state | {"head.weight": state["embedding.weight"]})
    x, targets = ids(B, T), ids(B, T, seed=3)
    for model in (tied, untied):
        cross_entropy(model(x).logits, targets).backward()
    both = untied.embedding.weight.grad + untied.head.weight.grad
    np.testing.assert_allclose(tied.embedding.weight.grad, both, rtol=1e-12, atol=1e-15)

    tied.load_state_dict(state)  # loading keeps the tie, and one step moves the one matrix by the sum of both gradients
    assert tied.head.weight is tied.embedding.weight
    AdamW(tied, lr=0.1).step()
    moved = state["embedding.weight"] - 0.1 * both / (np.abs(both) + 1e-8)
    np.testing.assert_allclose(tied.embedding.weight.data, moved, rtol=1e-9, atol=1e-12)


def test_weights_are_returned_by_name_and_change_nothing():
    model = build("encoder-decoder")
    out = model(ids(B, S), ids(B, T), weights=True)
    assert sorted(out.weights) == [
        "decoder.0.cross", "decoder.0.self", "decoder.1.cross", "decoder.1.self", "encoder.0.self", "encoder.1.self",
    ]  # fmt: skip
    assert out.weights["decoder.1.cross"].shape == (B, 3, T, S)
    plain = model(ids(B, S), ids(B, T))
    assert plain.weights == {}
    np.testing.assert_array_equal(out.logits.data, plain.logits.data)
    assert out.hidden.shape == (B, T, D)


def test_the_same_generator_gives_the_same_model_and_dropout_follows_it():
    first = Transformer(config(dropout=0.3), rng=np.random.default_rng(4))
    second = Transformer(config(dropout=0.3), rng=np.random.default_rng(4))
    x = ids(B, T)
    np.testing.assert_array_equal(first(x).logits.data, second(x).logits.data)
    assert (first(x).logits.data != first(x).logits.data).any()


def test_pitfall_33_evaluation_ignores_every_dropout():
    changes = {"dropout": 0.5, "attention_dropout": 0.4, "ff_dropout": 0.3}
    noisy = Transformer(config(**changes), rng=np.random.default_rng(4)).eval()
    plain = Transformer(config(), rng=np.random.default_rng(4)).eval()
    np.testing.assert_array_equal(noisy(ids(B, T)).logits.data, plain(ids(B, T)).logits.data)


@pytest.mark.parametrize("place", ["dropout", "attention_dropout", "ff_dropout"])
def test_the_three_places_of_dropout_are_separate(place):
    off = {"dropout": 0.0, "attention_dropout": 0.0, "ff_dropout": 0.0}
    model = Transformer(config(**off | {place: 0.5}), rng=np.random.default_rng(4))
    x = ids(B, T)
    assert (model(x).logits.data != model(x).logits.data).any()


def test_initialisation_of_gpt2():
    config = TransformerConfig.gpt2(layers=8, d_model=96, heads=4, vocab_size=300)
    model = Transformer(config, rng=np.random.default_rng(0))
    assert abs(model.embedding.weight.data.std() - 0.02) < 0.001
    assert abs(model.decoder[0].feedforward.up.weight.data.std() - 0.02) < 0.001
    assert abs(model.decoder[0].feedforward.down.weight.data.std() - 0.02 / 4) < 0.0003  # 16 residual branches
    assert abs(model.decoder[0].attention.out.weight.data.std() - 0.02 / 4) < 0.0003
    assert (model.decoder[0].feedforward.up.bias.data == 0).all()


def test_initialisation_of_the_original():
    config = TransformerConfig.original(layers=1, d_model=64, heads=4, vocab_size=500)
    model = Transformer(config, rng=np.random.default_rng(0))
    assert abs(model.embedding.weight.data.std() - 1 / 8) < 0.01
    bound = np.sqrt(6 / (64 + 256))
    up = model.encoder[0].feedforward.up.weight.data
    assert 0.99 * bound < np.abs(up).max() <= bound
    x = ids(B, S)
    assert 0.5 < model.dropout(model.positions(model.embedding(x), np.arange(S))).data.std() < 2


def test_float32_is_kept_throughout():
    model = Transformer(config("encoder-decoder", dropout=0.2), rng=np.random.default_rng(0))
    out = model(ids(B, S), ids(B, T))
    assert out.logits.dtype == np.float32
    cross_entropy(out.logits, ids(B, T)).backward()
    assert {p.grad.dtype for p in model.parameters()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m, e: m(ids(T)), ValueError, r"ids are integers of shape \(batch, length\)"),
        (lambda m, e: m(np.ones((B, T))), ValueError, "ids are integers"),
        (lambda m, e: m(np.full((B, T), V)), IndexError, str(V)),
        (lambda m, e: m(ids(B, 17)), IndexError, "learned 16 positions"),
        (lambda m, e: m(ids(B, T), ids(B, T)), TypeError, "reads one sequence"),
        (lambda m, e: e(ids(B, T)), TypeError, "reads two sequences"),
    ],
)
def test_wrong_inputs(call, error, words):
    with pytest.raises(error, match=words):
        call(build(), build("encoder-decoder"))


def test_the_tree_shows_parts_and_counts():
    text = repr(build("encoder-decoder"))
    assert "Transformer" in text.splitlines()[0]
    assert "cross_attention: MultiHeadAttention 3 heads of 4" in text
    assert f"[{build('encoder-decoder').num_parameters():,}]" in text.splitlines()[0]
