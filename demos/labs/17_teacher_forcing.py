# %% [markdown]
# # 17. One pass in training, T passes in generation
# The whole target is known in training, so one pass gives the prediction at every place: teacher forcing.

# %%
import time

import numpy as np

from minitx import no_grad
from minitx.models import Transformer, TransformerConfig

print("question: does one pass over T tokens say the same as T passes over its beginnings?")
T = 64
config = TransformerConfig.gpt2(layers=2, d_model=32, heads=4, vocab_size=17, max_length=T, dropout=0.0)
model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)
ids = np.random.default_rng(1).integers(0, 17, (2, T))
with no_grad():
    model(ids), model(ids[:, :1])  # (the first call loads the kernels)
    began = time.perf_counter()
    whole = model(ids).logits.data
    one_pass = time.perf_counter() - began
    began = time.perf_counter()
    last = [model(ids[:, :t]).logits.data[:, -1] for t in range(1, T + 1)]
    T_passes = time.perf_counter() - began
apart = np.abs(np.stack(last, axis=1) - whole).max()
print(f"largest difference of any logit: {apart:.0e}")
assert apart < 1e-10, "place t sees tokens 0 ... t in both"
print(f"time: one pass {1e3 * one_pass:.2f} ms, {T} passes {1e3 * T_passes:.2f} ms on this machine")

# %% In generation the T passes come one after the other: what is chosen at t is read at t + 1.
said = ids[:, :4]
for _ in range(4):
    said = np.concatenate([said, model(said).logits.data[:, -1:].argmax(-1)], axis=1)
blank = np.zeros((2, 4), int)  # in the places of tokens that are not there yet
at_once = model(np.concatenate([ids[:, :4], blank], axis=1)).logits.data[:, 3:7].argmax(-1)
right = (at_once == said[:, 4:]).sum(0)
print("4 tokens of 2 rows, all in one pass over blanks: as one after the other", *(f"{n}/2" for n in right))
assert right[0] == 2, "the first place has its whole past"
assert right[1:].sum() < 6, "the others would need tokens that do not exist"
print("answer: yes, to 1e-10: training takes all places at once; generation reads what it has just said")
