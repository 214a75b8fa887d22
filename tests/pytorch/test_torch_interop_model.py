"""Whole models of every preset in PyTorch: equal logits, further losses and gradients, and the way back."""
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch_interop_pairs import assert_close, assert_same_gradients  # noqa: E402

from minitx.interop.torch import TorchTransformer, from_torch, state_dict_to_torch, to_torch  # noqa: E402
from minitx.masks import padding  # noqa: E402
from minitx.models import Transformer, TransformerConfig  # noqa: E402
from minitx.models.presets import PRESETS  # noqa: E402
from minitx.nn import Dropout, MultiHeadAttention  # noqa: E402

pytestmark = pytest.mark.torch

B, S, T, V = 3, 7, 5, 11
SMALL = {"layers": 2, "d_model": 24, "heads": 4, "max_length": 13, "dropout": 0.0}
LLAMA = {"preset": "llama", "kv_heads": 2}
DECODER = {"architecture": "decoder", "vocab_size": V}
CASES = {name: {"preset": name} for name in PRESETS} | {
    "mixtral, one expert a token, a shared one, biases": {
        "preset": "mixtral", "experts": 3, "experts_per_token": 1, "shared_experts": 2, "ff_bias": True,
    },
    "mixtral, ungated": {"preset": "mixtral", "experts": 3, "activation": "gelu"},
    "llama, interleaved, part of a head": {**LLAMA, "rope_interleaved": True, "rope_dim": 2},
    "llama, linear scaling": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 3.0}},
    "llama, dynamic scaling": {
        **LLAMA, "rope_scaling": {"type": "dynamic", "factor": 2.0, "original_length": 4},
    },
    "llama, yarn": {**LLAMA, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_length": 4}},
    "llama, qk_norm, value_dim": {**LLAMA, "qk_norm": True, "value_dim": 5},
    "gemma2, untied, biased head": {"preset": "gemma2", "tie_embeddings": False, "head_bias": True, "window": 2},
    "decoder, linear attention": {**DECODER, "attention_kernel": "linear"},
    "decoder, tiled, no positions": {**DECODER, "attention_kernel": "tiled", "position": "none", "norm_offset": 0.0},
    "decoder, alibi, 3 heads, no out bias": {**DECODER, "position": "alibi", "heads": 3, "attention_out_bias": False},
    "original, untied, pre": {"preset": "original", "tie_embeddings": False, "norm_placement": "pre"},
    "original, no head": {"preset": "original", "head": "none"},
    "t5, window, geglu": {"preset": "t5", "activation": "geglu", "relative_buckets": 4, "relative_max_distance": 6},
    "encoder, labels": {"preset": "bert", "head": "tokens", "classes": 3, "segments": 0, "position": "sinusoidal"},
    "encoder, first": {"preset": "bert", "head": "classification", "classes": 3, "pooling": "first"},
    "encoder, mean": {"preset": "bert", "head": "classification", "classes": 3, "pooling": "mean"},
    "encoder, last, swiglu": {
        "preset": "bert", "head": "classification", "classes": 3, "pooling": "last", "activation": "swiglu",
    },
    "masked-lm, untied, gated": {"preset": "bert", "tie_embeddings": False, "activation": "geglu"},
    "vit, dense head": {"preset": "vit", "head_dense": True},
}  # fmt: skip
LEFT = ("original", "gpt2", "gemma2", "encoder, first")


def build(preset=None, **changes):
    values = SMALL | ({"vocab_size": V} if preset != "vit" else {"patch_dim": 3, "classes": 5}) | changes
    config = getattr(TransformerConfig, preset)(**values) if preset else TransformerConfig(**values)
    rng = np.random.default_rng(1)
    model = Transformer(config, rng=rng).astype(np.float64)
    for p in model.parameters():
        p.data = 0.5 * rng.normal(size=p.shape) + (p.ndim == 1)
    return model


def inputs(config, rng):
    """What goes in, for minitx and for PyTorch."""
    if config.patch_dim is not None:
        x = rng.normal(size=(B, S - 1, config.patch_dim))
        return [x], [torch.tensor(x)]
    ids = [rng.integers(0, V, (B, S))]
    if config.architecture == "encoder-decoder":
        ids.append(rng.integers(0, V, (B, T)))
    return ids, [torch.tensor(i) for i in ids]


def masks(config, side):
    """Source (or the only sequence), target; as objects of minitx and as booleans of PyTorch."""
    ours, theirs = {}, {}
    for name, n in (("mask", S), ("target_mask", T)):
        if name == "mask" or config.architecture == "encoder-decoder":
            lengths = np.array([n, n - 2, 1])
            ours[name] = padding(lengths, side=side)
            theirs[name] = torch.tensor(ours[name].dense(B, 1, n)[:, 0])
    return ours, theirs


