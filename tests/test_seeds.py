"""The course material, row by row: which test, lab or command realises each figure, exercise, misconception and fault.

    python tests/test_seeds.py          prints the course map of the README

No row is silently absent: what is not there yet says "later", what will not come says "out of scope", with the reason.
The tests below the table are the figures and labs themselves.
"""
import math
import pathlib
import re

import numpy as np
import pytest

from minitx import nn
from minitx.masks import causal, padding
from minitx.models import Transformer, TransformerConfig
from minitx.ops import attention, cross_entropy, layer_norm, rms_norm
from minitx.tensor import Tensor

ROOT = pathlib.Path(__file__).parent.parent
SEED, NN, MODEL = "tests/test_seeds.py::", "tests/nn/", "tests/models/test_transformer.py::"

# (part of the course, what it shows or asks, who realises it)
ROWS = [
    ("figures", "residual: [1, 2, 3] + [0.1, -0.2, 0.3]", SEED + "test_residual_lab"),
    ("figures", "LayerNorm of two rows, row means 0 and stds 1", SEED + "test_layernorm_lab"),
    ("figures", "LayerNorm of [1, 3] is [-1, 1]", SEED + "test_layernorm_by_hand"),
    ("figures", "RMSNorm of [1, 3] is [1, 3]/√5", SEED + "test_rmsnorm_by_hand"),
    ("figures", "FFN (2, 5, 8) -> 32 -> (2, 5, 8)", SEED + "test_ffn_lab"),
    ("figures", "sinusoidal table of 3 positions, width 8", SEED + "test_positional_lab"),
    ("figures", "block parts: W1 (32, 16), W2 (16, 32), pre-norm", SEED + "test_block_parts"),
    ("figures", "encoder block keeps (2, 6, 16) and changes the values", SEED + "test_encoder_shape_lab"),
    ("figures", "decoder block: target (2, 3, 16), memory (2, 5, 16), mask (3, 3)", SEED + "test_decoder_shape_lab"),
    ("figures", "Q, K, V (2, 8, 128, 64), scores (2, 8, 128, 128), output (2, 128, 512)", SEED + "test_core_shapes"),
    ("figures", "8 heads x 4096² scores = 134,217,728 elements, 256 MiB in fp16", SEED + "test_score_memory"),
    ("figures", "KV cache of 32 layers, 8,192 tokens, 8 KV heads, width 128: 1 GiB", SEED + "test_kv_cache_memory"),
    ("figures", "query heads 0-3 share KV head 0, 4-7 share KV head 1", SEED + "test_gqa_mapping"),
    ("figures", "[BOS, hello, world] = [0, 1, 2] -> rows of E -> (1, 3, d)", SEED + "test_tokens_to_vectors"),
    ("figures", "inputs [BOS, A, B], targets [A, B, EOS]", SEED + "test_shift"),
    ("labs", "encoder block under padding and causal masks, changes times 10", SEED + "test_both_masks_at_once"),
    ("labs", "a padded row still carries values; pooling must leave it out", SEED + "test_padded_rows_carry_values"),
    ("labs", "a zero embedding is not zero after position and bias", SEED + "test_zero_padding_is_not_zero"),
    ("labs", "both Boolean mask conventions on one example", "tests/ops/test_attention.py::test_pitfall_31"),
    ("labs", "permutation equivariance without positions, lost under a causal mask", SEED + "test_permutation"),
    ("labs", "one teacher-forced pass equals T prefix passes", SEED + "test_teacher_forcing_is_parallel"),
    ("labs", "incremental logits equal full logits", NN + "test_attention_layer.py::test_with_a_cache_chunks"),
    ("labs", "MHA, GQA, MQA equal explicit repetition", NN + "test_attention_layer.py::test_equals_plain_loops"),
    ("labs", "gradient at the bottom and top, pre-norm and post-norm", "later: a lab of its own"),
    ("labs", "the router that collapses without its balance loss", NN + "test_mixture_layer.py::test_the_balance_loss_evens_the_load"),
    ("exercises", "draw information flow and masks of the three families", SEED + "test_masks_of_three_families"),
    ("exercises", "sinusoidal positions, odd and even widths, past the trained length", NN + "test_positions.py::test_pitfall_37"),
    ("exercises", "change a future token in a pre-norm block", NN + "test_blocks.py::test_a_decoder_block_is_causal"),
    ("exercises", "full-prefix against KV-cache logits", NN + "test_attention_layer.py::test_with_a_cache_chunks"),
    ("exercises", "estimate scores, FFN activations and KV cache", "tests/models/test_cost.py::test_figure_of_the_course"),
    ("exercises", "d_model 32: what else must change?", SEED + "test_changing_d_model"),
    ("exercises", "norm_first=False is which architecture?", NN + "test_blocks.py::test_post_norm_is_the_equation"),
    ("exercises", "why the FFN widens inside and keeps its output shape", SEED + "test_ffn_lab"),
    ("exercises", "target length 4: how must the mask change?", SEED + "test_decoder_shape_lab"),
    ("exercises", "GQA and MQA shrink the cache", SEED + "test_kv_cache_memory"),
    ("misconceptions", "a Transformer has no order", SEED + "test_permutation"),
    ("misconceptions", "all tokens can be generated in parallel", SEED + "test_teacher_forcing_is_parallel"),
    ("misconceptions", "a KV cache makes long contexts cost the same", SEED + "test_cached_attention_still_grows"),
    ("misconceptions", "a long context is a used context", "later: a lab of its own"),
    ("misconceptions", "LayerNorm settles stability", SEED + "test_layernorm_does_not_bound_the_residual"),
    ("misconceptions", "a Transformer is only attention", SEED + "test_parameters_outside_attention"),
    ("misconceptions", "same shape, same content", SEED + "test_encoder_shape_lab"),
    ("boundaries", "a changed future token does not move past logits", MODEL + "test_decoder_does_not_see_the_future"),
    ("boundaries", "a changed padded token does not move valid outputs", MODEL + "test_encoder_decoder_padding"),
    ("boundaries", "source padding is not read by cross-attention", NN + "test_blocks.py::test_a_decoder_block_is_causal"),
    ("boundaries", "the loss counts valid targets only", "tests/ops/test_loss.py::test_pitfall_21"),
    ("boundaries", "samples of different lengths do not touch each other", SEED + "test_batch_mates_do_not_matter"),
    ("boundaries", "packed documents do not touch each other", "tests/ops/test_attention.py::test_pitfall_10"),
    ("boundaries", "a mask off by one trains faster and is wrong", SEED + "test_shift_leak"),
    ("families", "encoder-decoder and decoder-only", "tests/pytorch/test_torch_models.py::test_ten_steps"),
    ("families", "encoder-only, masked prediction, classification", "tests/models/test_presets.py::test_gradients"),
    ("families", "mixture of experts", NN + "test_mixture_layer.py::test_is_a_weighted_sum_of_dense_networks"),
    ("then and now", "post-norm LayerNorm, sinusoidal, MHA, ReLU", SEED + "test_the_original"),
    ("then and now", "RMSNorm, RoPE, SwiGLU, relative bias, ALiBi", NN + "test_components.py::test_a_block_of_today"),
    ("then and now", "tiled attention without the T x T matrix", "tests/ops/test_tiled_attention.py::test_equals_the_textbook"),
    ("stability", "AdamW with groups, warm-up, clipping, dropout modes", "tests/pytorch/test_torch_models.py::test_ten_steps"),
    ("stability", "checkpoint, seed and data order", "command: minitx train reverse --resume DIR"),
    ("stability", "mixed precision and loss scaling", "out of scope: NumPy on a CPU has no half precision worth training in"),
    ("systems", "training and generation are two systems; reports name their settings", "later: with the KV cache"),
    ("systems", "cache isolation, time to live, version", "later: with the KV cache"),
    ("systems", "recurrent networks with constant memory", "later: a recurrent network beside the cache"),
    ("systems", "distributed serving, paged caches, GPUs", "out of scope: one process on one CPU"),
    ("card", "the minimal reproduction card", "tests/models/test_card.py::test_the_card_of_the_course"),
    ("claims", "long-context retrieval, benchmark contamination", "out of scope: about trained products, not about the code"),
]  # fmt: skip


