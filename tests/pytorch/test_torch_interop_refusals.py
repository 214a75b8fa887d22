"""What one side cannot express is refused by name, with one message; and without PyTorch there is one, too."""
import inspect
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402

from minitx import nn as ours  # noqa: E402
from minitx.interop.torch import from_torch, like_torch, names, rename_from_torch, to_torch  # noqa: E402
from minitx.models import Transformer, TransformerConfig  # noqa: E402
from minitx.models.parts import LanguageModelHead  # noqa: E402
from minitx.nn.init import normal  # noqa: E402

pytestmark = pytest.mark.torch
rng = np.random.default_rng(0)
B, T, S, D, H = 2, 3, 5, 6, 2


# ---------------------------------------------------------------------- from PyTorch


class Other(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def hooked():
    m = nn.TransformerEncoderLayer(D, H)
    m.linear1.register_forward_hook(lambda *_: None)
    return m


def tied():
    m = nn.TransformerEncoderLayer(D, H)
    m.norm2 = m.norm1
    return m


def half_half():
    m = nn.TransformerEncoderLayer(D, H)
    m.norm1.double()
    return m


def own_encoder():
    return nn.Transformer(D, H, custom_encoder=nn.Identity())


FROM = {
    "max_norm": (lambda: nn.Embedding(3, 2, max_norm=1.0), "Embedding max_norm=1.0 has no counterpart"),
    "max_norm 0": (lambda: nn.Embedding(3, 2, max_norm=0.0), "Embedding max_norm=0.0"),
    "scale_grad_by_freq": (lambda: nn.Embedding(3, 2, scale_grad_by_freq=True), "Embedding scale_grad_by_freq=True"),
    "sparse": (lambda: nn.Embedding(3, 2, sparse=True), r"Embedding sparse=True .* module.sparse = False"),
    "two axes": (lambda: nn.LayerNorm((3, 2)), r"LayerNorm normalized_shape=\(3, 2\): minitx normalises the last"),
    "two axes, rms": (lambda: nn.RMSNorm((3, 2)), r"RMSNorm normalized_shape=\(3, 2\)"),
    "no eps": (lambda: nn.RMSNorm(3, elementwise_affine=False), "RMSNorm eps=None without a weight"),
    "other forward": (lambda: Other(2, 3), "Other computes something of its own"),
    "conv": (lambda: nn.Conv1d(2, 3, 1), "Conv1d has no counterpart in minitx; there is one for Linear, Embedding"),
    "own encoder": (own_encoder, "Identity has no counterpart"),
    "hooks": (hooked, "linear1: has forward hooks"),
    "parametrized": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)), "a parametrized weight"),
    "tied": (tied, r"norm2.bias, norm2.weight: shared with another place"),
    "bfloat16": (lambda: nn.Linear(2, 3, dtype=torch.bfloat16), r"the weights are torch.bfloat16, .* module.float\(\)"),
    "two dtypes": (half_half, "the weights are torch.float32 and torch.float64"),
    "no module": (lambda: ours.Linear(2, 3, rng=rng), "from_torch takes a torch.nn.Module, not a Linear"),
}  # fmt: skip


@pytest.mark.parametrize("case", FROM)
def test_from_torch_refuses(case):
    make, message = FROM[case]
    with pytest.raises((TypeError, ValueError), match=message):
        from_torch(make())


# ---------------------------------------------------------------------- to PyTorch


def attention(**options):
    return ours.MultiHeadAttention(12, 4, rng=rng, **options)


def block(feedforward=None, residual=None, **options):
    return ours.EncoderBlock(
        attention(**options), feedforward or ours.FeedForward(12, 5, rng=rng),
        residual or (lambda: ours.PreNorm(ours.LayerNorm(12), rng=rng)),
    )  # fmt: skip


def mixed(kinds):
    kinds = iter(kinds)
    return lambda: next(kinds)(ours.LayerNorm(12), rng=rng)


def both():
    return ours.BothNorm(ours.LayerNorm(12), ours.LayerNorm(12), rng=rng)


