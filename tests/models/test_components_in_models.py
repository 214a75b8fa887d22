"""Later components in whole models: what is shared, who gets it, what a model returns of it, and cached decoding."""
import copy

import numpy as np
import pytest

from minitx import nn
from minitx.gradcheck import gradcheck_model
from minitx.masks import padding
from minitx.models import Transformer, TransformerConfig
from minitx.ops import concatenate, cross_entropy
from minitx.tensor import Tensor

V, D, B, T = 11, 12, 2, 7
SMALL = {"layers": 2, "d_model": D, "heads": 3, "d_ff": 10, "vocab_size": V, "max_length": 16, "dropout": 0.0}
EVEN = {"heads": 6, "kv_heads": 2}


def build(**changes):
    return Transformer(TransformerConfig(**{**SMALL, **changes}), rng=np.random.default_rng(0)).astype(np.float64)


def ids(*shape, seed=1):
    return np.random.default_rng(seed).integers(0, V, shape)


# ---------------------------------------------------------------------- what is shared


def test_one_rotary_serves_all_layers_and_no_cross_attention():
    model = build(**EVEN, position="rotary")
    all_layers = [*model.encoder, *model.decoder]
    assert len({id(block.attention.rotary) for block in all_layers}) == 1
    assert all(block.cross_attention.rotary is None for block in model.decoder)
    assert model(ids(B, 5), ids(B, T)).logits.shape == (B, T, V)


def test_one_relative_bias_a_stack_both_ways_only_in_the_encoder():
    model = build(position="relative")
    encoder, decoder = ({id(b.attention.position_bias) for b in stack} for stack in (model.encoder, model.decoder))
    assert len(encoder) == len(decoder) == 1
    assert encoder != decoder
    assert model.encoder[0].attention.position_bias.bidirectional
    assert not model.decoder[0].attention.position_bias.bidirectional
    assert all(block.cross_attention.position_bias is None for block in model.decoder)
    names = [name for name, _ in model.named_parameters() if "position_bias" in name]
    assert names == ["encoder.0.attention.position_bias.weight", "decoder.0.attention.position_bias.weight"]
    cross_entropy(model(ids(B, 5), ids(B, T)).logits, ids(B, T)).backward()  # its gradient is the sum over layers
    assert all(np.abs(p.grad).max() > 0 for name, p in model.named_parameters() if "position_bias" in name)


@pytest.mark.parametrize(("every", "windows"), [(1, [3, 3, 3]), (2, [3, None, 3])])
def test_a_window_in_every_or_every_other_layer(every, windows):
    model = build(architecture="decoder", layers=3, window=3, window_every=every)
    found = [None if block.attention.window is None else block.attention.window.size for block in model.decoder]
    assert found == windows


def test_a_window_of_one_layer_limits_what_a_token_depends_on():
    model = build(architecture="decoder", layers=1, window=3, position="none")
    x, other = ids(1, T), ids(1, T)
    other[:, 0] = (other[:, 0] + 1) % V
    before, after = model(x).logits.data, model(other).logits.data
    np.testing.assert_array_equal(after[:, 3:], before[:, 3:])
    assert (after[:, 2] != before[:, 2]).any()


# ---------------------------------------------------------------------- encoders and their heads


@pytest.mark.parametrize("position", ["learned", "rotary", "alibi", "relative", "sinusoidal"])
def test_an_encoder_sees_both_ways_and_no_padding(position):
    model = build(architecture="encoder", head="masked-lm", position=position)
    x = ids(B, T)
    before = model(x, mask=padding([7, 4])).logits.data
    other = x.copy()
    other[1, 4:] = (other[1, 4:] + 1) % V
    np.testing.assert_array_equal(model(other, mask=padding([7, 4])).logits.data[1, :4], before[1, :4])
    last = x.copy()
    last[0, -1] = (last[0, -1] + 1) % V
    assert (model(last, mask=padding([7, 4])).logits.data[0, 0] != before[0, 0]).any()


