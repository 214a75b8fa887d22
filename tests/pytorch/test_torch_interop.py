"""from_torch and to_torch, layer by layer over PyTorch's options: outputs and all gradients to 1e-10 in float64."""
import functools
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_interop_pairs import assert_close, assert_same_gradients, compare, randomized  # noqa: E402

from minitx import Tensor, ops  # noqa: E402
from minitx.interop.torch import (  # noqa: E402
    DecoderStack,
    EncoderDecoder,
    EncoderStack,
    from_torch,
    like_torch,
    to_torch,
)
from minitx.masks import causal, padding  # noqa: E402
from minitx.models import Transformer, TransformerConfig  # noqa: E402

pytestmark = pytest.mark.torch

B, T, S, H, D, FF = 2, 3, 5, 2, 14, 11
INF = np.inf
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.normal(size=shape)


# ---------------------------------------------------------------------- layers


@pytest.mark.parametrize("bias", [True, False])
def test_linear(bias):
    compare(randomized(nn.Linear(7, 5, bias=bias)), normal(2, 3, 7))


@pytest.mark.parametrize("padding_idx", [None, 0, 4, -2])
def test_embedding(padding_idx):
    ids = np.array([[0, 4, 4], [9, 1, 0]])
    ours = compare(randomized(nn.Embedding(11, 5, padding_idx=padding_idx)), ids)
    assert ours.padding_idx == (9 if padding_idx == -2 else padding_idx)


@pytest.mark.parametrize("norm", [
    nn.LayerNorm(7), nn.LayerNorm((7,), eps=0.1), nn.LayerNorm(7, bias=False),
    nn.LayerNorm(7, elementwise_affine=False), nn.RMSNorm(7, eps=1e-6), nn.RMSNorm([7], eps=0.3),
    nn.RMSNorm(7, eps=0.1, elementwise_affine=False),
], ids=repr)  # fmt: skip
def test_norms(norm):
    compare(randomized(norm), normal(2, 3, 7))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_rms_norm_without_eps_has_that_of_its_dtype(dtype):
    assert from_torch(nn.RMSNorm(7, dtype=dtype)).eps == torch.finfo(dtype).eps


def test_a_gain_of_one_plus_w_is_written_as_it_acts():
    from minitx.nn import RMSNorm

    ours = RMSNorm(5, offset=1.0).astype(np.float64)
    ours.weight.data = normal(5)
    x = normal(3, 5)
    theirs = to_torch(ours)
    assert_close(theirs.weight, 1 + ours.weight.numpy(), "gain")
    assert_close(ours(Tensor(x)), theirs(torch.tensor(x)), "output")


# ---------------------------------------------------------------------- attention


def attention_masks(T, S):
    """Every kind of attn_mask; no query of them is without a key."""
    boolean = rng.random((T, S)) < 0.4
    boolean[:, 0] = False
    per_head = rng.random((B * H, T, S)) < 0.4
    per_head[..., 0] = False
    hiding = np.where(boolean, -INF, normal(T, S))
    return {
        "none": None, "boolean": boolean, "float": normal(T, S), "float with -inf": hiding, "3-D boolean": per_head,
        "3-D float": normal(B * H, T, S),
    }  # fmt: skip


def padding_masks(S):
    hidden = np.arange(S) >= np.array([[S], [S - 2]])
    return {
        "none": None, "boolean": hidden, "float": normal(B, S), "float with -inf": np.where(hidden, -INF, 0.0),
    }  # fmt: skip


def options(**given):
    """Without what is None. (PyTorch warns where one mask is boolean and the other float, and goes on.)"""
    return {name: value for name, value in given.items() if value is not None}


ignore_mismatch = pytest.mark.filterwarnings("ignore:Support for mismatched")
ATTN, PAD = attention_masks(T, S), padding_masks(S)


@ignore_mismatch
@pytest.mark.parametrize(
    ("attn", "pad", "need_weights"),
    [(attn, pad, (i + j) % 2 == 0) for i, attn in enumerate(ATTN) for j, pad in enumerate(PAD)],
)
def test_attention_with_every_pair_of_masks(attn, pad, need_weights):
    m = randomized(nn.MultiheadAttention(D, H))
    inputs = normal(T, B, D), normal(S, B, D), normal(S, B, D)
    said = options(attn_mask=ATTN[attn], key_padding_mask=PAD[pad])
    compare(m, *inputs, need_weights=need_weights, average_attn_weights=attn == "none", **said)


