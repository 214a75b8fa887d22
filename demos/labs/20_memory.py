# %% [markdown]
# # 20. Memory, from the shapes
# Nothing is allocated here: the sizes follow from the configuration.

# %%
from minitx.models import TransformerConfig
from minitx.models.cost import Cost, cache_elements, feedforward_elements, overtakes, score_elements

print("question: how much do attention's scores, the feed-forward and the KV cache take?")
MiB, GiB = 2**20, 2**30
original = TransformerConfig.original(max_length=4096)
scores = score_elements(original, batch=1, length=4096)
print(f"scores, 8 heads x 4096^2: {scores:,} elements, {scores * 2 / MiB:.0f} MiB in fp16 (one layer)")
assert scores == 8 * 4096**2 == 134_217_728, "a number for every head, query and key"
assert scores * 2 == 256 * MiB, "2 bytes each"
inside = feedforward_elements(original, 1, 4096)
print(f"feed-forward, 4096 x 2048, before and after ReLU: {inside:,} elements, {inside * 2 / MiB:.0f} MiB in fp16")
assert inside == 2 * 4096 * 2048, "grows with the length, not with its square"

# %% The cache: 2 B L T H_kv d_h b bytes
llama = TransformerConfig.llama()  # 32 layers, 8 KV heads of width 128
by_hand = 2 * 1 * 32 * 8192 * 8 * 128 * 2
print(f"KV cache, 32 layers, 8,192 tokens, 8 KV heads, width 128, 2 bytes: {by_hand / GiB:.0f} GiB")
assert cache_elements(llama, 1, 8192) * 2 == by_hand == GiB, "2 B L T H_kv d_h b"
for name, changes in [("MHA, 32 KV heads", {"kv_heads": 32}), ("GQA, 8", {}), ("MQA, 1", {"kv_heads": 1})]:
    size = cache_elements(llama.replace(**changes), 1, 8192) * 2
    print(f"    {name:17} {size / GiB:.3f} GiB")
windowed = TransformerConfig.mistral()
print(f"    a window of 4,096: {cache_elements(windowed, 1, 8192) * 2 / GiB:.3f} GiB, and no more at any length")
assert cache_elements(windowed, 1, 8192) == cache_elements(windowed, 1, 32768), "what has left the window is forgotten"

# %% Training is another system than inference: what it keeps for going back, against what stays resident.
for dtype in ("fp32", "fp16", "int8"):
    memory = Cost(TransformerConfig.gpt2(), batch=1, length=1024, dtype=dtype).memory
    training, resident = memory["training activations, all layers"], memory["resident in inference (weights, cache)"]
    print(f"gpt2, 1,024 tokens, {dtype}: training keeps {training / MiB:,.0f} MiB of activations,",
          f"inference {resident / MiB:,.0f} MiB of weights and cache")  # fmt: skip

# %% Tiled attention stores no scores. It does not compute less: the pairs are as many as before.
tiled, textbook = (Cost(TransformerConfig.gpt2(attention_kernel=kernel), 1, 1024) for kernel in ("tiled", "textbook"))
saved = textbook.memory["training activations, all layers"] - tiled.memory["training activations, all layers"]
print(f"gpt2, tiled: {saved / MiB:,.0f} MiB of scores and weights less in training, the same operations:",
      tiled.flops == textbook.flops)  # fmt: skip
assert tiled.flops == textbook.flops, "exact attention stays quadratic"
print(f"its pairs cost more than its feed-forward from {overtakes(TransformerConfig.gpt2(), False):,} tokens on")
print("answer: 134,217,728 scores are 256 MiB; the cache is 1 GiB; scores grow with T^2, the other two with T")