TO = {
    "kv_heads": (lambda: attention(kv_heads=2), "nn.MultiheadAttention cannot .*: kv_heads 2 for 4 heads"),
    "head_dim": (lambda: attention(head_dim=2), "head_dim 2, 4 heads, d_model 12"),
    "value_dim": (lambda: attention(value_dim=2), "value_dim other than head_dim"),
    "bias": (lambda: attention(bias=True, out_bias=False), "bias on some of query, key, value, out"),
    "rotary": (lambda: attention(head_dim=2, rotary=ours.Rotary(2)), "head_dim 2.*; rotary"),
    "position_bias": (lambda: attention(position_bias=ours.AlibiBias(4)), "position_bias"),
    "qk_norm": (lambda: attention(qk_norm=ours.RMSNorm), "qk_norm"),
    "window": (lambda: attention(window=2), "window"),
    "scale": (lambda: attention(scale=1.0), "scale"),
    "softcap": (lambda: attention(softcap=5.0), "softcap"),
    "linear": (lambda: attention(kernel="linear"), "kernel 'linear'"),
    "embedding scale": (lambda: ours.Embedding(3, 2, rng=rng, scale=2.0), "nn.Embedding cannot .*: scale 2"),
    "head": (lambda: LanguageModelHead(2, 3, softcap=2.0, rng=rng, init=normal(1.0)), "this head: softcap 2.0"),
    "gated": (
        lambda: block(ours.GatedFeedForward(12, 5, rng=rng)),
        r"nn.TransformerEncoderLayer cannot express this block: feedforward GatedFeedForward\. A whole model",
    ),
    "experts": (lambda: block(ours.MixtureOfExperts(12, 5, 3, rng=rng)), "feedforward MixtureOfExperts"),
    "rms": (lambda: block(residual=lambda: ours.PreNorm(ours.RMSNorm(12), rng=rng)), "this block: RMSNorm"),
    "both": (lambda: block(residual=both), "a norm on both sides"),
    "mixed": (lambda: block(residual=mixed([ours.PreNorm, ours.PostNorm])), "pre-norm and post-norm mixed"),
    "some biases": (lambda: block(bias=False), "bias on some of its linear layers and norms"),
    "attention in a block": (lambda: block(window=3), "TransformerEncoderLayer cannot .* this block: window"),
    "rotary alone": (lambda: ours.Rotary(4), r"PyTorch has no layer like Rotary; .* to_torch\(model\)"),
    "feed-forward alone": (lambda: ours.FeedForward(2, 3, rng=rng), "PyTorch has no layer like FeedForward"),
}  # fmt: skip


@pytest.mark.parametrize("case", TO)
def test_to_torch_refuses(case):
    make, message = TO[case]
    with pytest.raises((TypeError, ValueError), match=message):
        to_torch(make())


def test_several_reasons_are_said_at_once():
    with pytest.raises(ValueError, match=r"kv_heads 2 for 4 heads; qk_norm; window; softcap. A whole model of any"):
        to_torch(attention(kv_heads=2, qk_norm=ours.RMSNorm, window=3, softcap=2.0))


def test_a_block_of_today():
    config = TransformerConfig.llama(layers=1, d_model=16, heads=4, vocab_size=3, max_length=8)
    with pytest.raises(ValueError, match=r"GatedFeedForward; RMSNorm; kv_heads 1 for 4 heads; rotary. A whole model"):
        to_torch(Transformer(config, rng=rng).decoder[0])


def test_an_empty_stack_and_tied_parts():
    from minitx.interop.torch import EncoderStack

    with pytest.raises(ValueError, match=r"nn.TransformerEncoder is made of copies of one layer, and this stack is"):
        to_torch(EncoderStack([]))
    one = block()
    with pytest.raises(ValueError, match=r"blocks.1.attention.query.weight.*: tied to another parameter"):
        to_torch(EncoderStack([one, one]))


# ---------------------------------------------------------------------- calls

X = rng.normal(size=(S, B, D)).astype(np.float32)
Y = rng.normal(size=(T, B, D)).astype(np.float32)
HIDDEN = np.zeros((S, S), bool)
CALLS = {
    "rank": (lambda a: a(X[None], X, X), r"query is \(T, B, d_model\), or \(T, d_model\) for one row"),
    "attn_mask of integers": (lambda a: a(X, X, X, attn_mask=HIDDEN.astype(int)), "attn_mask is boolean, True = may"),
    "attn_mask shape": (lambda a: a(X, X, X, attn_mask=HIDDEN[:3]), r"attn_mask is \(T, S\), \(5, 5\), or \(B \* H"),
    "attn_mask per row": (
        lambda a: a(X, X, X, attn_mask=np.stack([HIDDEN] * B)), r"\(4, 5, 5\), not \(2, 5, 5\)",
    ),
    "padding shape": (lambda a: a(X, X, X, key_padding_mask=HIDDEN), r"key_padding_mask is \(B, S\), \(2, 5\)"),
    "padding of integers": (lambda a: a(X, X, X, key_padding_mask=HIDDEN[:2] + 0), "key_padding_mask is boolean"),
    "hint without a mask": (lambda a: a(X, X, X, is_causal=True), "is_causal=True is a hint that attn_mask is the"),
    "wrong hint": (lambda a: a(X, X, X, is_causal=True, attn_mask=HIDDEN), "is the causal mask, and it is another one"),
}  # fmt: skip


@pytest.mark.parametrize("case", CALLS)
def test_calls_refuse(case):
    call, message = CALLS[case]
    with pytest.raises((TypeError, ValueError), match=message):
        call(like_torch(from_torch(nn.MultiheadAttention(D, H))))


