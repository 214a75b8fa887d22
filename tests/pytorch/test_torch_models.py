"""Ten AdamW steps of whole models, equal to PyTorch's: clipping, schedule, label smoothing, padding, tied weights.

In float64: a float32 gradient that is exactly zero in theory (a key's bias, say) is rounding noise in practice, and
AdamW turns noise into full steps, so two right implementations drift apart.
"""
import numpy as np
import pytest

from minitx.masks import padding
from minitx.models import Transformer, TransformerConfig
from minitx.nn import sinusoidal
from minitx.ops import cross_entropy
from minitx.optim import AdamW, clip_grad_norm, noam, warmup_cosine

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.torch

V, D, H, LAYERS, FF = 13, 12, 3, 2, 20
B, S, T, STEPS = 3, 5, 7, 10


def copy_linear(theirs, ours):
    theirs.weight.data = torch.from_numpy(ours.weight.numpy())
    if ours.bias is not None:
        theirs.bias.data = torch.from_numpy(ours.bias.numpy())


def copy_attention(theirs, ours):
    parts = ours.query, ours.key, ours.value
    theirs.in_proj_weight.data = torch.from_numpy(np.concatenate([p.weight.numpy() for p in parts]))
    theirs.in_proj_bias.data = torch.from_numpy(np.concatenate([p.bias.numpy() for p in parts]))
    copy_linear(theirs.out_proj, ours.out)


def copy_block(theirs, ours, cross):
    copy_attention(theirs.self_attn, ours.attention)
    copy_linear(theirs.norm1, ours.attention_residual.norm)
    last = theirs.norm2
    if cross:
        copy_attention(theirs.multihead_attn, ours.cross_attention)
        copy_linear(theirs.norm2, ours.cross_attention_residual.norm)
        last = theirs.norm3
    copy_linear(last, ours.feedforward_residual.norm)
    copy_linear(theirs.linear1, ours.feedforward.up)
    copy_linear(theirs.linear2, ours.feedforward.down)


class TheirEncoderDecoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        options = {"dropout": 0.0, "batch_first": True, "norm_first": False, "dtype": torch.float64}
        self.encoder = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(D, H, FF, **options) for _ in range(LAYERS)
        )
        self.decoder = torch.nn.ModuleList(
            torch.nn.TransformerDecoderLayer(D, H, FF, **options) for _ in range(LAYERS)
        )
        self.embedding = torch.nn.Parameter(torch.from_numpy(model.embedding.weight.numpy()))
        for theirs, ours in zip(self.encoder, model.encoder):
            copy_block(theirs, ours, cross=False)
        for theirs, ours in zip(self.decoder, model.decoder):
            copy_block(theirs, ours, cross=True)

    def forward(self, ids, target_ids, source_lengths, target_lengths):
        source_padding = torch.arange(S)[None] >= torch.tensor(source_lengths)[:, None]
        target_padding = torch.arange(T)[None] >= torch.tensor(target_lengths)[:, None]
        causal = torch.ones(T, T, dtype=torch.bool).triu(1)
        x = self.embedding[ids] * D**0.5 + torch.from_numpy(sinusoidal(np.arange(S), D))
        for block in self.encoder:
            x = block(x, src_key_padding_mask=source_padding)
        y = self.embedding[target_ids] * D**0.5 + torch.from_numpy(sinusoidal(np.arange(T), D))
        for block in self.decoder:
            y = block(
                y, x, tgt_mask=causal, tgt_key_padding_mask=target_padding, memory_key_padding_mask=source_padding
            )
        return y @ self.embedding.T


class TheirDecoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                D, H, FF, dropout=0.0, activation="gelu", batch_first=True, norm_first=True, dtype=torch.float64
            )
            for _ in range(LAYERS)
        )
        self.norm = torch.nn.LayerNorm(D, dtype=torch.float64)
        self.embedding = torch.nn.Parameter(torch.from_numpy(model.embedding.weight.numpy()))
        self.positions = torch.nn.Parameter(torch.from_numpy(model.positions.weight.numpy()))
        copy_linear(self.norm, model.decoder_norm)
        for theirs, ours in zip(self.blocks, model.decoder):
            copy_block(theirs, ours, cross=False)

    def forward(self, ids, lengths):
        hidden = torch.arange(T)[None] >= torch.tensor(lengths)[:, None]
        causal = torch.ones(T, T, dtype=torch.bool).triu(1)
        x = self.embedding[ids] + self.positions[:T]
        for block in self.blocks:
            x = block(x, src_mask=causal, src_key_padding_mask=hidden)
        return self.norm(x) @ self.embedding.T


def randomize(model, rng):
    """Gains that are not 1 and biases that are not 0, so that a backward that forgets them cannot pass."""
    for name, p in model.named_parameters():
        if name.endswith("norm.weight") or name.endswith("bias"):
            p.data = p.data + 0.3 * rng.standard_normal(p.shape)


