"""Wrong backward passes are rejected: all those that a machine makes, and those that people make.

`python tests/mutants.py` prints the score by op.
"""
from __future__ import annotations

import component_faults  # noqa: F401  (adds to FAULTS)
import numpy as np
import pytest
from faults import CORNERS, DIFFERENCES, FAULTS, SMALLER_OPS
from mutants import all_ops, mutants, survives
from witnesses import passes_corners, passes_gradient_check, passes_smaller_ops, passes_usual_check

from minitx import Tensor, masks, nn
from minitx.audit.cases import CASES
from minitx.gradcheck import GradientError, gradcheck, gradcheck_model
from minitx.nn import attention as attention_layer
from minitx.op import registry
from minitx.ops import embedding, linear, matmul, reshape

# Mutants that no test can catch, and why: they are not wrong.
EQUIVALENT = {
    "erf: near = np.clip(x, -28, 28)  →  near = np.clip(x, -29, 28)": "exp(-28²) is 0 already",
    "erf: near = np.clip(x, -28, 28)  →  near = np.clip(x, -28, 29)": "exp(-28²) is 0 already",
    "erf: near = np.clip(x, -28, 28)  →  near = np.clip(x, -27, 28)": "exp(-27²) is below every normal number",
    "erf: near = np.clip(x, -28, 28)  →  near = np.clip(x, -28, 27)": "exp(-27²) is below every normal number",
    "power: less_one = np.where(y == 0, 0, y - 1)  →  less_one = np.where(y == 0, 1, y - 1)":
        "multiplied by y, which is 0 there",
    "power: flat = (x == 0) & (y >= 0)  →  flat = (x == 0) & (y >= -1)":
        "differs at 0 to a negative power only, whose value is infinite",
    "getitem: if repeats:  →  if True:": "np.add.at is right without repeats too, and slower",
    "matmul: if Y.ndim == 2 < X.ndim:  →  if False:": "a shortcut: otherwise the engine sums over the stack",
    "matmul: if Y.ndim == 2 < X.ndim:  →  if Y.ndim == 1 < X.ndim:":
        "a shortcut: otherwise the engine sums over the stack",
    "matmul: dy = dY.squeeze(-1) if y.ndim == 1 else dY  →  dy = dY.squeeze(1) if y.ndim == 1 else dY":
        "dY has two axes there",
    "einsum: if letters == own:  →  if False:": "a shortcut: without a diagonal the engine sums",
    "logsumexp: p = e / np.where(nothing, 1, total)  →  p = e / np.where(nothing, 2, total)": "e is 0 there",
    "attention_weights: full = (1,) * (g.ndim - len(shape)) + shape  →  full = (0,) * (g.ndim - len(shape)) + shape":
        "then an axis of length 1 is summed as well",
    "attention_weights: return g.sum(repeated, keepdims=True).reshape(shape)  →  return g.sum(repeated).reshape(shape)":
        "the reshape puts the axes back",
    "cross_entropy: if epsilon:  →  if True:": "subtracts 0",
    "cross_entropy: if all_counted:  →  if False:": "a shortcut",
    "log_softmax: return dx if alive.all() else np.where(alive, dx, 0)  →  return np.where(alive, dx, 0)": "a shortcut",
}  # fmt: skip


@pytest.fixture(scope="module")
def made():
    return [m for op in all_ops() for m in mutants(op)]


def test_every_mutant_is_caught_or_equivalent(made, capsys):
    alive = {str(m) for m in made if survives(m)}
    with capsys.disabled():
        print(f"\nmutants: {len(made)} made, {len(made) - len(alive)} caught, {len(alive)} alive")
    assert alive - set(EQUIVALENT) == set(), "a test is missing, or a reason in EQUIVALENT"
    assert set(EQUIVALENT) - alive == set(), "these are caught, or no longer made"


def test_there_are_enough(made):
    assert len(made) > 600
    assert len({m.op for m in made}) > 40
    assert len({str(m) for m in made}) > 0.95 * len(made)  # (the same words at two places are rare)


def test_definitions_themselves_pass():
    """Else everything would be caught."""
    for op in all_ops():
        assert passes_gradient_check(op, op.definition), op.name
        assert passes_corners(op, op.definition), op.name
        assert passes_smaller_ops(op, op.definition), op.name


