# %% [markdown]
# # 4. The feed-forward network
# FFN(x) = W2 gelu(W1 x + b1) + b2, the same at every position: attention mixes positions, this mixes features.

# %%
import numpy as np

from minitx import Tensor, nn
from minitx.models import TransformerConfig
from minitx.models.shapes import parameters_by_component

print("question: the network widens 8 features to 32; why does the output have the shape of the input?")
rng = np.random.default_rng(42)
ff = nn.FeedForward(8, 32, "gelu", rng=rng)
x = rng.standard_normal((2, 5, 8)).astype(np.float32)
inside, y = ff.up(Tensor(x)), ff(Tensor(x))
print("input:", x.shape, " inside:", inside.shape, " output:", y.shape)
assert inside.shape == (2, 5, 32), "W1 (32, 8) widens"
assert y.shape == (2, 5, 8), "W2 (8, 32) comes back, so that the result can be added to x"

# %% Every position by itself: alone it gives what it gives in company.
alone = ff(Tensor(x[:, 3:4])).data
apart = np.abs(alone - y.data[:, 3:4]).max()
print(f"position 3 alone and among five: {apart:.0e} apart")
assert apart < 1e-6, "no position reads another one here"

# %% It is not a detail: a Transformer is more than its attention.
for name, make in [("original", TransformerConfig.original), ("llama", TransformerConfig.llama)]:
    counts = parameters_by_component(make())
    ffn, all_attention = counts["feed-forward"], sum(n for part, n in counts.items() if "attention" in part)
    print(f"{name:8} feed-forward {ffn:13,}   attention {all_attention:13,}   ratio {ffn / all_attention:.2f}")
    assert ffn > all_attention, "more weights stand in the feed-forward than in attention"
print("answer: W1 is (32, 8) and W2 (8, 32): wide between them, 8 again after them, and the length is not touched")