def optimizers(ours, theirs, decay):
    flat = [p for p in theirs.parameters() if p.ndim > 1 and p is not theirs.embedding]
    flat = [p for p in flat if p is not getattr(theirs, "positions", None)]
    rest = [p for p in theirs.parameters() if all(p is not q for q in flat)]
    groups = [{"params": flat, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
    return AdamW(ours, lr=0.01, weight_decay=decay), torch.optim.AdamW(groups, lr=0.01)


def train(step_ours, step_theirs, ours, theirs, rate):
    mine, other = optimizers(ours, theirs, decay=0.1)
    norms = []
    for t in range(1, STEPS + 1):
        mine.zero_grad()
        loss = step_ours(t)
        loss.backward()
        norm = clip_grad_norm(ours.parameters(), 0.5)
        for group in mine.groups:
            group["lr"] = rate(t)
        mine.step()

        other.zero_grad()
        their_loss = step_theirs(t)
        their_loss.backward()
        their_norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
        for group in other.param_groups:
            group["lr"] = rate(t)
        other.step()
        np.testing.assert_allclose(loss.item(), their_loss.item(), rtol=1e-9)
        np.testing.assert_allclose(norm, their_norm.item(), rtol=1e-9)
        norms.append(norm)
    assert max(norms) > 0.5  # clipping took part


def assert_equal_parameters(ours, theirs, pairs):
    for name, mine, other in pairs:
        other = other.detach().numpy()
        assert np.abs(mine.numpy() - other).max() <= 1e-9 * np.abs(other).max(), name


def block_pairs(name, ours, theirs, cross):
    n = D
    yield from attention_pairs(f"{name}.attention", ours.attention, theirs.self_attn, n)
    yield f"{name}.up", ours.feedforward.up.weight, theirs.linear1.weight
    yield f"{name}.down", ours.feedforward.down.weight, theirs.linear2.weight
    yield f"{name}.norm", ours.attention_residual.norm.weight, theirs.norm1.weight
    yield f"{name}.norm bias", ours.attention_residual.norm.bias, theirs.norm1.bias
    if cross:
        yield from attention_pairs(f"{name}.cross", ours.cross_attention, theirs.multihead_attn, n)


def attention_pairs(name, ours, theirs, n):
    for i, part in enumerate((ours.query, ours.key, ours.value)):
        yield f"{name} {i}", part.weight, theirs.in_proj_weight[i * n : (i + 1) * n]
        yield f"{name} {i} bias", part.bias, theirs.in_proj_bias[i * n : (i + 1) * n]
    yield f"{name} out", ours.out.weight, theirs.out_proj.weight


def test_ten_steps_of_the_encoder_decoder():
    rng = np.random.default_rng(3)
    config = TransformerConfig(
        layers=LAYERS, d_model=D, heads=H, d_ff=FF, vocab_size=V, dropout=0.0, tie_embeddings=True,
        norm_placement="post",
    )  # fmt: skip
    ours = Transformer(config, rng=rng).astype(np.float64)
    randomize(ours, rng)
    theirs = TheirEncoderDecoder(ours)
    batches = []
    for _ in range(STEPS):
        source_lengths, target_lengths = rng.integers(1, S + 1, B), rng.integers(1, T + 1, B)
        targets = np.where(np.arange(T) < target_lengths[:, None], rng.integers(0, V, (B, T)), -100)
        ids, target_ids = rng.integers(0, V, (B, S)), rng.integers(0, V, (B, T))
        batches.append((ids, target_ids, targets, source_lengths, target_lengths))

    def step_ours(t):
        ids, target_ids, targets, sl, tl = batches[t - 1]
        logits = ours(ids, target_ids, mask=padding(sl), target_mask=padding(tl)).logits
        return cross_entropy(logits, targets, label_smoothing=0.1)

    def step_theirs(t):
        ids, target_ids, targets, sl, tl = batches[t - 1]
        logits = theirs(torch.from_numpy(ids), torch.from_numpy(target_ids), list(sl), list(tl))
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, V), torch.from_numpy(targets).reshape(-1), ignore_index=-100, label_smoothing=0.1
        )

    train(step_ours, step_theirs, ours, theirs, noam(D, 4))
    pairs = [("embedding", ours.embedding.weight, theirs.embedding)]
    for i in range(LAYERS):
        pairs += block_pairs(f"encoder.{i}", ours.encoder[i], theirs.encoder[i], cross=False)
        pairs += block_pairs(f"decoder.{i}", ours.decoder[i], theirs.decoder[i], cross=True)
    assert_equal_parameters(ours, theirs, pairs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_ten_steps_of_the_decoder(smoothing):
    rng = np.random.default_rng(5)
    config = TransformerConfig.gpt2(
        layers=LAYERS, d_model=D, heads=H, d_ff=FF, vocab_size=V, max_length=T + 1, dropout=0.0, activation="gelu",
        init_std=0.3,
    )  # fmt: skip
    ours = Transformer(config, rng=rng).astype(np.float64)
    randomize(ours, rng)
    theirs = TheirDecoder(ours)
    batches = []
    for _ in range(STEPS):
        lengths = rng.integers(1, T + 1, B)
        targets = np.where(np.arange(T) < lengths[:, None], rng.integers(0, V, (B, T)), -100)
        batches.append((rng.integers(0, V, (B, T)), targets, lengths))

    def step_ours(t):
        ids, targets, lengths = batches[t - 1]
        return cross_entropy(ours(ids, mask=padding(lengths)).logits, targets, label_smoothing=smoothing)

    def step_theirs(t):
        ids, targets, lengths = batches[t - 1]
        logits = theirs(torch.from_numpy(ids), list(lengths))
        return torch.nn.functional.cross_entropy(
            logits.reshape(-1, V), torch.from_numpy(targets).reshape(-1), ignore_index=-100, label_smoothing=smoothing
        )

    rate = warmup_cosine(total=STEPS, warmup=3)
    train(step_ours, step_theirs, ours, theirs, lambda t: 0.01 * rate(t))
    pairs = [("embedding", ours.embedding.weight, theirs.embedding)]
    pairs += [("positions", ours.positions.weight, theirs.positions)]
    for i in range(LAYERS):
        pairs += block_pairs(f"decoder.{i}", ours.decoder[i], theirs.blocks[i], cross=False)
    assert_equal_parameters(ours, theirs, pairs)
