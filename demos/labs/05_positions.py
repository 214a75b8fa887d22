# %% [markdown]
# # 5. The table of positions
# PE[p, 2i] = sin(p / 10000^(2i/d)), PE[p, 2i+1] = cos(p / 10000^(2i/d)): pairs of features are hands of clocks.

# %%
import numpy as np

from minitx import Tensor, nn
from minitx.nn import sinusoidal

print("question: what stands in the table, also at odd widths, and how far does it go?")
table = sinusoidal(np.arange(5), 8)[:3]
print(np.array2string(table, precision=4, suppress_small=True, floatmode="fixed", max_line_width=100))
expected = [
    [0.0000, 1.0000, 0.0000, 1.0000, 0.0000, 1.0000, 0.0000, 1.0000],
    [0.8415, 0.5403, 0.0998, 0.9950, 0.0100, 1.0000, 0.0010, 1.0000],
    [0.9093, -0.4161, 0.1987, 0.9801, 0.0200, 0.9998, 0.0020, 1.0000],
]
assert np.allclose(table, expected, atol=5.1e-5), "the first three positions at width 8"

# %% An odd width has one more sine than cosines.
odd = sinusoidal(np.array([1]), 5)[0]
print("width 5, position 1:", *(f"{value:.9f}" for value in odd))
assert np.allclose(odd, [0.841470985, 0.540302306, 0.025116223, 0.999684538, 0.000630957]), "width 5"
print(f"width 1, position 3: {sinusoidal(np.array([3]), 1)[0, 0]:.9f}")

# %% A step of k turns every hand by a fixed angle, wherever it starts: so relative distance can be read off linearly.
rates = 10000.0 ** (-np.arange(0, 8, 2) / 8)
k, p = 7, np.array([0, 5, 1000])
sin, cos = sinusoidal(p, 8)[:, 0::2], sinusoidal(p, 8)[:, 1::2]
turned = sin * np.cos(k * rates) + cos * np.sin(k * rates)
apart = np.abs(turned - sinusoidal(p + k, 8)[:, 0::2]).max()
print(f"PE[p + 7] from PE[p] by a rotation: {apart:.0e} apart")
assert apart < 1e-12, "sin(a + b) = sin a cos b + cos a sin b"

# %% Any position can be computed. A learned table ends. (Whether a model can use what it never saw: lab 22.)
far = sinusoidal(np.array([1_000_000]), 8)
print("position 1,000,000 is finite:", bool(np.isfinite(far).all()))
learned = nn.LearnedPositions(4, 8, rng=np.random.default_rng(0))
try:
    learned(Tensor(np.zeros((1, 5, 8), np.float32)), np.arange(5))
    raise AssertionError("a learned table of 4 positions has no fifth")
except IndexError as error:
    print("learned, position 4 of 4:", error)
print("answer: sines and cosines of ever slower clocks, at any width; the sinusoids never end, a learned table does")