@pytest.mark.parametrize("pooling", ["first", "mean", "last"])
@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_classification_reads_real_tokens_only(pooling, architecture):
    model = build(architecture=architecture, head="classification", classes=5, pooling=pooling)
    x = ids(B, T)
    logits = model(x, mask=padding([7, 4])).logits.data
    assert logits.shape == (B, 5)
    np.testing.assert_allclose(model(x[1:, :4]).logits.data, logits[1:], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("architecture", ["encoder", "decoder"])
def test_a_boolean_array_is_about_pairs_everywhere_even_where_b_is_t(architecture):
    """(T, T) looks like (B, T) then, and a mixture, or pooling, must not take it for real tokens."""
    head = {"encoder": "masked-lm", "decoder": "language-model"}[architecture]
    model = build(architecture=architecture, head=head, experts=3, activation="swiglu")
    rows, pairs = ids(T, T), np.tri(T, dtype=bool)
    alone = [model(rows[b : b + 1], mask=pairs).logits.data[0] for b in range(T)]
    np.testing.assert_allclose(model(rows, mask=pairs).logits.data, alone, rtol=1e-10, atol=1e-12)
    pools = build(architecture=architecture, head="classification", classes=5, pooling="mean")
    with pytest.raises(ValueError, match="about pairs"):
        pools(rows, mask=pairs)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "relative", "none"])
def test_positions_that_do_not_fit_are_refused_whether_read_or_not(position):
    model = build(architecture="decoder", position=position)
    for wrong in (np.arange(T - 1), [0], np.zeros((B + 1, T), int)):
        with pytest.raises(ValueError, match="one position per token"):
            model(ids(B, T), positions=wrong)


def test_heads_by_shape_and_none():
    assert build(architecture="encoder", head="tokens", classes=5)(ids(B, T)).logits.shape == (B, T, 5)
    assert build(architecture="encoder", head="masked-lm")(ids(B, T)).logits.shape == (B, T, V)
    out = build(architecture="encoder", head="none")(ids(B, T))
    assert out.logits is out.hidden
    assert out.hidden.shape == (B, T, D)


@pytest.mark.parametrize("changes", [{"head": "masked-lm"}, {"head": "masked-lm", "tie_embeddings": False},
                                     {"head": "classification", "classes": 5, "pooling": "mean"},
                                     {"head": "tokens", "classes": 5}])  # fmt: skip
def test_gradients_through_the_heads(changes):
    model = build(architecture="encoder", layers=1, segments=3, embedding_norm=True, position="relative", **changes)
    rng = np.random.default_rng(5)
    for p in model.parameters():
        p.data += 0.1 * rng.standard_normal(p.shape)
    x, segments = ids(B, T), rng.integers(0, 3, (B, T))
    targets = rng.integers(0, 5, (B,) if changes["head"] == "classification" else (B, T))
    gradcheck_model(
        lambda: cross_entropy(model(x, mask=padding([7, 4]), segments=segments).logits, targets), model, samples=2
    )


def test_the_masked_head_is_tied_to_the_table():
    model = build(architecture="encoder", head="masked-lm")
    assert model.head.decoder.weight is model.embedding.weight
    copied = copy.deepcopy(model)
    assert copied.head.decoder.weight is copied.embedding.weight
    np.testing.assert_array_equal(copied(ids(B, T)).logits.data, model(ids(B, T)).logits.data)


def test_segments_are_added():
    model = build(architecture="encoder", head="none", segments=2)
    zero = model(ids(B, T)).hidden.data
    np.testing.assert_array_equal(model(ids(B, T), segments=np.zeros((B, T), int)).hidden.data, zero)
    assert (model(ids(B, T), segments=np.ones(T, int)).hidden.data != zero).any()
    with pytest.raises(TypeError, match="this model has no segments"):
        build(architecture="decoder")(ids(B, T), segments=np.ones(T, int))
    with pytest.raises(IndexError, match="2"):
        model(ids(B, T), segments=np.full(T, 2))


def test_an_encoder_refuses_what_it_has_no_place_for():
    model = build(architecture="encoder", head="none")
    with pytest.raises(TypeError, match="no target_ids, and no cache"):
        model(ids(B, T), ids(B, T))
    assert sorted(model(ids(B, T), weights=True).weights) == ["encoder.0.self", "encoder.1.self"]


