# %% [markdown]
# # A training loop, written out
# An encoder-decoder learns to say a sequence again. Nothing is hidden: the model, the loss, the gradient, the update.

# %%
import os

import numpy as np

from minitx.generation import answer, greedy
from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy
from minitx.optim import AdamW, Schedule, clip_grad_norm, warmup_cosine
from minitx.tasks import get_task

STEPS = int(os.environ.get("MINITX_STEPS", 500))
task = get_task("copy", longest=6)
rng = np.random.default_rng(0)
batch = task.batch(rng, 2)
print("the encoder reads     ", batch.ids[0])
print("the decoder reads     ", batch.target_ids[0])
print("and is to say at each ", batch.targets[0], "(-100: nothing)")

# %%
config = TransformerConfig(layers=1, d_model=64, heads=4, vocab_size=len(task.tokenizer), dropout=0.0)
model = Transformer(config, rng=rng)
print(model)

# %%
optimizer = AdamW(model, lr=2e-3)
schedule = Schedule(optimizer, warmup_cosine(STEPS, warmup=STEPS // 10))
for step in range(1, STEPS + 1):
    batch = task.batch(rng, 64)
    logits = model(batch.ids, batch.target_ids, mask=batch.mask).logits  # (B, T, V)
    loss = cross_entropy(logits, batch.targets)
    optimizer.zero_grad()
    loss.backward()
    norm = clip_grad_norm(model, 1.0)
    schedule.step()
    optimizer.step()
    if step == 1 or step % max(STEPS // 10, 1) == 0:
        print(f"step {step:4}  loss {loss.item():.4f}  gradient norm {norm:.3f}  learning rate {optimizer.lr:.1e}")

# %%
print(*task.evaluate(model).lines(), sep="\n")

# %% Sequences it has never seen: `answer` works on text, `greedy` on ids.
for source in ("3 1 4 1 5", "2 7", "0 0 0 0 0 0"):
    print(f"{source:12} -> {answer(model, task.tokenizer, [source])[0]}")
print(greedy(model, [[3, 4, 5, 2]], max_new=7))
