# %% [markdown]
# # 11. A decoder block with cross-attention
# The target (what has been said so far) asks; the memory (the encoder's output) is asked. The causal mask is about the
# target only.

# %%
import numpy as np

from minitx import Tensor, nn
from minitx.masks import causal, padding

print("question: which shapes meet in a decoder block, and who may look at whom?")
rng = np.random.default_rng(42)
block = nn.DecoderBlock(
    nn.MultiHeadAttention(16, heads=4, rng=rng),
    nn.MultiHeadAttention(16, heads=4, rng=rng),
    nn.FeedForward(16, 32, rng=rng),
    lambda: nn.PreNorm(nn.LayerNorm(16), rng=rng),
).astype(np.float64)
memory = rng.standard_normal((2, 5, 16))
for length in (3, 4):
    target = rng.standard_normal((2, length, 16))
    record = {}
    out = block(Tensor(target), Tensor(memory), record=record).data
    mask = causal().dense(1, length, length)[0]
    print(f"target: {target.shape}  memory: {memory.shape}  mask: {mask.shape}  output: {out.shape}")
    print(f"    weights: self {record['self'].shape}, cross {record['cross'].shape}")
    assert out.shape == (2, length, 16), "as long as the target"
    assert record["cross"].shape == (2, 4, length, 5), "every target position asks all five source positions"
    assert np.array_equal(mask, np.tri(length, dtype=bool)), "as long and as wide as the target"

# %% The causal mask as numbers: 0 where a key may be seen, -inf where not, added to the scores
floats = np.where(causal().dense(1, 4, 4)[0], 0.0, -np.inf)
print(floats)
attention, x = block.attention, Tensor(target)
apart = np.abs(attention(x, bias=floats[None, None]).data - attention(x, mask=causal()).data).max()
print(f"-inf in the scores and the mask as an object: {apart:.0e} apart")
assert apart < 1e-12, "two ways to say the same"

# %% The future of the target is not seen; the memory is, except its padding.
later = target.copy()
later[:, 3] += rng.standard_normal(16)
noise = np.array(memory)
noise[:, 4] += rng.standard_normal(16)
for what, given in [("target position 3", (later, memory)), ("memory position 4", (target, noise))]:
    moved, hidden = (
        np.abs(
            block(*map(Tensor, given), memory_mask=mask).data
            - block(Tensor(target), Tensor(memory), memory_mask=mask).data
        )[:, :3].max()
        for mask in (None, padding([4, 4]))
    )
    print(f"{what} changed: target 0-2 move by {moved:.3f}; with memory 4 masked as padding, by {hidden:.0e}")
    assert hidden < 1e-12, "neither the future nor the source's padding is read"
    assert (moved > 0.01) == (what == "memory position 4"), "an unmasked memory is read by every target position"
print("answer: (2, 3, 16) asks (2, 5, 16); the mask is (3, 3), then (4, 4); of the source all real places are seen")