@ignore_mismatch
@pytest.mark.parametrize(
    ("bias", "add_bias_kv", "add_zero_attn", "kdim", "vdim", "batch_first", "attn", "pad"),
    [
        (True, False, False, None, None, False, "3-D boolean", "float"),
        (False, False, False, None, None, False, "float", "boolean"),
        (True, True, False, None, None, False, "3-D boolean", "float"),
        (True, True, False, None, None, False, "none", "boolean"),
        (False, True, True, None, None, False, "float", "boolean"),
        (True, False, True, None, None, False, "boolean", "boolean"),
        (False, False, True, None, None, True, "3-D float", "none"),
        (True, True, True, None, None, True, "none", "none"),
        (True, False, False, 7, 5, True, "3-D boolean", "float"),
        (False, True, True, 7, 5, False, "float with -inf", "boolean"),
        (True, False, False, 7, None, True, "none", "none"),
        (True, False, False, None, 5, False, "float", "boolean"),
        (True, True, False, 7, 7, False, "none", "float with -inf"),
    ],
)
def test_attention_of_every_construction(bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, attn, pad):
    m = nn.MultiheadAttention(
        D, H, bias=bias, add_bias_kv=add_bias_kv, add_zero_attn=add_zero_attn, kdim=kdim, vdim=vdim,
        batch_first=batch_first, dropout=0.3,
    ).eval()  # fmt: skip
    inputs = [normal(T, B, D), normal(S, B, kdim or D), normal(S, B, vdim or D)]
    inputs = [x.swapaxes(0, 1) for x in inputs] if batch_first else inputs
    said = options(attn_mask=ATTN[attn], key_padding_mask=PAD[pad])
    compare(randomized(m), *inputs, batch_first=batch_first, average_attn_weights=False, **said)


def test_attention_with_an_added_key_and_a_minitx_mask():
    theirs = randomized(nn.MultiheadAttention(D, H, add_bias_kv=True, add_zero_attn=True, batch_first=True))
    x = normal(B, S, D)
    hidden = np.triu(np.ones((S, S), bool), 1) | (np.arange(S) >= np.array([S, S - 2])[:, None, None])
    y, w = theirs(*[torch.tensor(x)] * 3, attn_mask=torch.tensor(hidden).repeat_interleave(H, 0),
                  average_attn_weights=False)  # fmt: skip
    z, v = from_torch(theirs)(Tensor(x), mask=causal() & padding([S, S - 2]), weights=True)
    assert_close(z, y, "output")
    assert_close(v, w, "weights")


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_attention_of_one_row(average, batch_first):
    m = randomized(nn.MultiheadAttention(D, H, batch_first=batch_first))
    compare(m, normal(T, D), normal(S, D), normal(S, D), batch_first=batch_first, average_attn_weights=average,
            key_padding_mask=PAD["boolean"][1], attn_mask=ATTN["boolean"])  # fmt: skip


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("pad", ["none", "boolean"])
@pytest.mark.parametrize("kind", ["boolean", "float"])
def test_is_causal(need_weights, pad, kind):
    hidden = np.triu(np.ones((S, S), bool), 1)
    mask = hidden if kind == "boolean" else np.where(hidden, -INF, 0.0)
    pad = PAD[pad] if PAD[pad] is None or kind == "boolean" else np.where(PAD[pad], -INF, 0.0)
    said = options(attn_mask=mask, key_padding_mask=pad, need_weights=need_weights, is_causal=True)
    compare(randomized(nn.MultiheadAttention(D, H)), *(normal(S, B, D) for _ in range(3)), **said)


@pytest.mark.parametrize("shape", [(T, S), (B * H, T, S)])
def test_a_float_mask_gets_its_gradient(shape):
    m = randomized(nn.MultiheadAttention(D, H, batch_first=True))
    q, k = normal(B, T, D), normal(B, S, D)
    dy, mask = normal(B, T, D), normal(*shape)
    theirs = torch.tensor(mask, requires_grad=True)
    m(torch.tensor(q), torch.tensor(k), torch.tensor(k), attn_mask=theirs)[0].backward(torch.tensor(dy))
    ours = Tensor(mask, requires_grad=True)
    like_torch(from_torch(m), batch_first=True)(q, k, k, attn_mask=ours)[0].backward(dy)
    assert_close(ours.grad, theirs.grad, "attn_mask")


