# %% [markdown]
# # 6. From text to vectors and back
# BOS, hello, world: three ids, three rows of a learned table; at the other end a score for every entry.

# %%
import numpy as np

from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy, softmax

print("question: how does [BOS, hello, world] become an input, and what comes out?")
vocabulary = {"BOS": 0, "hello": 1, "world": 2}
d = 6
config = TransformerConfig.gpt2(layers=1, d_model=d, heads=2, vocab_size=3, max_length=8, dropout=0.0)
model = Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)
ids = np.array([[vocabulary[token] for token in ("BOS", "hello", "world")]])
vectors = model.embedding(ids).data
print("ids:", ids.tolist(), " table:", model.embedding.weight.shape, " vectors:", vectors.shape)
assert vectors.shape == (1, 3, d), "rows 0, 1, 2 of the table, and an axis for the batch"
assert np.array_equal(vectors[0], model.embedding.weight.data), "a lookup, nothing else"

# %% An id is a name and not a quantity.
ratio = vectors[0, 2] / vectors[0, 1]
print("vector of id 2 / vector of id 1:", ratio.round(2))
assert not np.allclose(ratio, 2), "id 2 does not mean twice id 1"

# %% After the stack a position has a hidden vector of width d; the head turns it into one score a vocabulary entry.
out = model(ids)
p = softmax(out.logits).data
print("hidden:", out.hidden.shape, " logits:", out.logits.shape, " each position's probabilities sum to", p.sum(-1)[0])
assert out.hidden.shape == (1, 3, d), "hidden vectors, not ids"
assert out.logits.shape == (1, 3, 3), "scores over the vocabulary"
assert np.allclose(p.sum(-1), 1), "here softmax runs over the vocabulary; in attention it runs over keys"

# %% The loss of a target is minus the logarithm of its probability.
target = np.array([[1, 2, 0]])
by_hand = -np.log(np.take_along_axis(p, target[..., None], -1)).mean()
loss = cross_entropy(out.logits, target).item()
print(f"loss {loss:.4f}, by hand {by_hand:.4f}, of a uniform guess ln 3 = {np.log(3):.4f}")
assert abs(loss - by_hand) < 1e-12, "cross-entropy"
print(f"answer: [0, 1, 2] -> rows of E (3, {d}) -> (1, 3, {d}); out come scores (1, 3, 3), one per entry")
