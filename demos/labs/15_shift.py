# %% [markdown]
# # 15. The shift, and what happens without it
# At each place the next token is the target. It is shifted exactly once, when the batch is made; no model shifts.

# %%
import numpy as np

from minitx import Tensor, cross_entropy
from minitx.data.objectives import next_token, sequence_to_sequence

print("question: from BOS A B EOS, what is read and what is to be said; and what if the shift is forgotten?")
names = np.array(["PAD", "BOS", "EOS", "A", "B"])
batch = next_token(np.array([[1, 3, 4, 2]]))
print("decoder reads          ", names[batch.ids[0]], " says", names[batch.targets[0]])
assert names[batch.ids[0]].tolist() == ["BOS", "A", "B"], "inputs"
assert names[batch.targets[0]].tolist() == ["A", "B", "EOS"], "targets"
pair = sequence_to_sequence([[4, 3]], [[3, 4]])
print("encoder-decoder: reads ", names[pair.target_ids[0]], " says", names[pair.targets[0]], " of", names[pair.ids[0]])
assert names[pair.target_ids[0]].tolist() == ["BOS", "A", "B"], "inputs of the decoder"

# %% Without the shift the answer is among the inputs. The causal mask lets a place see itself, so it does not help.
V = 11
ids = np.random.default_rng(0).integers(0, V, (64, 9))
copying = Tensor(50.0 * np.eye(V)[ids])  # a "model" that says what it reads
leaked = cross_entropy(copying, ids).item()
honest = cross_entropy(copying[:, :-1], ids[:, 1:]).item()
uniform = cross_entropy(0 * copying[:, :-1], ids[:, 1:]).item()
print(f"loss of a model that copies its input: {leaked:.4f} on targets not shifted, {honest:.1f} on the next token")
print(f"loss of a model that knows nothing:    {uniform:.4f} = ln {V}; random tokens allow no better")
assert leaked < 1e-6, "copying is perfect where input and target are the same"
assert honest > uniform, "and worthless where they are not"
assert abs(uniform - np.log(V)) < 1e-12, "ln V"
print("answer: it reads BOS A B and says A B EOS; without the shift copying has loss 0 and nothing is learned")