def test_where_we_differ_a_query_that_sees_nothing():
    m = randomized(nn.MultiheadAttention(D, H))
    x, mask = normal(S, B, D), np.zeros((S, S), bool)
    mask[2] = True
    y, _ = m(*[torch.tensor(x)] * 3, attn_mask=torch.tensor(mask))
    assert torch.isnan(y[2]).all()  # theirs, with weights
    z, v = like_torch(from_torch(m))(x, x, x, attn_mask=mask)
    assert_close(z.numpy()[2], m.out_proj.bias.expand(B, D), "what is left is the bias of out_proj")
    assert not v[:, 2].any()
    kept = [0, 1, 3, 4]
    assert_close(z.numpy()[kept], y[kept], "the other queries")


@pytest.mark.parametrize("rows", [(T, B), (B, T)])
def test_float32_stays_float32(rows):
    m = nn.MultiheadAttention(D, H, batch_first=rows == (B, T))
    ours = from_torch(m)
    assert {p.dtype for p in ours.parameters()} == {np.dtype(np.float32)}
    x = np.asarray(normal(*rows, D), np.float32)
    z, w = like_torch(ours, m.batch_first)(x, x, x)
    assert (z.dtype, w.dtype) == (np.float32, np.float32)
    np.testing.assert_allclose(z.numpy(), m(*[torch.tensor(x)] * 3)[0].detach(), atol=1e-5)
    assert {p.dtype for p in to_torch(ours).parameters()} == {torch.float32}


# ---------------------------------------------------------------------- blocks

SRC_ATTN, SRC_PAD = attention_masks(S, S), padding_masks(S)
ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "F.gelu": F.gelu, "nn.GELU tanh": nn.GELU(approximate="tanh"), "silu": F.silu,
    "partial": functools.partial(F.gelu, approximate="tanh"), "nn.SiLU": nn.SiLU(), "torch.tanh": torch.tanh,
    "nn.Sigmoid": nn.Sigmoid(), "nn.ReLU": nn.ReLU(), "nn.GELU": nn.GELU(),
}  # fmt: skip


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_encoder_layer_of_every_construction(norm_first, bias, batch_first):
    m = nn.TransformerEncoderLayer(
        D, H, FF, dropout=0.3, activation="gelu", layer_norm_eps=0.1, norm_first=norm_first, bias=bias,
        batch_first=batch_first,
    ).eval()  # fmt: skip
    x = normal(B, S, D) if batch_first else normal(S, B, D)
    ours = compare(randomized(m), x, batch_first=batch_first, src_key_padding_mask=SRC_PAD["boolean"])
    assert not ours.training


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation):
    m = nn.TransformerEncoderLayer(D, H, FF, dropout=0.0, activation=ACTIVATIONS[activation], batch_first=True)
    compare(randomized(m), normal(B, S, D), batch_first=True)


def test_an_activation_of_ones_own():
    m = randomized(nn.TransformerDecoderLayer(D, H, FF, dropout=0.0, activation=lambda x: torch.exp(-x * x)))
    with pytest.raises(ValueError, match=r"activation <lambda>: known are relu, gelu.* from_torch.module, activation"):
        from_torch(m)
    ours = from_torch(m, activation=lambda x: ops.exp(-x * x))
    x, memory = normal(T, B, D), normal(S, B, D)
    assert_close(like_torch(ours)(x, memory), m(torch.tensor(x), torch.tensor(memory)), "output")
    with pytest.raises(ValueError, match=r"activation <lambda>.* to_torch.module, activation"):
        to_torch(ours)
    back = to_torch(ours, activation=m.activation, batch_first=False)
    assert_close(back(torch.tensor(x), torch.tensor(memory)), m(torch.tensor(x), torch.tensor(memory)), "back")


@ignore_mismatch
@pytest.mark.parametrize(("attn", "pad"), [*zip(SRC_ATTN, itertools.cycle(SRC_PAD)), ("none", "float with -inf")])
def test_encoder_layer_masks(attn, pad):
    m = randomized(nn.TransformerEncoderLayer(D, H, FF, dropout=0.0))
    compare(m, normal(S, B, D), **options(src_mask=SRC_ATTN[attn], src_key_padding_mask=SRC_PAD[pad]))


