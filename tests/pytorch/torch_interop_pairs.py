"""One module on both sides, called alike, and everything compared: outputs, and all gradients."""
import numpy as np
import torch

from minitx import Tensor
from minitx.interop.torch import from_torch, gradients_from_torch, like_torch, names, rename_to_torch, to_torch

TOLERANCE = 1e-10
torch.set_num_threads(1)  # the tensors are tiny


def randomized(module, seed=0):
    """Float64, every parameter random: no gain that is 1, no bias that is 0, no row that is special."""
    rng = np.random.default_rng(seed)
    module.double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.from_numpy(rng.normal(size=p.shape) * (0.5 if p.ndim > 1 else 1.0)))
    return module


def assert_close(a, b, what):
    a, b = (x.numpy() if isinstance(x, Tensor) else np.asarray(x.detach() if hasattr(x, "detach") else x)
            for x in (a, b))  # fmt: skip
    assert a.shape == b.shape, f"{what}: {a.shape}, {b.shape}"
    error, size = np.abs(a - b).max(initial=0), np.abs(b).max(initial=0)
    assert error <= TOLERANCE * max(size, 1e-3), f"{what}: {error:.3g} of {size:.3g}"


def assert_same_gradients(ours, theirs):
    """By minitx's names, and by PyTorch's: no parameter of either side is left out."""
    expected = gradients_from_torch(ours, theirs)
    mine = {name: p.grad for name, p in ours.named_parameters()}
    assert mine.keys() == expected.keys()
    for name, g in mine.items():
        if g is None:  # then it can only be that nothing reached it there either
            assert expected[name] is None or not expected[name].any(), name
        else:
            assert_close(g, expected[name], name)
    there = dict(theirs.named_parameters())
    renamed = rename_to_torch(ours, mine)
    assert renamed.keys() == there.keys() == {match.theirs for match in names(ours)}
    for name, g in renamed.items():
        if g is not None:
            assert_close(g, there[name].grad, name)


def run_theirs(theirs, inputs, options):
    xs = [torch.tensor(x, requires_grad=x.dtype.kind == "f") for x in inputs]
    said = {name: torch.tensor(v) if isinstance(v, np.ndarray) else v for name, v in options.items()}
    for p in theirs.parameters():
        p.grad = None
    return xs, theirs(*xs, **said)


def compare(theirs, *inputs, batch_first=False, seed=1, **options):
    """`theirs` against from_torch(theirs), and against to_torch of that; returns from_torch's module."""
    xs, y = run_theirs(theirs, inputs, options)
    y, w = y if isinstance(y, tuple) else (y, None)
    dy = np.random.default_rng(seed).normal(size=y.shape)
    y.backward(torch.from_numpy(dy))

    ours = from_torch(theirs)
    mine = [Tensor(x, requires_grad=True) if x.dtype.kind == "f" else x for x in inputs]
    z = like_torch(ours, batch_first)(*mine, **options)
    z, v = z if isinstance(z, tuple) else (z, None)
    assert_close(z, y, "output")
    if w is not None:
        assert_close(v, w, "weights")
    z.backward(dy)
    for i, (a, b) in enumerate(zip(mine, xs)):
        if b.requires_grad:
            assert_close(a.grad, b.grad, f"input {i}")
    assert_same_gradients(ours, theirs)

    back = to_torch(ours, batch_first=batch_first)
    assert type(back) is type(theirs)
    assert back.training == theirs.training
    assert [n for n, _ in back.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    ys, again = run_theirs(back, inputs, options)
    again = again[0] if isinstance(again, tuple) else again
    assert_close(again, y, "to_torch: output")
    again.backward(torch.from_numpy(dy))
    for i, (a, b) in enumerate(zip(ys, xs)):
        if b.requires_grad:
            assert_close(a.grad, b.grad, f"to_torch: input {i}")
    for (name, p), q in zip(back.named_parameters(), theirs.parameters()):
        assert_close(p.grad, q.grad, f"to_torch: {name}")
    return ours
