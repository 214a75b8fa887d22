"""The components that are timed side by side are the same functions on both sides."""
import numpy as np
import pytest

from minitx.bench import components, components_minitx

CASES = [components.Case(name, 5, 7) for name in (*components.NAMES, "cross_entropy")]


def inputs(side, case, number):
    """What the side has as gradients after a call: of x, and of what else it uses."""
    call = side.build(case, 1)
    call()
    cells = dict(zip(call.__code__.co_freevars, call.__closure__, strict=True))
    tensors = [cells[name].cell_contents for name in ("x", "up", "weight", "bias")]
    return [None if t.grad is None else number(t.grad) for t in tensors]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.torch
def test_both_sides_do_the_same(case):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from minitx.bench import components_torch

    ours, theirs = inputs(components_minitx, case, np.asarray), inputs(components_torch, case, lambda g: g.numpy())
    assert ours[0] is not None
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None:
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


def test_rows_come_from_a_process_of_their_own():
    (row,) = components.rows(None, 1, 0.001, CASES[:1])
    assert row.ours.median > 0
    assert row.ratio is None
    assert row.to_dict()["case"]["name"] == CASES[0].name
