# %% [markdown]
# # 9. Padded rows carry values
# The mask hides keys. The outputs at padded places are still there, filled by the residual and the feed-forward.

# %%
import numpy as np

from minitx import Tensor, cross_entropy, nn
from minitx.masks import padding

print("question: under a padding mask, what stands in the padded places of the output, and who must leave it out?")
rng = np.random.default_rng(0)
block = nn.EncoderBlock(
    nn.MultiHeadAttention(16, heads=4, rng=rng),
    nn.FeedForward(16, 32, rng=rng),
    lambda: nn.PreNorm(nn.LayerNorm(16), rng=rng),
).astype(np.float64)
lengths = np.array([5, 3])
x = rng.standard_normal((2, 5, 16))
x[1, 3:] = 0
y = block(Tensor(x), mask=padding(lengths))
print("largest value in the padded places of row 1:", np.abs(y.data[1, 3:]).max().round(3))
assert np.abs(y.data[1, 3:]).max() > 0.1, "a query that is padding still gets an answer"

# %% Pooling: the mean over all places against the mean over real ones, before and after the padding changes
x[1, 3:] = 99.0
z = block(Tensor(x), mask=padding(lengths))
naive = [h.data.mean(1)[1] for h in (y, z)]
for how in ("mean", "first", "last"):
    pooled = [nn.pool(h, padding(lengths), how).data[1] for h in (y, z)]
    print(f"pool {how:5}: moved by {np.abs(pooled[1] - pooled[0]).max():.0e} when the padding became 99")
    assert np.allclose(pooled[0], pooled[1], atol=1e-12), "pool reads real tokens only"
print(f"plain mean: moved by {np.abs(naive[1] - naive[0]).max():.1f}")
assert np.abs(naive[1] - naive[0]).max() > 1, "the mean over all places reads the padding"

# %% The loss: targets in padded places are ignored, and do not count in the divisor either.
targets = np.array([[1, 2, 3, 4, 5], [6, 7, 8, -100, -100]])
whole = cross_entropy(y, targets).item()
rows = cross_entropy(y[:1], targets[:1], reduction="sum").item() + cross_entropy(
    y[1:, :3], targets[1:, :3], reduction="sum"
).item()
print(f"loss {whole:.6f} = {rows:.6f} / 8 real targets")
assert abs(whole - rows / 8) < 1e-12, "5 + 3 targets count, not 10"
print("answer: values like any others; pooling and loss have to leave them out, and here both do")