def course_map() -> str:
    lines = ["| course | item | where |", "|---|---|---|"]
    for part, item, where in ROWS:
        lines.append(f"| {part} | {item} | {where if ': ' in where else f'`{where}`'} |")
    return "\n".join(lines)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1][:40])
def test_every_row_leads_somewhere(row):
    where = row[2]
    if where.startswith(("later: ", "out of scope: ", "command: ")):
        assert len(where) > 20, "say why"
        return
    path, name = where.split("::")
    assert re.search(rf"^def {name}\w*\(", (ROOT / path).read_text(encoding="utf-8"), re.M), where


def test_the_readme_shows_the_map():
    assert course_map() in (ROOT / "README.md").read_text(encoding="utf-8"), "run `python tests/test_seeds.py`"


# ---------------------------------------------------------------------------------------------------- figures


def test_residual_lab():
    y = Tensor([[1.0, 2.0, 3.0]]) + Tensor([[0.1, -0.2, 0.3]])
    np.testing.assert_allclose(y.data, [[1.1, 1.8, 3.3]], rtol=1e-6)


def test_layernorm_lab():
    y = nn.LayerNorm(4)(Tensor([[1.0, 2.0, 3.0, 10.0], [2.0, 2.5, 3.5, 9.0]])).data
    np.testing.assert_allclose(y, [[-0.849, -0.566, -0.283, 1.697], [-0.805, -0.626, -0.268, 1.699]], atol=5e-4)
    np.testing.assert_allclose(y.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose(y.std(1), 1, atol=1e-4)


def test_layernorm_by_hand():
    np.testing.assert_allclose(layer_norm(Tensor([1.0, 3.0]), eps=0.0).data, [-1, 1], rtol=1e-6)


def test_rmsnorm_by_hand():
    y = rms_norm(Tensor([1.0, 3.0]), eps=0.0).data
    np.testing.assert_allclose(y, np.array([1, 3]) / math.sqrt(5), rtol=1e-6)


def test_ffn_lab():
    ff = nn.FeedForward(8, 32, "gelu", rng=np.random.default_rng(42))
    x = Tensor(np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32))
    assert ff.up(x).shape == (2, 5, 32)
    assert ff(x).shape == x.shape
    position = ff(x[:, 3:4]).data  # the same network at every position, alone or in company
    np.testing.assert_allclose(ff(x).data[:, 3:4], position, rtol=1e-5, atol=1e-6)


