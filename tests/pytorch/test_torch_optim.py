"""Ten steps of each optimizer, and clipping, against PyTorch's in float64."""

import numpy as np
import pytest

from minitx import Tensor
from minitx.optim import SGD, Adam, AdamW, clip_grad_norm

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

KINDS = [
    (SGD, "SGD", {}),
    (SGD, "SGD", {"momentum": 0.9}),
    (SGD, "SGD", {"momentum": 0.7, "weight_decay": 0.1}),
    (Adam, "Adam", {}),
    (Adam, "Adam", {"weight_decay": 0.1, "betas": (0.7, 0.9), "eps": 1e-3}),
    (AdamW, "AdamW", {}),
    (AdamW, "AdamW", {"weight_decay": 0.3, "betas": (0.8, 0.95)}),
]


@pytest.mark.parametrize(("kind", "name", "options"), KINDS, ids=lambda x: str(x) if isinstance(x, dict) else None)
def test_ten_steps_with_groups_clipping_and_a_gap(kind, name, options):
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(3, 5)), rng.normal(size=7), rng.normal(size=())]
    ours = [Tensor(v, requires_grad=True) for v in values]
    theirs = [torch.tensor(v, requires_grad=True) for v in values]

    def groups(ps):
        return [{"params": [ps[0]]}, {"params": [ps[1]], "lr": 0.3, "weight_decay": 0.5}, {"params": [ps[2]]}]

    optimizer = kind(groups(ours), lr=0.05, **options)
    witness = getattr(torch.optim, name)(groups(theirs), lr=0.05, **options)
    for step in range(10):
        if step == 5:
            optimizer.groups[0]["lr"] = witness.param_groups[0]["lr"] = 0.02
        for i, (p, q) in enumerate(zip(ours, theirs)):
            g = rng.normal(size=p.shape) * 10.0 ** rng.integers(-3, 3)
            p.grad, q.grad = (None, None) if i == 1 and step == 4 else (np.array(g), torch.tensor(g))
        norm = clip_grad_norm(ours, 2.0)
        np.testing.assert_allclose(norm, torch.nn.utils.clip_grad_norm_(theirs, 2.0).item(), rtol=1e-13)
        optimizer.step()
        witness.step()
        for p, q in zip(ours, theirs):
            np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-12, atol=1e-13)