def test_patches_of_an_image():
    model = build(architecture="encoder", head="classification", classes=5, patch_dim=4, vocab_size=0,
                  tie_embeddings=False, scale_embeddings=False, position="learned")  # fmt: skip
    patches = np.random.default_rng(0).standard_normal((B, 6, 4))
    out = model(patches)
    assert (out.logits.shape, out.hidden.shape) == ((B, 5), (B, 7, D))
    embedded = model.embedding(patches)
    by_hand = patches @ model.embedding.projection.weight.data.T + model.embedding.projection.bias.data
    np.testing.assert_allclose(embedded.data[:, 1:], by_hand, rtol=1e-12)
    np.testing.assert_array_equal(embedded.data[:, 0], np.broadcast_to(model.embedding.first.data, (B, D)))
    with pytest.raises(ValueError, match=r"patches are \(B, N, 4\)"):
        model(patches[..., :3])
    gradcheck_model(lambda: cross_entropy(model(patches).logits, [1, 3]), model, samples=2)


# ---------------------------------------------------------------------- what a model returns, and caps


def test_losses_and_usage_of_experts_by_name():
    model = build(experts=4, experts_per_token=2)
    out = model(ids(B, 5), ids(B, T), mask=padding([5, 3]), target_mask=padding([7, 4]))
    assert sorted(out.aux_losses) == [
        f"{stack}.{i}.{loss}" for stack in ("decoder", "encoder") for i in (0, 1) for loss in ("balance", "router_z")
    ]
    assert out.usage["encoder.0"].counts.sum() == 2 * 8  # real tokens times k
    assert out.usage["decoder.1"].counts.sum() == 2 * 11
    assert build()(ids(B, 5), ids(B, T)).aux_losses == {}


def test_caps_and_scales_of_logits():
    capped = build(architecture="decoder", logit_softcap=0.5, logit_scale=2.0)
    plain = build(architecture="decoder")
    z = 2 * plain(ids(B, T)).logits.data
    np.testing.assert_allclose(capped(ids(B, T)).logits.data, 0.5 * np.tanh(z / 0.5), rtol=1e-12)
    assert np.abs(capped(ids(B, T)).logits.data).max() < 0.5


@pytest.mark.parametrize(
    "changes",
    [
        {"qk_norm": True}, {"attention_scale": 1.0}, {"attention_softcap": 0.5}, {"norm_placement": "both"},
        {"activation": "swiglu"}, {"norm": "rms"}, {"position": "alibi"}, {"position": "rotary", "rope_base": 100.0},
        {"position": "rotary", "rope_interleaved": True},
        {"position": "rotary", "rope_scaling": {"type": "linear", "factor": 4.0}},
    ],
    ids=lambda changes: list(changes)[-1],
)  # fmt: skip
def test_pitfall_27_every_setting_is_applied(changes):
    """None is read and then dropped: each changes the logits."""
    without = {"position": "rotary"} if len(changes) > 1 else {}
    before = build(**EVEN, architecture="decoder", d_model=24, **without)
    after = build(**EVEN, architecture="decoder", d_model=24, **changes)
    assert np.abs(after(ids(B, T)).logits.data - before(ids(B, T)).logits.data).max() > 1e-6


def test_biases_where_they_are_wanted():
    model = build(architecture="decoder", bias=False, attention_bias=True, attention_out_bias=False, ff_bias=True,
                  norm_bias=False)  # fmt: skip
    names = {name.split("decoder.0.")[1] for name, _ in model.named_parameters() if name.startswith("decoder.0.")}
    assert {n for n in names if n.endswith("bias")} == {
        "attention.query.bias", "attention.key.bias", "attention.value.bias", "feedforward.up.bias",
        "feedforward.down.bias",
    }  # fmt: skip
    follows = build(architecture="decoder", bias=False, attention_bias=True)
    assert follows.decoder[0].attention.out.bias is not None