PLACES = {
    nn.TransformerEncoderLayer: ["dropout", "dropout1", "dropout2", "self_attn"],
    nn.TransformerDecoderLayer: ["dropout", "dropout1", "dropout2", "dropout3", "self_attn", "multihead_attn"],
}


@pytest.mark.parametrize(
    ("kind", "place", "norm_first"),
    [(kind, place, i % 2 == 0) for kind, places in PLACES.items() for i, place in enumerate(places)],
)
def test_each_dropout_is_in_its_place(kind, place, norm_first):
    """At p = 1 dropout is no matter of chance, and a layer that has it elsewhere gives something else."""
    m = randomized(kind(D, H, FF, dropout=0.0, norm_first=norm_first))
    part = getattr(m, place)
    setattr(part, "p" if isinstance(part, nn.Dropout) else "dropout", 1.0)
    inputs = [normal(S, B, D)] if kind is nn.TransformerEncoderLayer else [normal(T, B, D), normal(S, B, D)]
    compare(m, *inputs)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_decoder_layer_of_every_construction(norm_first, bias, batch_first):
    m = nn.TransformerDecoderLayer(
        D, H, FF, dropout=0.3, activation=F.relu, layer_norm_eps=0.2, norm_first=norm_first, bias=bias,
        batch_first=batch_first,
    ).eval()  # fmt: skip
    inputs = [normal(T, B, D), normal(S, B, D)]
    inputs = [x.swapaxes(0, 1) for x in inputs] if batch_first else inputs
    compare(randomized(m), *inputs, batch_first=batch_first, memory_key_padding_mask=PAD["boolean"])


TGT_ATTN, TGT_PAD = attention_masks(T, T), padding_masks(T)


@ignore_mismatch
@pytest.mark.parametrize("i", range(6))
def test_decoder_layer_masks(i):
    tgt, memory = list(TGT_ATTN)[i], list(ATTN)[(i + 1) % 6]
    tgt_pad, memory_pad = list(TGT_PAD)[i % 4], list(PAD)[(i + 2) % 4]
    said = options(
        tgt_mask=TGT_ATTN[tgt], memory_mask=ATTN[memory], tgt_key_padding_mask=TGT_PAD[tgt_pad],
        memory_key_padding_mask=PAD[memory_pad],
    )  # fmt: skip
    m = randomized(nn.TransformerDecoderLayer(D, H, FF, dropout=0.0))
    compare(m, normal(T, B, D), normal(S, B, D), **said)


def test_layers_of_one_row():
    said = {"tgt_key_padding_mask": TGT_PAD["boolean"][1], "memory_key_padding_mask": PAD["boolean"][1]}
    compare(randomized(nn.TransformerDecoderLayer(D, H, FF, dropout=0.0)), normal(T, D), normal(S, D), **said)
    m = randomized(nn.TransformerEncoderLayer(D, H, FF, dropout=0.0, batch_first=True))
    compare(m, normal(S, D), batch_first=True, src_key_padding_mask=SRC_PAD["boolean"][1])


def causal_mask(n, kind=bool):
    hidden = np.triu(np.ones((n, n), bool), 1)
    return hidden if kind is bool else np.where(hidden, -INF, 0.0)


@pytest.mark.parametrize("kind", [bool, float])
def test_hints_that_a_mask_is_causal(kind):
    layer = {"dropout": 0.0, "dim_feedforward": FF}
    m = randomized(nn.TransformerEncoderLayer(D, H, **layer))
    compare(m, normal(S, B, D), src_mask=causal_mask(S, kind), is_causal=True)
    m = randomized(nn.TransformerDecoderLayer(D, H, **layer))
    said = {"tgt_mask": causal_mask(T, kind), "tgt_is_causal": True, "memory_is_causal": False}
    compare(m, normal(T, B, D), normal(S, B, D), **said)
    said |= {"memory_mask": causal_mask(T, kind), "memory_is_causal": True}
    compare(m, normal(T, B, D), normal(T, B, D), **said)


# ---------------------------------------------------------------------- stacks


