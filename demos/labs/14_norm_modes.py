# %% [markdown]
# # 14. Norms in training and in inference
# LayerNorm and RMSNorm have no running statistics: they do the same in both modes. Dropout and BatchNorm do not.

# %%
import numpy as np

from minitx import Tensor, nn

print("question: which parts of a Transformer behave differently in training and in inference?")
rng = np.random.default_rng(0)
x = rng.standard_normal((4, 6, 16)).astype(np.float32) * 3 + 1


def batch_norm(x, running):
    """What BatchNorm does, for contrast: the statistics of the batch in training, remembered ones in inference."""
    mean, var = running if running is not None else (x.mean((0, 1)), x.var((0, 1)))
    return (x - mean) / np.sqrt(var + 1e-5)


# %%
for layer in (nn.LayerNorm(16), nn.RMSNorm(16), nn.Dropout(0.5, rng=rng)):
    training, inference = (layer.train(mode)(Tensor(x)).data for mode in (True, False))
    alone = layer(Tensor(x[:1])).data
    name, differ = type(layer).__name__, np.abs(training - inference).max()
    company = np.abs(alone - inference[:1]).max()
    print(f"{name:9} training or inference: {differ:.2f} apart; a row alone or in its batch: {company:.2f} apart")
    assert (differ == 0) == (name != "Dropout"), "norms are the same in both modes, dropout is not"
    assert company == 0, "what else is in the batch does not matter"
training, inference = batch_norm(x, None), batch_norm(x, (np.zeros(16), np.ones(16)))
differ, company = np.abs(training - inference).max(), np.abs(batch_norm(x[:1], None) - training[:1]).max()
print(f"BatchNorm training or inference: {differ:.2f} apart; a row alone or in its batch: {company:.2f} apart")
assert min(differ, company) > 0.1, "BatchNorm looks at the batch, and at what it has seen before"
print("answer: dropout only; LayerNorm and RMSNorm give bit for bit the same, since each token is its own statistics")
