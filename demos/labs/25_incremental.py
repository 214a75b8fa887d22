# %% [markdown]
# # 25. Token by token with a cache, and all at once
# A cache keeps the keys and values of the past, so that each new token is the only one that goes through the model.

# %%
import time

import numpy as np

from minitx import no_grad
from minitx.generation import Session
from minitx.generation.session import incremental
from minitx.models import Transformer, TransformerConfig
from minitx.models.cost import cache_elements

print("question: are the logits of one token after the other those of the whole text, and what is saved?")
T = 96
ids = np.random.default_rng(1).integers(0, 97, (2, T))
models = {
    "gpt2, learned positions": TransformerConfig.gpt2,
    "llama, rotary, 4 query heads on 1 KV head": TransformerConfig.llama,
    "mistral, a window of half the length": TransformerConfig.mistral,
    "mpt, ALiBi": TransformerConfig.mpt,
}
for name, preset in models.items():
    config = preset(layers=2, d_model=32, heads=4, vocab_size=97, max_length=T, dropout=0.0)
    model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64).eval()
    with no_grad():
        whole = model(ids).logits.data
    apart = [np.abs(incremental(model, ids, chunks) - whole).max() for chunks in (None, [50, 30, 16], [T])]
    print(f"{name:42} one by one {apart[0]:.0e} apart, 50 + 30 + 16 {apart[1]:.0e}, at once {apart[2]:.0e}")
    assert max(apart) < 1e-10, "incremental equals full"

# %% Prompts of different lengths: padding is never stored, and makes no difference.
lengths = np.array([7, 4])
session = Session(model)
together = session.prefill(ids[:, :7], lengths)
alone = [Session(model).prefill(ids[b : b + 1, :n])[0] for b, n in enumerate(lengths)]
print(f"a prompt of 4 beside one of 7: {np.abs(together - alone).max():.0e} from what it is alone")
assert np.allclose(together, alone, rtol=0, atol=1e-10), "rows do not touch each other"

# %% The cache is counted, and grows with every token: 2 B L T H_kv d b bytes.
session = Session(model)
session.prefill(ids[:, :1])
for t in range(1, T):
    session.step(ids[:, t])
    if t + 1 in (2, 48, T):
        print(f"after {t + 1:2} tokens: {session.nbytes:7,} bytes, and the next one asks {t + 2} keys a layer and head")
        by_hand = 2 * 2 * 2 * (t + 1) * 4 * 8 * 8  # B = 2 rows, L = 2 layers, H_kv = 4 heads of d = 8, b = 8 bytes
        assert session.nbytes == 8 * cache_elements(config, 2, t + 1) == by_hand, "2 B L T H_kv d b"

# %% The time for T tokens: T passes over ever longer beginnings against T passes over one token
with no_grad():
    began = time.perf_counter()
    for t in range(1, T + 1):
        model(ids[:, :t])
    again = time.perf_counter() - began
    began = time.perf_counter()
    incremental(model, ids)
    cached = time.perf_counter() - began
print(f"{T} tokens: {1e3 * again:.0f} ms without a cache, {1e3 * cached:.0f} ms with it, on this machine")

print("answer: yes, to 1e-10, in any pieces; no token is computed twice, and the cache grows with every one")
