# %% [markdown]
# # 13. Grouped heads
# Query head i reads key and value head i // (H / H_kv). With H_kv = H that is plain multi-head attention (MHA), with
# H_kv = 1 multi-query attention (MQA), between them grouped-query attention (GQA).

# %%
import numpy as np

from minitx import Tensor, attention, nn

print("question: eight query heads and two key/value heads: who reads what, and what is saved?")
rng = np.random.default_rng(0)
H, T, S, d = 8, 3, 5, 4
q = rng.standard_normal((1, H, T, d))


def heads_read(kv_heads):
    """For each query head the KV head whose values reach it: found by changing the values of one KV head at a time."""
    k, v = rng.standard_normal((2, 1, kv_heads, S, d))
    before, reads = attention(Tensor(q), Tensor(k), Tensor(v)).data, np.full(H, -1)
    for g in range(kv_heads):
        changed = v.copy()
        changed[:, g] += 1
        moved = np.abs(attention(Tensor(q), Tensor(k), Tensor(changed)).data - before).max((0, 2, 3)) > 0.5
        assert (reads[moved] == -1).all(), "a query head reads one KV head"
        reads[moved] = g
    repeated = [np.repeat(a, H // kv_heads, axis=1) for a in (k, v)]  # (1, H, S, d)
    apart = np.abs(attention(Tensor(q), *map(Tensor, repeated)).data - before).max()
    return reads, apart


for name, kv_heads in [("MHA", 8), ("GQA", 2), ("MQA", 1)]:
    reads, apart = heads_read(kv_heads)
    print(f"{name} {kv_heads} KV heads: query heads 0-7 read {reads}; written out by repetition: {apart:.0e} apart")
    assert reads.tolist() == [i // (H // kv_heads) for i in range(H)], "i // (H / H_kv)"
    assert apart < 1e-12, "sharing is repetition without the copies"

# %% What generation keeps for every token and layer: keys and values. There are as many queries as before.
for name, kv_heads in [("MHA", 8), ("GQA", 2), ("MQA", 1)]:
    layer = nn.MultiHeadAttention(64, heads=8, kv_heads=kv_heads, rng=rng)
    kept = layer.key.weight.shape[0] + layer.value.weight.shape[0]
    print(f"{name}: queries {layer.query.weight.shape[0]} numbers a token, cached {kept}")
    assert layer.query.weight.shape[0] == 64, "no query is saved"
    assert kept == 2 * kv_heads * 8, "2 H_kv d"
print("answer: query heads 0-3 share KV head 0, 4-7 KV head 1; the cache is a quarter of that of MHA, of MQA an eighth")
