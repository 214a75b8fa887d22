# %% [markdown]
# # 21. Five misconceptions, each against a number

# %%
import time

import numpy as np

from minitx import Tensor, attention_weights, nn, no_grad
from minitx.masks import causal
from minitx.models import Transformer, TransformerConfig
from minitx.models.cost import cache_elements
from minitx.ops import attention

print("question: which number stands against each of the five?")
rng = np.random.default_rng(0)


def block():
    heads, network = nn.MultiHeadAttention(16, heads=4, rng=rng), nn.FeedForward(16, 64, rng=rng)
    return nn.EncoderBlock(heads, network, lambda: nn.PreNorm(nn.LayerNorm(16), rng=rng)).astype(np.float64)


# %%
print("1. A Transformer has done away with order.")
first, x, order = block(), rng.standard_normal((1, 6, 16)), np.array([3, 0, 5, 1, 4, 2])
places = nn.SinusoidalPositions(16)(Tensor(np.zeros((1, 6, 16))), np.arange(6)).data
blind, placed = (
    np.abs(first(Tensor(x[:, order] + p)).data - first(Tensor(x + p)).data[:, order]).max() for p in (0, places)
)
print(f"   reordered tokens: {blind:.0e} apart without positions, {placed:.1f} with them: order is put in")
assert blind < 1e-12 < 0.1 < placed, "equivariance, and its end"

# %%
print("2. All tokens can be generated at once.")
config = TransformerConfig.gpt2(layers=2, d_model=32, heads=4, vocab_size=97, max_length=32, dropout=0.0, init="xavier")
model = Transformer(config, rng=rng)
start = rng.integers(0, 97, (8, 8))
said = start
for _ in range(8):  # each step reads what the step before has said
    said = np.concatenate([said, model(said).logits.data[:, -1:].argmax(-1)], axis=1)
blanks = np.concatenate([start, np.zeros((8, 8), int)], axis=1)
agree = (model(blanks).logits.data[:, 7:15].argmax(-1) == said[:, 8:]).mean(0)
print(f"   eight in one pass, over blanks: of the first tokens {agree[0]:.0%} are as one after the other,",
      f"of the rest {agree[1:].mean():.0%}")  # fmt: skip
assert agree[0] == 1 > agree[1:].mean() + 0.3, "only the first has its whole past"

# %%
print("3. With a KV cache a long context costs no more.")
for T in (10, 1_000, 100_000):
    q, k, v = (Tensor(rng.standard_normal((1, 1, n, 16))) for n in (1, T, T))
    with no_grad():
        keys = (attention_weights(q, k, mask=causal()).data > 0).sum()
        began = time.perf_counter()
        attention(q, k, v, mask=causal())
    time_here, size = 1e3 * (time.perf_counter() - began), cache_elements(config, 1, T) * 4
    print(f"   {T:7,} tokens: the new one reads {keys:7,} keys ({time_here:.2f} ms here), {size:10,} bytes of cache")
    assert keys == T, "every key of the past, for every new token"
    assert size == 2 * T * 2 * 32 * 4, "2 B L T H_kv d_h b"

# %%
print("4. A long context is a used context.")
config = TransformerConfig.gpt2(
    layers=2, d_model=16, heads=4, vocab_size=97, max_length=64, dropout=0.0, position="rotary", window=8
)
windowed = Transformer(config, rng=rng).astype(np.float64)
ids = rng.integers(0, 97, (1, 64))
others = np.repeat(ids, 64, axis=0)
others[np.arange(64), np.arange(64)] = (ids[0] + 1) % 97  # row s: token s is another one
moved = np.abs(windowed(others).logits.data[:, -1] - windowed(ids).logits.data[:, -1]).max(-1) > 1e-12
print(f"   accepts 64 tokens, window 8, 2 layers: the last logits depend on {moved.sum()} of them (also: lab 22)")
assert moved.sum() == 2 * (8 - 1) + 1, "layers x (window - 1) + 1"

# %%
print("5. LayerNorm settles stability.")
x, sizes = Tensor(rng.standard_normal((1, 6, 16))), []
for _ in range(48):
    x = block()(x)
    sizes.append(np.sqrt((x.data**2).mean()))
print("   root mean square of the residual stream after 1, 12, 48 pre-norm blocks:",
      *(f"{sizes[n - 1]:.1f}" for n in (1, 12, 48)))  # fmt: skip
assert sizes[47] > 2 * sizes[0], "every branch reads normalised input, and their sum grows"
normal = nn.LayerNorm(16)(Tensor(rng.standard_normal((1, 1, 6, 16)).astype(np.float32)))
for gain in (0.1, 1, 10):
    w = attention_weights(normal * float(gain), normal * float(gain)).data
    print(f"   weights of queries and keys x {gain:3g}: largest weight of a query, on average {w.max(-1).mean():.4f}")
assert w.max(-1).mean() > 0.999, "normalised inputs do not bound the scores: q and k have weights of their own"
print("answer: a reordering that is seen, missed tokens, keys read for each, tokens without effect, a growing stream")