def test_positional_lab():
    table = nn.sinusoidal(np.arange(5), 8)[:3]
    expected = [
        [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0],
        [0.8415, 0.5403, 0.0998, 0.9950, 0.0100, 1.0000, 0.0010, 1.0000],
        [0.9093, -0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 1.0000],
    ]
    np.testing.assert_allclose(table, expected, atol=5.1e-5)


def encoder_block(d_model=16, heads=4, d_ff=32, norm=nn.PreNorm, seed=42):
    rng = np.random.default_rng(seed)
    block = nn.EncoderBlock(
        nn.MultiHeadAttention(d_model, heads, rng=rng),
        nn.FeedForward(d_model, d_ff, "gelu", rng=rng),
        lambda: norm(nn.LayerNorm(d_model), rng=rng),
    )
    for p in block.parameters():
        p.data = p.data + 0.1 * rng.standard_normal(p.shape)
    return block


def decoder_block(d_model=16, heads=4, d_ff=32):
    rng = np.random.default_rng(42)
    return nn.DecoderBlock(
        nn.MultiHeadAttention(d_model, heads, rng=rng),
        nn.MultiHeadAttention(d_model, heads, rng=rng),
        nn.FeedForward(d_model, d_ff, rng=rng),
        lambda: nn.PreNorm(nn.LayerNorm(d_model), rng=rng),
    )


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_block_parts():
    block = encoder_block()
    assert isinstance(block.attention, nn.MultiHeadAttention)
    assert block.feedforward.up.weight.shape == (32, 16)
    assert block.feedforward.down.weight.shape == (16, 32)
    assert isinstance(block.attention_residual, nn.PreNorm)
    assert isinstance(block.attention_residual.norm, nn.LayerNorm)


def test_encoder_shape_lab():
    tokens = draw(2, 6, 16)
    out = encoder_block()(Tensor(tokens))
    assert out.shape == tokens.shape
    changed = tokens.copy()
    changed[:, 5] = draw(2, 16, seed=1)  # (adding a constant would not do: the norm takes it away)
    assert (np.abs(encoder_block()(Tensor(changed)).data - out.data).max(-1) > 1e-4).all()  # every token heard of it


@pytest.mark.parametrize("target_length", [3, 4])
def test_decoder_shape_lab(target_length):
    out = decoder_block()(Tensor(draw(2, target_length, 16)), Tensor(draw(2, 5, 16)))
    assert out.shape == (2, target_length, 16)
    visible = causal().dense(1, target_length, target_length)[0]
    np.testing.assert_array_equal(visible, np.tri(target_length, dtype=bool))


def test_core_shapes():
    layer = nn.MultiHeadAttention(512, 8, rng=np.random.default_rng(0))
    x = Tensor(draw(2, 128, 512))
    q = nn.split_heads(layer.query(x), 8)
    assert q.shape == (2, 8, 128, 64)
    y, weights = layer(x, weights=True)
    assert weights.shape == (2, 8, 128, 128)
    assert y.shape == (2, 128, 512)


