"""At kinks, ties and ends, where design decisions show, the basic ops agree with PyTorch; or a test shows how not."""
from __future__ import annotations

import numpy as np
import pytest

from minitx import Tensor, ops

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

INF = np.inf
HALF_TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
SAME = {
    "relu": (ops.relu, torch.relu, [[-1.0, 0.0, -0.0, 2.0]]),
    "abs": (ops.abs, torch.abs, [[-1.0, 0.0, -0.0, 2.0]]),
    "clip": (lambda x: ops.clip(x, -1, 1), lambda x: torch.clamp(x, -1, 1), [[-2.0, -1.0, 0.0, 1.0, 2.0, np.nan]]),
    "maximum": (ops.maximum, torch.maximum, [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]]),
    "minimum": (ops.minimum, torch.minimum, [[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]]),
    "max": (lambda x: ops.max(x, 1), lambda x: torch.amax(x, 1), [HALF_TIES]),
    "min": (lambda x: ops.min(x), lambda x: torch.amin(x, (0, 1)), [HALF_TIES]),
    "power": (ops.power, torch.pow, [[0.0, 0.0, 0.0, 0.0, 2.0], [0.0, 1.0, 2.0, 1.5, -1.0]]),
    "x**3": (lambda x: x**3, lambda x: x**3, [[-2.0, 0.0, 2.0]]),
    "x**0": (lambda x: x**0, lambda x: x**0, [[-2.0, 0.0, INF]]),
    "x**-2": (lambda x: x**-2, lambda x: x**-2, [[-2.0, 4.0]]),
    "sqrt": (ops.sqrt, torch.sqrt, [[0.0, 4.0]]),
    "where": (
        lambda x: ops.where(x > 0, ops.sqrt(x), x), lambda x: torch.where(x > 0, torch.sqrt(x), x), [[-1.0, -4.0, 4.0]],
    ),
    "sigmoid": (ops.sigmoid, torch.sigmoid, [[-INF, -1000.0, 1000.0, INF]]),
    "tanh": (ops.tanh, torch.tanh, [[-INF, -1000.0, 1000.0, INF]]),
    "logsumexp": (lambda x: ops.logsumexp(x, 1), lambda x: torch.logsumexp(x, 1), [[[1000.0, -INF], [0.5, 0.5]]]),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", SAME)
def test_kinks_ties_and_ends(name, dtype):
    ours, theirs, arrays = SAME[name]
    arrays = [np.array(a, dtype) for a in arrays]
    a = [Tensor(x, requires_grad=True) for x in arrays]
    b = [torch.tensor(x, requires_grad=True) for x in arrays]
    with np.errstate(divide="ignore", invalid="ignore"):
        y = ours(*a)
        dy = np.random.default_rng(0).standard_normal(y.shape).astype(dtype)
        y.backward(dy)
    z = theirs(*b)
    z.backward(torch.tensor(dy))
    tolerance = 1e-14 if dtype == "float64" else 1e-6
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=tolerance)
    for t, u in zip(a, b):
        np.testing.assert_allclose(t.grad, u.grad.numpy(), rtol=tolerance)


def test_where_we_differ():
    x = Tensor(np.array([[-INF, -INF]]), requires_grad=True)
    ops.logsumexp(x, 1).backward([1.0])
    assert x.grad.tolist() == [[0, 0]]
    u = torch.tensor([[-INF, -INF]], requires_grad=True)
    torch.logsumexp(u, 1).backward(torch.ones(1))
    assert torch.isnan(u.grad).all()  # theirs

    x = Tensor(np.array([-INF, INF]), requires_grad=True)
    ops.gelu(x).backward([1.0, 1.0])
    assert x.grad.tolist() == [0, 1]
    u = torch.tensor([-INF, INF], requires_grad=True)
    torch.nn.functional.gelu(u).backward(torch.ones(2))
    assert torch.isnan(u.grad).any()

    assert ops.var(Tensor([1.0, 3.0])).item() == 1
    assert torch.var(torch.tensor([1.0, 3.0])).item() == 2
