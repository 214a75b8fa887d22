# %% [markdown]
# # Reading digits: a Transformer for images
# 1,797 handwritten digits of 8 x 8 pixels, which come with scikit-learn. An image is cut into 16 patches of 2 x 2: its
# tokens. (Dosovitskiy et al. 2021, "An image is worth 16x16 words".)

# %%
import os
import sys

import numpy as np

from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy
from minitx.optim import AdamW, Schedule, clip_grad_norm, warmup_cosine

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit('this demo needs scikit-learn, for its data only: python -m pip install -e ".[demos]"')
STEPS = int(os.environ.get("MINITX_STEPS", 1000))
images, labels = load_digits(return_X_y=True)
images, labels = images.reshape(-1, 8, 8) / 8 - 1, labels.astype(np.int64)  # -1 ... 1
held_out, training = np.split(np.random.default_rng(0).permutation(len(images)), [400])  # held out: read once, last
for row in images[training[0]]:
    print("".join(" .:oO#"[int(2.99 * (value + 1))] * 2 for value in row))
rng = np.random.default_rng(1)


# %%
def patches(pixels):
    """(B, 8, 8) -> (B, 16, 4): squares of 2 x 2, left to right, top to bottom"""
    return pixels.reshape(-1, 4, 2, 4, 2).swapaxes(2, 3).reshape(-1, 16, 4)


def shifted(pixels):
    """Some of the images moved by a pixel, down or up, right or left: what a digit is does not depend on it."""
    wide = np.pad(pixels, ((0, 0), (1, 1), (1, 1)), constant_values=-1)
    down, right = rng.choice(3, (2, len(pixels), 1, 1), p=(0.15, 0.7, 0.15))
    return wide[np.arange(len(pixels))[:, None, None], down + np.arange(8)[:, None], right + np.arange(8)]


# %%
small = {"layers": 2, "d_model": 64, "heads": 4, "patch_dim": 4, "classes": 10, "max_length": 17, "dropout": 0.0}
model = Transformer(TransformerConfig.vit(**small, init="xavier"), rng=rng)
optimizer = AdamW(model, lr=2e-3, weight_decay=0.1)
schedule = Schedule(optimizer, warmup_cosine(STEPS, warmup=STEPS // 10))
for step in range(1, STEPS + 1):
    batch = rng.choice(training, 64, replace=False)
    loss = cross_entropy(model(patches(shifted(images[batch]))).logits, labels[batch])
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm(model, 1.0)
    schedule.step()
    optimizer.step()
    if step == 1 or step % max(STEPS // 10, 1) == 0:
        print(f"step {step:4}  loss {loss.item():.4f}")

# %%
right = model(patches(images[held_out])).logits.data.argmax(-1) == labels[held_out]
print(f"held-out accuracy {right.mean():.1%} of {len(right)} images, {model.num_parameters():,} parameters")
