# %% [markdown]
# # 24. Linear attention, and what it costs
# phi(q)(phi(k)^T v) in the place of softmax(q k^T) v: a running sum instead of all pairs. It is an approximation, and
# this is its error against the length T. Normal q, k, v of width 16 under a causal mask; the last quarter of queries.

# %%
import numpy as np

from minitx import Tensor, attention, no_grad
from minitx.masks import causal
from minitx.ops import linear_attention

print("question: how far is linear attention from attention, as the text grows?")
d, rng = 16, np.random.default_rng(0)
errors = {}
with no_grad():
    for T in (16, 64, 256, 1024):
        q, k, v = (Tensor(rng.standard_normal((1, 8, T, d))) for _ in range(3))
        exact, linear = (f(q, k, v, mask=causal()).data[:, :, -T // 4 :] for f in (attention, linear_attention))
        errors[T] = np.linalg.norm(linear - exact) / np.linalg.norm(exact)
        print(f"T {T:5}: relative error {errors[T]:.2f}")
assert 0.55 < errors[16] < errors[1024] < 0.9, "large from the beginning, and it grows"

# %% Why: it cannot single out one of many keys. A query that equals one key (width 64, |q|^2 = 128): that key's weight
weights = {}
with no_grad():
    for T in (16, 64, 256, 1024):
        k = rng.standard_normal((1, 32, T, 64))
        k *= 128**0.5 / np.linalg.norm(k, axis=-1, keepdims=True)
        place = T // 2
        q, v = k[:, :, place : place + 1], np.zeros((1, 32, T, 1))
        v[:, :, place] = 1  # so that the output is the weight
        weights[T] = [f(Tensor(q), Tensor(k), Tensor(v)).data.mean() for f in (attention, linear_attention)]
        print(f"T {T:5}: softmax {weights[T][0]:.3f}, linear {weights[T][1]:.4f} (all keys alike: {1 / T:.4f})")
assert weights[1024][0] > 0.9, "softmax keeps it, as long as |q|^2 / sqrt(d) is well above ln T"
assert 0.2 < weights[1024][1] / weights[16][1] * 64 < 5, "linear: it falls like 1 / T"

# %% It is linear attention, exactly, that is computed: the running sums equal the weights written out.
T = 100
q, k, v = (rng.standard_normal((1, 1, T, d)) for _ in range(3))
phi = [np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (q, k)]
w = np.tril(phi[0] @ phi[1].swapaxes(2, 3))
sums = linear_attention(Tensor(q), Tensor(k), Tensor(v), mask=causal()).data
apart = np.abs(sums - w @ v / w.sum(-1, keepdims=True)).max()
print(f"running sums against all pairs of the same weights: {apart:.0e} apart")
assert apart < 1e-12, "the order of the product changes the cost, not the result"
print(f"state of a head: {d} x ({d} + 1) = {d * (d + 1)} numbers at any length; a cache of 1,024: {2 * 1024 * d:,}")
print("answer: by 65 % of the result at T = 16, by 79 % at 1,024: another function, for models trained with it")