def stack_of(kind, layer, n, norm, **options):
    """Layers that differ: PyTorch's start as copies."""
    return randomized(kind(layer, n, norm, **options), seed=5)


@pytest.mark.parametrize(
    ("norm", "norm_first", "batch_first"),
    [(None, False, True), (None, True, False), (nn.LayerNorm(D, eps=0.1), True, True), (nn.RMSNorm(D), False, False)],
    ids=repr,
)
def test_encoder(norm, norm_first, batch_first):
    layer = nn.TransformerEncoderLayer(D, H, FF, dropout=0.0, norm_first=norm_first, batch_first=batch_first)
    m = stack_of(nn.TransformerEncoder, layer, 3, norm, enable_nested_tensor=False)
    x = normal(B, S, D) if batch_first else normal(S, B, D)
    compare(m, x, batch_first=batch_first, mask=causal_mask(S), src_key_padding_mask=SRC_PAD["boolean"])
    compare(m, x, batch_first=batch_first, mask=causal_mask(S), is_causal=True)
    compare(m, x, batch_first=batch_first, mask=SRC_ATTN["float"], is_causal=False)


def test_layers_of_one_stack_may_differ():
    layers = [nn.TransformerEncoderLayer(D, H, FF, dropout=0.0, layer_norm_eps=eps) for eps in (0.1, 0.7)]
    layers[1].activation, layers[1].norm2.eps, layers[1].dropout1.p = F.silu, 0.3, 1.0
    m = nn.TransformerEncoder(layers[0], 2, enable_nested_tensor=False)
    m.layers = nn.ModuleList(layers)
    compare(randomized(m), normal(S, B, D))


@pytest.mark.parametrize("norm", [None, nn.LayerNorm(D, eps=0.1, bias=False)], ids=repr)
@pytest.mark.parametrize("norm_first", [True, False])
def test_decoder(norm, norm_first):
    layer = nn.TransformerDecoderLayer(D, H, FF, dropout=0.0, norm_first=norm_first)
    m = stack_of(nn.TransformerDecoder, layer, 2, norm)
    inputs = normal(T, B, D), normal(S, B, D)
    compare(m, *inputs, tgt_mask=causal_mask(T), tgt_is_causal=True, memory_key_padding_mask=PAD["boolean"])
    compare(m, *inputs, memory_mask=ATTN["3-D float"])


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")  # PyTorch's own, of its own encoder
def test_transformer(norm_first, batch_first):
    m = nn.Transformer(
        D, H, 2, 3, FF, dropout=0.0, activation="gelu", layer_norm_eps=0.1, norm_first=norm_first,
        batch_first=batch_first,
    )  # fmt: skip
    inputs = [normal(S, B, D), normal(T, B, D)]
    inputs = [x.swapaxes(0, 1) for x in inputs] if batch_first else inputs
    said = {
        "src_key_padding_mask": SRC_PAD["boolean"], "memory_key_padding_mask": SRC_PAD["boolean"],
        "src_mask": SRC_ATTN["boolean"], "memory_mask": ATTN["boolean"], "tgt_mask": causal_mask(T),
        "tgt_is_causal": True,
    }  # fmt: skip
    compare(randomized(m), *inputs, batch_first=batch_first, **said)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
def test_called_as_minitx_is_called():
    """Batch first, True = may attend, and a decoder that is causal by itself."""
    m = randomized(nn.Transformer(D, H, 2, 2, FF, dropout=0.0, batch_first=True))
    x, y = normal(B, S, D), normal(B, T, D)
    hidden, of_target = SRC_PAD["boolean"], TGT_PAD["boolean"]
    expected = m(
        torch.tensor(x), torch.tensor(y), tgt_mask=torch.tensor(causal_mask(T)),
        src_key_padding_mask=torch.tensor(hidden), memory_key_padding_mask=torch.tensor(hidden),
        tgt_key_padding_mask=torch.tensor(of_target),
    )  # fmt: skip
    ours = from_torch(m)
    got = ours(Tensor(x), Tensor(y), mask=padding([S, S - 2]), target_mask=padding([T, T - 2]))
    assert_close(got, expected, "output")