@pytest.mark.parametrize(
    "changes",
    [
        {
            "architecture": "decoder", "heads": 4, "kv_heads": 2, "head_dim": 6, "value_dim": 5, "qk_norm": True,
            "attention_softcap": 3.0, "attention_scale": 0.7, "window": 3, "window_every": 2, "position": "rotary",
            "attention_kernel": "tiled", "rope_dim": 4, "norm": "rms", "norm_offset": 1.0, "norm_placement": "both",
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_length": 4}, "activation": "geglu",
            "experts": 3, "experts_per_token": 2, "shared_experts": 1, "logit_softcap": 2.0, "tie_embeddings": False,
            "segments": 2, "embedding_norm": True,
        },
        {
            "kv_heads": 1, "value_dim": 5, "attention_kernel": "linear", "activation": "silu", "norm_placement": "pre",
            "position": "rotary", "head_dim": 4, "norm_bias": False, "head_bias": True, "ff_bias": False,
        },
    ],
    ids=["decoder", "encoder-decoder"],
)  # fmt: skip
def test_gradients_of_everything_at_once(changes):
    model, rng = build(**changes), np.random.default_rng(5)
    for p in model.parameters():
        p.data += 0.1 * rng.standard_normal(p.shape)
    inputs = [ids(B, T)] if model.config.architecture == "decoder" else [ids(B, 5), ids(B, T)]
    options = {"mask": padding([7, 4])} if len(inputs) == 1 else {"mask": padding([5, 3])}
    targets = ids(B, T, seed=3)
    targets[1, 4:] = -100

    def loss():
        out = model(*inputs, **options)
        total = cross_entropy(out.logits, targets)
        for aux in out.aux_losses.values():
            total = total + 0.1 * aux
        return total

    gradcheck_model(loss, model, samples=2)


# ---------------------------------------------------------------------- cached decoding


class Cache:
    """Keys and values of one layer, grown at every call."""

    def __init__(self):
        self.k = self.v = None

    def append(self, k, v, mask):
        self.k = k if self.k is None else concatenate([self.k, k], axis=2)
        self.v = v if self.v is None else concatenate([self.v, v], axis=2)
        return self.k, self.v, mask, None


class Caches(list):
    memory = (None, None)
    positions = None


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "mixtral", "gemma2", "mpt"])
def test_decoding_in_pieces_equals_the_whole_pass(name):
    config = getattr(TransformerConfig, name)(
        layers=2, d_model=16, heads=4, vocab_size=V, max_length=16, window=5 if name in ("mistral", "gemma2") else None
    )
    model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64).eval()
    x = ids(B, 11)
    whole = model(x).logits.data
    caches, pieces = Caches([Cache(), Cache()]), []
    for start, stop in [(0, 3), (3, 4), (4, 9), (9, 10), (10, 11)]:
        caches.positions = np.arange(start, stop)
        pieces.append(model(x[:, start:stop], cache=caches).logits.data)
    np.testing.assert_allclose(np.concatenate(pieces, 1), whole, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["llama", "mixtral", "mpt"])
def test_decoding_in_pieces_with_padding_on_the_left(name):
    config = getattr(TransformerConfig, name)(layers=2, d_model=16, heads=4, vocab_size=V, max_length=16)
    model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64).eval()
    x = ids(B, 9)
    positions = np.maximum(np.arange(9) - [[0], [2]], 0)  # row 1 begins with two padded places
    whole = model(x, mask=padding([9, 7], side="left"), positions=positions).logits.data
    caches, pieces = Caches([Cache(), Cache()]), []
    for start, stop in [(0, 4), (4, 5), (5, 9)]:
        mask = padding([stop, stop - 2], side="left")
        out = model(x[:, start:stop], mask=mask, positions=positions[:, start:stop], cache=caches)
        pieces.append(out.logits.data)
    got = np.concatenate(pieces, 1)
    np.testing.assert_allclose(got[0], whole[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(got[1, 2:], whole[1, 2:], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(model(x[1:, 2:]).logits.data[0], whole[1, 2:], rtol=1e-10, atol=1e-12)


def test_hidden_vectors_are_tensors_of_the_models_dtype():
    model = Transformer(TransformerConfig.gemma2(layers=1, d_model=16, heads=4, vocab_size=V),
                        rng=np.random.default_rng(0))  # fmt: skip
    out = model(ids(B, T))
    assert isinstance(out.hidden, Tensor)
    assert out.logits.dtype == out.hidden.dtype == np.float32
    assert isinstance(model.decoder[0].attention_residual, nn.BothNorm)
