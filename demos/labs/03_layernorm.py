# %% [markdown]
# # 3. LayerNorm and RMSNorm
# LayerNorm centres and scales the features of each token; RMSNorm only scales them.

# %%
import numpy as np

from minitx import Tensor, nn
from minitx.ops import layer_norm, rms_norm

print("question: along which axis does LayerNorm work, and what is left of a row?")
x = np.array([[1.0, 2.0, 3.0, 10.0], [2.0, 2.5, 3.5, 9.0]], np.float32)
norm = nn.LayerNorm(4)
y = norm(Tensor(x)).data
print(np.array2string(y, precision=3, floatmode="fixed"))
print("row means:", np.abs(y.mean(1)).round(4), " row stds:", y.std(1).round(4))
assert np.allclose(y, [[-0.849, -0.566, -0.283, 1.697], [-0.805, -0.626, -0.268, 1.699]], atol=5e-4), "LayerNorm"
assert np.allclose(y.mean(1), 0, atol=1e-6), "every row has mean 0"
assert np.allclose(y.std(1), 1, atol=1e-4), "every row has standard deviation 1 (almost: eps)"

# %% Not across the batch: a row alone gives the same row.
alone = norm(Tensor(x[1:])).data
print("row 1 alone is row 1 among others:", bool((alone == y[1:]).all()))
assert (alone == y[1:]).all(), "LayerNorm does not look at other tokens"

# %% By hand, without eps: mean 2 and variance 1; mean square 5
by_layer = layer_norm(Tensor([1.0, 3.0]), eps=0.0).data
by_rms = rms_norm(Tensor([1.0, 3.0]), eps=0.0).data
print("LayerNorm of [1, 3]:", by_layer)
print("RMSNorm of [1, 3]:  ", by_rms.round(4), "= [1, 3] / sqrt(5)")
assert np.allclose(by_layer, [-1, 1]), "([1, 3] - 2) / 1"
assert np.allclose(by_rms, np.array([1, 3]) / 5**0.5), "[1, 3] / sqrt((1 + 9) / 2)"

# %% What each is blind to: a constant added, a factor
for name, f in [("LayerNorm", layer_norm), ("RMSNorm", rms_norm)]:
    base, moved, scaled = (f(Tensor(v), eps=0.0).data for v in (x, x + 7, 3 * x))
    plus, times = (not np.allclose(base, other, atol=1e-5) for other in (moved, scaled))
    print(f"{name:9} notices + 7: {plus}, notices * 3: {times}")
    assert (plus, times) == (name == "RMSNorm", False), "RMSNorm does not centre"
print("answer: along the features of one token; LayerNorm leaves mean 0 and std 1, RMSNorm a mean square of 1")
