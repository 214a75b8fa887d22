# %% [markdown]
# # 18. The gradient through depth
# Measured at initialisation, before any training: the norm of dL/dx, the gradient of the loss with respect to the
# residual stream, above the last block (top) and below the first (bottom). Glorot weights, width 32, ten seeds each.

# %%
import numpy as np

from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy

print("question: how much gradient arrives at the bottom of 12 and of 48 layers, pre-norm and post-norm?")
V, T, SEEDS = 17, 8, 10


def gradients(layers, placement, seed):
    """(norm of dL/dx above the last block, below the first)"""
    config = TransformerConfig(
        architecture="decoder", layers=layers, d_model=32, heads=4, vocab_size=V, dropout=0.0,
        norm_placement=placement, tie_embeddings=False,
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    model = Transformer(config, rng=rng)
    ids = rng.integers(0, V, (4, T + 1))
    x, norms = model.inputs(model.embedding(ids[:, :-1]), np.arange(T), None), []
    x.register_hook(lambda dx: norms.append(np.linalg.norm(dx)))
    for block in model.decoder:
        x = block(x)
    x.register_hook(lambda dx: norms.append(np.linalg.norm(dx)))
    cross_entropy(model.head(model.decoder_norm(x)), ids[:, 1:]).backward()
    return norms  # backward comes by the top first


top, ratio = {}, {}
for placement in ("pre", "post"):
    for layers in (12, 48):
        above, below = np.array([gradients(layers, placement, seed) for seed in range(SEEDS)]).T
        case = f"{placement}-norm, {layers} layers"
        top[case], ratio[case] = above.mean(), below / above
        typical, spread = np.exp(np.log(ratio[case]).mean()), ratio[case].max() / ratio[case].min()
        print(f"{case:20}  top {above.mean():.3f}  bottom {below.mean():.3f}  bottom/top {typical:.2f}, "
              f"between seeds a factor of {spread:.1f}")  # fmt: skip

# %% Pre-norm: nothing stands on the path of x, so what is at the top arrives, and each branch adds to it.
for layers in (12, 48):
    one = ratio[f"pre-norm, {layers} layers"]
    assert one.min() > 1, "the bottom gets more than the top, with every seed"
    assert one.max() / one.min() < 4, "and the seeds agree"

# %% Post-norm: 2 norms a layer stand on it. Each layer multiplies what passes by a factor that depends on the draw.
spread = {case: r.max() / r.min() for case, r in ratio.items()}
assert spread["post-norm, 48 layers"] > 2 * spread["post-norm, 12 layers"], "chance multiplies with depth"
assert spread["post-norm, 48 layers"] > 3 * spread["pre-norm, 48 layers"], "which it does not in pre-norm"

# %% The top: 4 times the layers halve it in pre-norm (the sum that the last norm divides by has 4 times the terms).
for placement, expected in [("pre", 0.5), ("post", 1.0)]:
    shrinks = top[f"{placement}-norm, 48 layers"] / top[f"{placement}-norm, 12 layers"]
    print(f"{placement}-norm: the top's gradient at 48 layers is {shrinks:.2f} of that at 12")
    assert abs(shrinks - expected) < 0.15, "1 / sqrt(4), or no change"
print("answer: pre-norm: more than leaves the top, with every seed; post-norm: what chance leaves, and the deeper")
print("the less certain, but a full gradient at the top: by that Xiong et al. 2020 explain why it wants a warm-up")
