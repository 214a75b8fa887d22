# %% [markdown]
# # 7. Padding and causal mask at once
# Eight rows of twenty tokens; the last four of each are padding. What is changed is changed by noise of size ten.

# %%
import numpy as np

from minitx import Tensor, nn
from minitx.masks import causal, padding

print("question: under both masks, what moves when the padding or the future changes?")
rng = np.random.default_rng(0)
block = nn.EncoderBlock(
    nn.MultiHeadAttention(128, heads=4, rng=rng),
    nn.FeedForward(128, 512, "gelu", rng=rng),
    lambda: nn.PreNorm(nn.LayerNorm(128), rng=rng),
)
x = rng.standard_normal((8, 20, 128)).astype(np.float32)


def moved(start, stop, mask):
    """The largest change at positions before `start` when start ... stop - 1 become noise of size 10."""
    changed = x.copy()
    changed[:, start:stop] = 10 * rng.standard_normal((8, stop - start, 128))
    before, after = (block(Tensor(v), mask=mask).data for v in (x, changed))
    return np.abs(after - before)[:, :start].max()


both = causal() & padding([16] * 8)
for what, start, stop in [("padding, 16-19", 16, 20), ("future, 10-15", 10, 16)]:
    by = moved(start, stop, both)
    print(f"{what:15} changed: positions 0-{start - 1} move by {by:.0e} under both masks")
    assert by <= 1e-6, f"positions before {start} see nothing of {start}-{stop - 1}"

# %% The test has teeth: with one mask missing, the same change is seen.
for what, start, stop, mask in [
    ("padding, 16-19", 16, 20, None),
    ("future, 10-15", 10, 16, padding([16] * 8)),
]:
    by = moved(start, stop, mask)
    print(f"{what:15} changed: positions 0-{start - 1} move by {by:.2f} under {mask}")
    assert by > 0.1, "without the mask they do"
print("answer: nothing before the change moves by more than 1e-6; without the mask that is meant, everything does")