@pytest.mark.parametrize(
    ("case", "side"), [(case, "right") for case in CASES] + [(case, "left") for case in LEFT]
)
def test_a_whole_model(case, side):
    model = build(**CASES[case])
    theirs = to_torch(model)
    assert list(dict(theirs.named_parameters())) == list(model.state_dict())  # ties included
    rng = np.random.default_rng(2)
    xs, ys = inputs(model.config, rng)
    mask, their_mask = masks(model.config, side)
    if model.config.segments:
        mask["segments"] = rng.integers(0, 2, (B, S))
        their_mask["segments"] = torch.tensor(mask["segments"])
    ours, out = model(*xs, **mask), theirs(*ys, **their_mask)
    assert_close(ours.logits, out.logits, "logits")
    assert_close(ours.hidden, out.hidden, "hidden")
    assert ours.aux_losses.keys() == out.aux_losses.keys()
    dy = rng.normal(size=ours.logits.shape)
    loss, their_loss = (ours.logits * dy).sum(), (out.logits * torch.tensor(dy)).sum()
    for name, aux in ours.aux_losses.items():
        assert_close(aux, out.aux_losses[name], name)
        loss, their_loss = loss + 3 * aux, their_loss + 3 * out.aux_losses[name]
    loss.backward()
    their_loss.backward()
    assert_same_gradients(model, theirs)

    back = from_torch(theirs)
    assert back.config == model.config
    for (name, a), b in zip(model.named_parameters(), back.parameters()):
        assert np.array_equal(a.numpy(), b.numpy()), name


def test_a_mask_of_pairs_and_positions_of_ones_own():
    """Two documents in a row."""
    model = build("llama", kv_heads=2)
    theirs = to_torch(model)
    ids = np.random.default_rng(0).integers(0, V, (B, S))
    documents = np.array([0, 0, 0, 1, 1, 1, 1])
    pairs = np.broadcast_to(documents[:, None] == documents, (B, S, S))
    at = np.array([0, 1, 2, 0, 1, 2, 3])
    ours = model(ids, mask=pairs, positions=at).logits
    out = theirs(torch.tensor(ids), mask=torch.tensor(pairs), positions=torch.tensor(at)).logits
    assert_close(ours, out, "logits")
    assert_close(ours.numpy()[:, 3:], model(ids[:, 3:]).logits, "the second document alone")
    rows = np.stack([at, at + 2, at + 5])
    out = theirs(torch.tensor(ids), positions=torch.tensor(rows)).logits
    assert_close(model(ids, positions=rows).logits, out, "positions of each row")


def test_a_fresh_one_trains_and_comes_back():
    torch.manual_seed(0)
    theirs = TorchTransformer(TransformerConfig.llama(**SMALL, vocab_size=V, kv_heads=2))
    ids = torch.randint(0, V, (B, S))
    losses = []
    for _ in range(20):
        logits = theirs(ids[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, V), ids[:, 1:].reshape(-1))
        gradients = torch.autograd.grad(loss, list(theirs.parameters()))
        with torch.no_grad():
            for p, g in zip(theirs.parameters(), gradients):
                p -= 0.3 * g
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    ours = from_torch(theirs.eval())
    np.testing.assert_allclose(ours(ids.numpy()).logits.numpy(), theirs(ids).logits.detach(), atol=1e-4)


@pytest.mark.parametrize("preset", ["gemma2", "mixtral", "original"])
def test_dropout_is_in_its_places(preset):
    """At p = 1 it is no matter of chance. (A configuration has p < 1, so it is set afterwards, on both sides.)"""
    model = build(preset, layers=1)
    theirs = to_torch(model)
    ids = np.arange(S)[None] % V
    xs = [ids, ids[:, :T]] if preset == "original" else [ids]
    ys = [torch.tensor(x) for x in xs]
    plain = model(*xs).logits.numpy()
    places = [(name, part, "p") for name, part in model.modules() if isinstance(part, Dropout)]
    places += [(name, part, "dropout") for name, part in model.modules() if isinstance(part, MultiHeadAttention)]
    assert len(places) >= 5
    for name, part, attribute in places:
        setattr(part, attribute, 1.0)
        theirs.get_submodule(name).p = 1.0
        dropped = model(*xs).logits
        assert_close(dropped, theirs(*ys).logits, name)
        assert np.abs(dropped.numpy() - plain).max() > 1e-3, f"{name}: nothing was dropped"
        setattr(part, attribute, 0.0)
        theirs.get_submodule(name).p = 0.0
    assert not to_torch(model.eval()).training
    config = model.config.replace(dropout=0.5, attention_dropout=0.3, ff_dropout=0.2)
    theirs = TorchTransformer(config)
    for name, part in Transformer(config, rng=np.random.default_rng(0)).modules():
        if isinstance(part, Dropout | MultiHeadAttention):
            p = part.p if isinstance(part, Dropout) else part.dropout
            assert theirs.get_submodule(name).p == p, name


def test_the_state_of_a_whole_model():
    model = build("gpt2")
    state = state_dict_to_torch(model)
    assert list(state) == list(model.state_dict())
    TorchTransformer(model.config).double().load_state_dict(state, strict=False)  # the tied head is not named twice
    for name, value in state.items():
        assert_close(value, model.state_dict()[name], name)


def test_what_it_refuses():
    theirs = to_torch(build("original"))
    ids = torch.zeros(B, S, dtype=torch.long)
    with pytest.raises(TypeError, match=r"an encoder-decoder reads two sequences, model\(ids, target_ids\)"):
        theirs(ids)
    with pytest.raises(TypeError, match=r"a mask is boolean, \(B, T\) or \(B, T, S\), True = may attend, not"):
        theirs(ids, ids, mask=ids)
    theirs = to_torch(build("vit"))
    with pytest.raises(ValueError, match="to pool, the mask says which tokens are real"):
        theirs(torch.zeros(B, S, 3, dtype=torch.double), mask=torch.ones(B, S + 1, S + 1, dtype=torch.bool))