def test_calls_of_layers_name_their_own_arguments():
    encoder = like_torch(from_torch(nn.TransformerEncoderLayer(D, H)))
    with pytest.raises(ValueError, match=r"src_mask is \(T, S\)"):
        encoder(X, src_mask=HIDDEN[:2])
    with pytest.raises(ValueError, match="is_causal=True is a hint that src_mask is"):
        encoder(X, is_causal=True)
    decoder = like_torch(from_torch(nn.TransformerDecoderLayer(D, H)))
    with pytest.raises(ValueError, match="tgt_is_causal=True is a hint that tgt_mask is"):
        decoder(Y, X, tgt_is_causal=True)
    with pytest.raises(ValueError, match=r"memory_key_padding_mask is \(B, S\), \(2, 5\), one line of keys per row"):
        decoder(Y, X, memory_key_padding_mask=np.zeros((B, T), bool))
    with pytest.raises(ValueError, match="memory_is_causal=True is a hint that memory_mask is"):
        decoder(Y, X, memory_is_causal=True, memory_mask=np.zeros((T, S), bool))


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_a_hint_with_added_keys(option):
    """PyTorch's own two results, and ours, which is none."""
    m = nn.MultiheadAttention(D, H, **{option: True})
    mask = np.triu(np.ones((S, S), bool), 1)
    x, said = torch.tensor(X), {"attn_mask": torch.tensor(mask), "is_causal": True}
    assert not torch.allclose(m(x, x, x, **said)[0], m(x, x, x, need_weights=False, **said)[0], atol=1e-3)
    with pytest.raises(ValueError, match="is_causal with add_bias_kv or add_zero_attn"):
        like_torch(from_torch(m))(X, X, X, attn_mask=mask, is_causal=True)
    with pytest.raises(ValueError, match="takes no cache"):
        from_torch(m)(X.swapaxes(0, 1), cache=object())


def test_like_torch_has_no_word_for_the_rest():
    model = Transformer(TransformerConfig(layers=1, d_model=4, heads=2, vocab_size=3), rng=rng)
    with pytest.raises(TypeError, match="like_torch: PyTorch has no layer that is a Transformer"):
        like_torch(model)


def test_names_that_are_missing():
    linear = ours.Linear(2, 3, rng=rng)
    with pytest.raises(KeyError, match="there is no 'bias', which is 'bias' here, among weight"):
        rename_from_torch(linear, {"weight": torch.zeros(3, 2)})
    with pytest.raises(TypeError, match="PyTorch has no layer that is a FeedForward"):
        names(ours.FeedForward(2, 3, rng=rng))


# ---------------------------------------------------------------------- nothing of PyTorch's is forgotten

LAYER = {"d_model", "nhead", "dim_feedforward", "dropout", "activation", "layer_norm_eps", "batch_first", "norm_first",
         "bias"}  # fmt: skip
OPTIONS = {  # what was thought of: another option of a later PyTorch has to be mapped or refused
    nn.Linear: {"in_features", "out_features", "bias"},
    nn.Embedding: {"num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq",
                   "sparse"},
    nn.LayerNorm: {"normalized_shape", "eps", "elementwise_affine", "bias"},
    nn.RMSNorm: {"normalized_shape", "eps", "elementwise_affine"},
    nn.MultiheadAttention: {"embed_dim", "num_heads", "dropout", "bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim",
                            "batch_first"},
    nn.TransformerEncoderLayer: LAYER,
    nn.TransformerDecoderLayer: LAYER,
    nn.TransformerEncoder: {"encoder_layer", "num_layers", "norm", "enable_nested_tensor", "mask_check"},
    nn.TransformerDecoder: {"decoder_layer", "num_layers", "norm"},
    nn.Transformer: LAYER | {"num_encoder_layers", "num_decoder_layers", "custom_encoder", "custom_decoder"},
}  # fmt: skip


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_option_of_a_constructor_was_thought_of(kind):
    told = set(inspect.signature(kind).parameters) - {"device", "dtype", "_weight", "_freeze"}
    assert told == OPTIONS[kind]


@pytest.mark.parametrize("kind", list(OPTIONS)[4:])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_calls_have_the_arguments_of_pytorch_in_its_order(kind):
    layers = {"TransformerEncoder": nn.TransformerEncoderLayer, "TransformerDecoder": nn.TransformerDecoderLayer}
    theirs = kind(layers[kind.__name__](D, H), 1) if kind.__name__ in layers else kind(D, H)
    call = like_torch(from_torch(theirs))
    assert list(inspect.signature(call).parameters) == list(inspect.signature(theirs.forward).parameters)


# ---------------------------------------------------------------------- without PyTorch


def test_without_pytorch():
    code = """
import sys
sys.modules["torch"] = None
import minitx, minitx.models, minitx.interop
try:
    import minitx.interop.torch
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == 'minitx.interop.torch needs PyTorch: in the clone, pip install -e ".[torch]"'
