# %% [markdown]
# # The counterpart: a recurrent network from the same ops
# Before Transformers, what a network knew of a text was one vector, made anew at every token. It needs no cache that
# grows with the text, and it has to learn token after token. (The network: minitx/bench/recurrent.py, 40 lines.)

# %%
import os
import time

import numpy as np

from minitx.bench.generate import ONE
from minitx.bench.recurrent import Recurrent
from minitx.bench.remembering import learned, remembered
from minitx.data import CharTokenizer
from minitx.ops import cross_entropy, softmax
from minitx.optim import AdamW, clip_grad_norm
from minitx.settings import no_grad

STEPS = int(os.environ.get("MINITX_STEPS", 300))
rng = np.random.default_rng(0)

# %% A text (the page of softmax), and the network
text = str(softmax.__doc__) * 3
tokenizer = CharTokenizer.of(text)
ids = tokenizer.encode(text)
model = Recurrent(len(tokenizer), 96, 2, rng=rng)
print(model)

# %% It learns to say the next character; every step goes through 48 characters one after the other, and back
optimizer = AdamW(model, lr=5e-3)
began = time.perf_counter()
for _ in range(STEPS):
    windows = ids[rng.integers(0, len(ids) - 49, 16)[:, None] + np.arange(49)]  # (16, 49)
    loss = cross_entropy(model(windows[:, :-1])[0], windows[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    clip_grad_norm(optimizer, 1.0)
    optimizer.step()
print(f"loss {loss.item():.2f} nats a character after {STEPS} steps, {time.perf_counter() - began:.0f} s")

# %% It goes on with a text from its states alone: nothing else is kept of what was said
said = list(tokenizer.encode("equation"))
with no_grad():
    logits, states = model(np.array([said]))
    for _ in range(80):
        said.append(int(logits.data[0, -1].argmax()))
        logits, states = model(np.array([said[-1:]]), states)
print(tokenizer.decode(said))

# %% What one text costs to remember: a vector a layer, or keys and values of every token
for row in remembered(ONE):
    print(f"{row.tokens:6,} tokens: state {row.state:,} bytes, cache {row.cache:,} bytes")

# %% And to learn from: one after the other, or all at once
for row in learned(ONE._replace(B=4, d=64, layers=2), (32, 128), 3):
    print(f"{row.tokens} tokens: recurrent {row.serial.ms()}, Transformer {row.parallel.ms()}")
