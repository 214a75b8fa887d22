# %% [markdown]
# # 12. Without positions there is no order
# Reorder the tokens: without positions, the outputs are reordered in the same way, and that is all.

# %%
import numpy as np

from minitx import Tensor, nn
from minitx.masks import causal

print("question: what does a block notice of the order of its tokens?")
rng = np.random.default_rng(0)
block = nn.EncoderBlock(
    nn.MultiHeadAttention(16, heads=4, rng=rng),
    nn.FeedForward(16, 32, rng=rng),
    lambda: nn.PreNorm(nn.LayerNorm(16), rng=rng),
).astype(np.float64)
x = rng.standard_normal((1, 6, 16))
order = np.array([3, 0, 5, 1, 4, 2])
places = nn.SinusoidalPositions(16)


def apart(f):
    """f of the reordered rows against the reordered rows of f."""
    return np.abs(f(Tensor(x[:, order])).data - f(Tensor(x)).data[:, order]).max()


# %%
cases = {
    "no positions, no mask": block,
    "with sinusoidal positions": lambda t: block(places(t, np.arange(6))),
    "no positions, causal mask": lambda t: block(t, mask=causal()),
}
for name, f in cases.items():
    print(f"{name:26} {apart(f):.1e} apart")
assert apart(cases["no positions, no mask"]) < 1e-12, "permutation equivariance"
assert apart(cases["with sinusoidal positions"]) > 0.1, "positions bring the order in"
assert apart(cases["no positions, causal mask"]) > 0.1, "so does the mask: who stands before whom is an order"

print("answer: nothing (1e-12) without positions or mask; with either, another order is another input")
