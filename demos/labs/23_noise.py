# %% [markdown]
# # 23. The noise test
# Random tokens cannot be predicted: ln V is the best there is. A model that gets below it has seen the answer.

# %%
import numpy as np

from minitx import nn
from minitx.audit import audit
from minitx.data import Batch
from minitx.masks import causal
from minitx.models import Transformer, TransformerConfig

print("question: trained on noise, where does the loss end, with a right mask and with one that is off by one?")
V, T = 16, 12


class Decoder(nn.Module):
    """A stack that sees what its mask lets it see, so that a wrong one can be tried."""

    def __init__(self, mask):
        config = TransformerConfig(
            architecture="encoder", head="masked-lm", layers=1, d_model=32, heads=4, vocab_size=V, dropout=0.0,
            norm_placement="pre",
        )  # fmt: skip
        self.stack, self.mask = Transformer(config, rng=np.random.default_rng(0)), mask

    def forward(self, ids):
        return self.stack(ids, mask=self.mask(ids.shape[1])).logits


def unshifted(ids, lengths):
    """What is read is what is to be said."""
    return Batch(ids[:, :-1], ids[:, :-1].copy())


# %%
cases = {
    "causal": (lambda T: causal(), None),
    "off by one: sees the next token": (lambda T: np.tri(T, k=1, dtype=bool), None),
    "no mask at all": (lambda T: None, None),
    "causal, but targets not shifted": (lambda T: causal(), unshifted),
}
losses = {}
for name, (mask, objective) in cases.items():
    report = audit(Decoder(mask), family="decoder", vocab_size=V, length=T, objective=objective, noise=True, seconds=60)
    found = {finding.row: finding for finding in report.findings}
    losses[name] = np.log(V) - found["noise"].size
    print(f"{name:32} {losses[name]:.3f} nats, ln {V} = {np.log(V):.3f}; future: {found['future'].verdict},",
          f"shift: {found['shift'].verdict}, noise: {found['noise'].verdict}")  # fmt: skip
    assert found["noise"].leak == (name != "causal"), "the noise test finds every leak, and finds none where none is"
honest, *leaks = losses.values()
assert abs(honest - np.log(V)) < 0.1, "there is nothing to learn"
assert max(leaks) < 1.5, "every leak is found within seconds"
print("answer: at ln V where the mask is right; far below where it is not: a loss that looks too good is the symptom")
