# %% [markdown]
# # 19. The router that collapses
# Four experts, one a token; the router starts with a preference for expert 0, as chance would give it. An expert that
# is chosen learns, and one that learns is chosen.

# %%
import numpy as np

from minitx import Tensor, cross_entropy, nn
from minitx.optim import AdamW

print("question: what becomes of four experts, with and without the balance loss?")


def train(weight, steps=150):
    """Usage in the last step; `weight` is that of the balance loss, 0: without it."""
    rng = np.random.default_rng(0)
    mixture, head = nn.MixtureOfExperts(8, 16, 4, k=1, rng=rng), nn.Linear(8, 5, rng=rng)
    tokens, targets = rng.standard_normal((256, 8)).astype(np.float32), rng.integers(0, 5, 256)
    tokens[:, 0] = 2.0  # the same in every token: through it the router can prefer an expert whatever the token
    mixture.router.weight.data += np.array([[2.0]] + 3 * [[0.0]]) * np.eye(8)[0]
    optimizer = AdamW([*mixture.parameters(), *head.parameters()], lr=1e-2)
    for _ in range(steps):
        aux = nn.Aux()
        loss = cross_entropy(head(mixture(Tensor(tokens), aux=aux)), targets)
        balance = aux.losses["balance"]  # E sum_e f_e P_e: 1 where the load is even, up to E where one has it all
        optimizer.zero_grad()
        (loss + weight * balance).backward()
        optimizer.step()
    return aux.usage[""], balance.item()


# %%
for weight in (0.0, 0.3):
    usage, balance = train(weight)
    print(f"balance loss x {weight}: {usage}, balance {balance:.2f}")
    if weight == 0:
        collapsed = usage
print(f"largest load without {collapsed.load.max():.2f}, with {usage.load.max():.2f}; even would be 0.25")
assert collapsed.load.max() > 0.8, "without the balance loss the preference stays"
assert usage.load.max() < 0.45, "with it every expert has work"
assert usage.entropy > collapsed.entropy, "entropy of the load"
print("answer: without it one expert does nearly everything and the others are dead weight; with it the load is even")
