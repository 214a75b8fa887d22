# %% [markdown]
# # 8. Padding that was zero
# A padding token with a zero embedding is not zero for long: a position is added, and every linear layer has a bias.

# %%
import numpy as np

from minitx import Tensor, nn
from minitx.masks import padding

print("question: the padding's embedding is zero; can the mask be left out?")
rng = np.random.default_rng(0)
zero = Tensor(np.zeros((1, 3, 16), np.float32))
placed = nn.SinusoidalPositions(16)(zero, np.arange(3)).data
print("after the position, sizes of the three vectors:", np.linalg.norm(placed[0], axis=-1).round(4))
assert np.allclose(np.linalg.norm(placed, axis=-1), 8**0.5), "sin^2 + cos^2 = 1 in each of 8 pairs"

layer = nn.Linear(16, 16, rng=rng)
layer.bias.data += 0.5
print("after a layer with bias 0.5:", np.unique(layer(zero).data))
assert (layer(zero).data == 0.5).all(), "W 0 + b = b"

# %% Even a key of zero counts: its score is 0, and e^0 = 1 is a weight like another.
attention = nn.MultiHeadAttention(16, heads=4, bias=False, rng=rng)
x = rng.standard_normal((1, 5, 16)).astype(np.float32)
x[:, 3:] = 0
alone = attention(Tensor(x[:, :3])).data
_, weights = attention(Tensor(x), weights=True)
taken = weights[0, :, :3, 3:].sum(-1).mean()
print(f"without a mask the two zero keys take {taken:.0%} of the attention of real tokens")
assert taken > 0.2, "softmax gives weight to every key it sees"
for mask in (None, padding([3])):
    apart = np.abs(attention(Tensor(x), mask=mask).data[:, :3] - alone).max()
    print(f"mask {mask!s:12} real tokens differ from a batch without padding by {apart:.1e}")
    assert (apart < 1e-6) == (mask is not None), "only the mask takes padding out"
print("answer: no; zero becomes sin and cos, then the bias, and even a true zero key has the weight of a score of 0")