def test_score_memory():
    heads, length, bytes_each = 8, 4096, 2
    assert heads * length**2 == 134_217_728
    assert heads * length**2 * bytes_each == 256 * 2**20


def kv_bytes(batch, layers, length, kv_heads, width, bytes_each):
    return 2 * batch * layers * length * kv_heads * width * bytes_each


def test_kv_cache_memory():
    assert kv_bytes(1, 32, 8192, 8, 128, 2) == 2**30
    assert kv_bytes(1, 32, 8192, 2, 128, 2) == 2**28  # GQA with a quarter of the heads
    layer = nn.MultiHeadAttention(64, heads=8, kv_heads=2, rng=np.random.default_rng(0))
    assert layer.key.weight.shape == (2 * 8, 64)  # what would be cached, per token: a quarter of the queries
    assert layer.query.weight.shape == (8 * 8, 64)


def test_gqa_mapping():
    q, k, v = draw(1, 8, 3, 4), draw(1, 2, 5, 4, seed=1), draw(1, 2, 5, 4, seed=2)
    shared = attention(Tensor(q), Tensor(k), Tensor(v)).data
    repeated = attention(Tensor(q), Tensor(np.repeat(k, 4, 1)), Tensor(np.repeat(v, 4, 1))).data
    np.testing.assert_allclose(shared, repeated, rtol=1e-6, atol=1e-7)
    v[:, 1] += 1  # only query heads 4 ... 7 read KV head 1
    moved = np.abs(attention(Tensor(q), Tensor(k), Tensor(v)).data - shared).max((0, 2, 3)) > 0.5
    np.testing.assert_array_equal(moved, [False] * 4 + [True] * 4)


def test_tokens_to_vectors():
    vocabulary = {"BOS": 0, "hello": 1, "world": 2}
    embedding = nn.Embedding(3, 6, rng=np.random.default_rng(0))
    ids = np.array([[vocabulary[token] for token in ("BOS", "hello", "world")]])
    vectors = embedding(ids)
    assert vectors.shape == (1, 3, 6)
    np.testing.assert_array_equal(vectors.data[0], embedding.weight.data)
    assert not np.allclose(vectors.data[0, 2], 2 * vectors.data[0, 1])  # id 2 is not twice id 1


def test_shift():
    from minitx.tasks import get_task

    batch = get_task("copy").batch(np.random.default_rng(0), 5)
    rows = np.arange(5)
    inputs, targets = batch.target_ids, batch.targets
    counted = targets != -100
    assert (inputs[:, 0] == 1).all()  # BOS
    last = counted.sum(1) - 1
    assert (targets[rows, last] == 2).all()  # EOS
    for i in rows:
        np.testing.assert_array_equal(inputs[i, 1 : last[i] + 1], targets[i, : last[i]])


# ---------------------------------------------------------------------------------------------------- labs


def test_both_masks_at_once():
    """Two rows of twenty tokens; the last four of each are padding. Changes times ten, valid rows equal to 1e-6."""
    block, x = encoder_block(128, 4, 512), draw(8, 20, 128)
    mask = causal() & padding([16] * 8)
    expected = block(Tensor(x), mask=mask).data
    for start, stop, kept in [(16, 20, 16), (10, 16, 10)]:
        changed = x.copy()
        changed[:, start:stop] = 10 * draw(8, stop - start, 128, seed=1)
        np.testing.assert_allclose(block(Tensor(changed), mask=mask).data[:, :kept], expected[:, :kept], atol=1e-6)


def test_padded_rows_carry_values():
    block, x = encoder_block(), draw(2, 5, 16)
    lengths = np.array([5, 3])
    x[1, 3:] = 0
    y = block(Tensor(x), mask=padding(lengths)).data
    assert np.abs(y[1, 3:]).max() > 0.1
    real = (np.arange(5) < lengths[:, None])[..., None]
    naive, pooled = y.mean(1), (y * real).sum(1) / lengths[:, None]
    assert np.abs(naive[1] - pooled[1]).max() > 0.01
    x[1, 3:] = 99
    again = block(Tensor(x), mask=padding(lengths)).data
    np.testing.assert_allclose((again * real).sum(1) / lengths[:, None], pooled, atol=1e-6)


def test_zero_padding_is_not_zero():
    zero = Tensor(np.zeros((1, 3, 16), np.float32))
    placed = nn.SinusoidalPositions(16)(zero, np.arange(3))
    assert (np.abs(placed.data).max(-1) > 0.9).all()
    layer = nn.Linear(16, 16, rng=np.random.default_rng(0))
    layer.bias.data += 0.5
    np.testing.assert_array_equal(layer(zero).data, np.full((1, 3, 16), 0.5))