def test_the_usual_check_accepts_wrong_softmax_and_layer_norm(made):
    """What `y.sum()` at gain 1 and bias 0 is worth."""
    for name in ("softmax", "layer_norm", "attention_weights"):
        assert passes_usual_check(registry[name], registry[name].definition)
        accepted = [m for m in made if m.op == name and passes_usual_check(registry[name], m.rule)]
        assert sum(str(m) not in EQUIVALENT for m in accepted) >= 3


# ---------------------------------------------------------------------- faults that people make


@pytest.mark.parametrize("fault", [pytest.param(f, id=f.name) for f in FAULTS])
def test_fault_is_rejected(fault):
    passes = {
        DIFFERENCES: passes_gradient_check,
        CORNERS: passes_corners,
        SMALLER_OPS: passes_smaller_ops,
    }
    assert not passes[fault.witness](fault.op, fault.rule)


@pytest.mark.parametrize("fault", [pytest.param(f, id=f.name) for f in FAULTS if f.witness == SMALLER_OPS])
def test_consistent_fault_is_not_seen_by_differences(fault):
    """Right gradients of a wrong function: that is what the other witnesses are for."""
    args, options = next(case.draw() for case in CASES if case.op == fault.op.name)
    with fault.op.using(fault.rule):
        gradcheck(fault.op, *args, **options)


def test_there_are_enough_faults():
    assert len(FAULTS) >= 25


def bare_split(x, heads):
    B, T, width = x.shape
    return reshape(x, (B, heads, T, width // heads))


def bare_merge(x):
    B, H, T, d = x.shape
    return reshape(x, (B, T, H * d))


def test_pitfall_30_heads_split_by_a_bare_reshape(monkeypatch):
    """Under a causal mask position t depends on all positions up to t, in every head, and on none after it.

    Splitting and merging both by a bare reshape passes half of that: nothing after t is seen, but not all before.
    """
    rng = np.random.default_rng(0)
    layer = nn.MultiHeadAttention(6, heads=3, rng=rng).astype(np.float64)
    x = rng.standard_normal((1, 5, 6))

    def depends():
        """(t, s): does output t change with input s?"""
        before = layer(Tensor(x), mask=masks.causal()).numpy()
        seen = np.zeros((5, 5), bool)
        for s in range(5):
            changed = x.copy()
            changed[:, s] += rng.standard_normal(6)
            seen[:, s] = (layer(Tensor(changed), mask=masks.causal()).numpy() != before).any((0, 2))
        return seen

    future, past = np.triu(np.ones((5, 5), bool), 1), np.tril(np.ones((5, 5), bool))
    np.testing.assert_array_equal(depends(), past)
    monkeypatch.setattr(attention_layer, "split_heads", bare_split)
    assert (depends() & future).any()
    monkeypatch.setattr(attention_layer, "merge_heads", bare_merge)
    assert not (depends() & future).any()
    assert not depends()[past].all()


def test_pitfall_12_gradient_of_a_tied_table_dropped():
    """The head uses the table's values, outside of the graph."""
    rng = np.random.default_rng(0)
    table, ids = Tensor(rng.standard_normal((5, 3)), True), np.array([[0, 2, 2], [4, 0, 1]])

    def loss(head):
        h = embedding(ids, table)
        return (linear(h, head()) ** 2).mean()

    gradcheck_model(lambda: loss(lambda: table), {"table": table})
    with pytest.raises(GradientError):
        gradcheck_model(lambda: loss(table.detach), {"table": table})


def test_transpose_forgotten_shows_only_where_sizes_differ():
    def no_transpose(x, y):
        return x @ y, lambda dz: (dz @ y, x @ dz)

    square = np.eye(3) + np.diag([0.5, 0.2, 0.1])  # symmetric: the fault is not seen
    rng = np.random.default_rng(0)
    with matmul.using(no_transpose):
        gradcheck(lambda x: matmul(x, Tensor(square)), rng.standard_normal((3, 3)))
        with pytest.raises(GradientError, match="is wrong"):
            gradcheck(matmul, rng.standard_normal((3, 3)), rng.standard_normal((3, 3)))
        with pytest.raises(Exception, match="mismatch"):
            gradcheck(matmul, rng.standard_normal((2, 3)), rng.standard_normal((3, 5)))
