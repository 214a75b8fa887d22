# %% [markdown]
# # 1. The parts of a block
# Width 16, 4 heads, a feed-forward network of 32, the norm before each branch: put together from its parts.

# %%
import numpy as np

from minitx import Tensor, nn

print("question: what is a Transformer block made of, and what comes out of it?")


def block(d_model, d_ff, norm=nn.PreNorm):
    rng = np.random.default_rng(42)
    return nn.EncoderBlock(
        nn.MultiHeadAttention(d_model, heads=4, rng=rng),
        nn.FeedForward(d_model, d_ff, "relu", rng=rng),
        lambda: norm(nn.LayerNorm(d_model), rng=rng),
    ).astype(np.float64)


layer = block(16, 32)
print(layer)
print("W1:", layer.feedforward.up.weight.shape, " W2:", layer.feedforward.down.weight.shape)
assert layer.feedforward.up.weight.shape == (32, 16), "W1 widens 16 features to 32"
assert layer.feedforward.down.weight.shape == (16, 32), "W2 brings 32 features back to 16"

# %% The shape stays; the content does not: with another last token, every token of the row comes out different.
rng = np.random.default_rng(0)
tokens = rng.standard_normal((2, 6, 16))
out = layer(Tensor(tokens)).data
print("input:", tokens.shape, " output:", out.shape, " changed:", bool((out != tokens).any()))
other = tokens.copy()
other[:, -1] = rng.standard_normal((2, 16))
heard = np.abs(layer(Tensor(other)).data - out).max(-1) > 1e-6
print("tokens that heard of a new last one:", f"{heard.sum()} of {heard.size}")
assert out.shape == (2, 6, 16), "a block keeps the outer shape"
assert heard.all(), "attention lets every position read every other"

# %% With the norm after the sum (post-norm, as in 2017) the same weights are another function.
post = block(16, 32, nn.PostNorm)
post.load_state_dict(layer.state_dict())
apart = np.abs(post(Tensor(tokens)).data - out).max()
print(f"pre-norm and post-norm, same weights: up to {apart:.2f} apart")
assert apart > 1, "the two placements are two functions"

# %% Width 32: the input, the norms and both ends of the feed-forward follow; heads have to divide it.
wider = block(32, 64)
print("width 32:", wider(Tensor(rng.standard_normal((2, 6, 32)))).shape, " W1:", wider.feedforward.up.weight.shape)
try:
    block(30, 64)
except ValueError as error:
    print("width 30:", error)

# %% The shapes inside attention, for 2 rows of 128 tokens, width 512, 8 heads
attention = nn.MultiHeadAttention(512, heads=8, rng=rng)
x = Tensor(rng.standard_normal((2, 128, 512)).astype(np.float32))
q = nn.split_heads(attention.query(x), 8)
y, weights = attention(x, weights=True)
print("Q, K, V:", q.shape, " scores:", weights.shape, " output:", y.shape)
assert (q.shape, weights.shape, y.shape) == ((2, 8, 128, 64), (2, 8, 128, 128), (2, 128, 512)), "512 / 8 heads = 64"
print("answer: attention and a feed-forward network, each on a residual branch with a norm; the shape stays as it was")