def test_permutation():
    block, x, order = encoder_block(), draw(1, 6, 16), np.array([3, 0, 5, 1, 4, 2])
    np.testing.assert_allclose(block(Tensor(x[:, order])).data, block(Tensor(x)).data[:, order], rtol=1e-4, atol=1e-5)
    masked = [block(Tensor(z), mask=causal()).data for z in (x[:, order], x)]
    assert np.abs(masked[0] - masked[1][:, order]).max() > 0.1
    placed = [block(nn.SinusoidalPositions(16)(Tensor(z), np.arange(6))).data for z in (x[:, order], x)]
    assert np.abs(placed[0] - placed[1][:, order]).max() > 0.1


def small_decoder(**changes):
    config = TransformerConfig.gpt2(layers=2, d_model=16, heads=4, vocab_size=11, max_length=16, dropout=0.0, **changes)
    return Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)


def test_teacher_forcing_is_parallel():
    model, ids = small_decoder(), np.random.default_rng(1).integers(0, 11, (2, 7))
    whole = model(ids).logits.data
    for t in range(1, 8):  # generation needs these one after the other: each input contains the previous choice
        np.testing.assert_allclose(model(ids[:, :t]).logits.data[:, -1], whole[:, t - 1], rtol=1e-10, atol=1e-12)


def test_cached_attention_still_grows():
    keys_read = [causal().dense(1, 1, t)[0].sum() for t in (10, 100, 1000)]  # one new query against its whole past
    assert keys_read == [10, 100, 1000]
    assert kv_bytes(1, 1, 2000, 8, 64, 4) == 2 * kv_bytes(1, 1, 1000, 8, 64, 4)


def test_layernorm_does_not_bound_the_residual():
    """Every branch of a pre-norm stack reads normalised input, and the sum on the residual path grows all the same."""
    x, sizes = Tensor(draw(1, 6, 16)), []
    for layer in range(12):
        x = encoder_block(seed=layer)(x)
        sizes.append(math.sqrt((x.data**2).mean()))
    assert sizes[-1] > 2 * sizes[0]


def test_parameters_outside_attention():
    block = encoder_block(d_model=16, d_ff=64)
    assert block.feedforward.num_parameters() > block.attention.num_parameters()


def test_masks_of_three_families():
    T, S = 4, 3
    encoder = padding([S]).dense(1, S, S)[0]
    decoder = causal().dense(1, T, T)[0]
    cross = padding([2]).dense(1, T, S)[0]
    assert encoder.all()  # everybody sees everybody
    np.testing.assert_array_equal(decoder, np.tri(T, dtype=bool))  # the past and oneself
    np.testing.assert_array_equal(cross, [[True, True, False]] * T)  # every real source position


def test_batch_mates_do_not_matter():
    block, x = encoder_block(), draw(3, 6, 16)
    lengths = [6, 2, 4]
    together = block(Tensor(x), mask=padding(lengths)).data
    for i, n in enumerate(lengths):
        np.testing.assert_allclose(block(Tensor(x[i : i + 1, :n])).data[0], together[i, :n], rtol=1e-4, atol=1e-5)


def test_changing_d_model():
    with pytest.raises(ValueError, match="heads divides d_model"):
        encoder_block(d_model=30)
    assert encoder_block(d_model=32)(Tensor(draw(2, 6, 32))).shape == (2, 6, 32)  # the input's width follows
    with pytest.raises(ValueError):  # noqa: PT011  (the message is the op's)
        encoder_block(d_model=32)(Tensor(draw(2, 6, 16)))


def test_shift_leak():
    """Unshifted targets leak through a causal mask: a model that copies its input then has loss 0 without learning."""
    ids = np.random.default_rng(0).integers(0, 11, (4, 9))
    copying = Tensor(50.0 * np.eye(11)[ids])  # logits that name the token of the same position
    leaked = cross_entropy(copying, ids).item()
    honest = cross_entropy(copying[:, :-1], ids[:, 1:]).item()
    assert leaked < 1e-6
    assert honest > math.log(11)


def test_the_original():
    config = TransformerConfig.original()
    assert (config.architecture, config.norm, config.norm_placement) == ("encoder-decoder", "layer", "post")
    assert (config.position, config.activation, config.kv_heads) == ("sinusoidal", "relu", None)
    assert (config.layers, config.d_model, config.heads, config.d_ff) == (6, 512, 8, 2048)


if __name__ == "__main__":
    print(course_map())