def test_the_fast_path_of_evaluation_gives_the_same_where_tokens_are_real():
    layer = nn.TransformerEncoderLayer(D, H, FF, activation="gelu", batch_first=True)
    m = randomized(nn.TransformerEncoder(layer, 2)).eval()  # nested tensors are on
    x, hidden = normal(B, S, D), SRC_PAD["boolean"]
    ours = like_torch(from_torch(m), batch_first=True)(x, src_key_padding_mask=hidden).numpy()
    with torch.no_grad(), pytest.warns(UserWarning, match="nested"):
        y = m(torch.tensor(x), src_key_padding_mask=torch.tensor(hidden))
    assert_close(ours[~hidden], y[torch.tensor(~hidden)], "real tokens")
    assert not y[torch.tensor(hidden)].any()  # theirs
    back = to_torch(from_torch(m))
    assert not back.enable_nested_tensor
    with torch.no_grad():
        assert_close(back(torch.tensor(x), src_key_padding_mask=torch.tensor(hidden)), ours, "nested tensors off")


# ---------------------------------------------------------------------- what goes along


def test_mode_frozen_parameters_and_copies():
    m = nn.TransformerEncoderLayer(D, H, FF).double().eval()
    m.self_attn.in_proj_weight.requires_grad = False
    ours = from_torch(m)
    assert not ours.training
    frozen = {name for name, p in ours.named_parameters() if not p.requires_grad}
    assert frozen == {f"attention.{part}.weight" for part in ("query", "key", "value")}
    back = to_torch(ours)
    assert [n for n, p in back.named_parameters() if not p.requires_grad] == ["self_attn.in_proj_weight"]
    before = ours.attention.query.weight.numpy()
    with torch.no_grad():
        m.self_attn.in_proj_weight.zero_()
        back.self_attn.in_proj_weight.zero_()
    assert np.array_equal(ours.attention.query.weight.numpy(), before)
    ours.attention.query.weight.requires_grad = True
    with pytest.raises(ValueError, match="in_proj_weight is one parameter in PyTorch, and here a part of it is frozen"):
        to_torch(ours)


def test_dropout_draws_from_the_generator_given():
    m = nn.TransformerEncoderLayer(D, H, FF, dropout=0.5)
    x = Tensor(normal(B, S, D).astype(np.float32))
    a, b, c = (from_torch(m, rng=np.random.default_rng(seed))(x).numpy() for seed in (3, 3, 4))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_the_stacks_of_a_model(placement):
    config = TransformerConfig.original(
        layers=2, d_model=D, heads=H, d_ff=FF, vocab_size=5, dropout=0.0, norm_placement=placement
    )
    model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)
    both = EncoderDecoder(
        EncoderStack(model.encoder, model.encoder_norm), DecoderStack(model.decoder, model.decoder_norm)
    )
    for p in both.parameters():
        p.data = normal(*p.shape)
    theirs = to_torch(both)
    assert type(theirs) is nn.Transformer
    x, y, dy = Tensor(normal(B, S, D), requires_grad=True), normal(B, T, D), normal(B, T, D)
    hidden = torch.tensor(SRC_PAD["boolean"])
    u = torch.tensor(x.numpy(), requires_grad=True)
    out = theirs(u, torch.tensor(y), tgt_mask=torch.tensor(causal_mask(T)), src_key_padding_mask=hidden,
                 memory_key_padding_mask=hidden)  # fmt: skip
    ours = both(x, Tensor(y), mask=padding([S, S - 2]))
    assert_close(ours, out, "output")
    ours.backward(dy)
    out.backward(torch.tensor(dy))
    assert_close(x.grad, u.grad, "input")
    assert_same_gradients(both, theirs)


def test_a_decoder_without_cross_attention_is_an_encoder_layer_there():
    config = TransformerConfig.gpt2(layers=2, d_model=D, heads=H, vocab_size=5, max_length=S, dropout=0.0)
    model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)
    stack = DecoderStack(model.decoder, model.decoder_norm)
    for p in stack.parameters():
        p.data = normal(*p.shape)
    theirs = to_torch(stack)
    assert type(theirs) is nn.TransformerEncoder
    x = normal(B, S, D)
    y = theirs(torch.tensor(x), mask=torch.tensor(causal_mask(S)), is_causal=True)
    assert_close(stack(Tensor(x)), y, "output")
    assert_close(like_torch(stack, batch_first=True)(x, mask=causal_mask(S)), y, "called like PyTorch's")
