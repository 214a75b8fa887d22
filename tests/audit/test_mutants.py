"""Wrong backward passes are rejected: all those that a machine makes, and those that people make.

`minitx check --mutants` prints the score by op.
"""
from __future__ import annotations

import forward_faults  # noqa: F401  (adds to FAULTS)
import numpy as np
import pytest
from faults import CORNERS, DIFFERENCES, FAULTS, SMALLER_OPS

from minitx import Tensor, masks, nn, reference
from minitx.audit.cases import CASES
from minitx.audit.equivalent import EQUIVALENT
from minitx.audit.mutants import Mutant, mutants
from minitx.audit.score import all_ops, score, scores, survives
from minitx.audit.verdicts import passes_corners, passes_gradient_check, passes_smaller_ops, passes_usual_check
from minitx.gradcheck import GradientError, gradcheck, gradcheck_model
from minitx.op import registry
from minitx.ops import embedding, linear, matmul, merge_heads, softmax, split_heads

SAMPLE = ["softmax", "layer_norm", "attention_weights", "erf", "logsumexp", "cross_entropy", "combine"]


@pytest.fixture(scope="module")
def made():
    return [m for op in all_ops() for m in mutants(op)]


@pytest.mark.parametrize("name", SAMPLE)
def test_every_mutant_of_some_ops_is_caught_or_equivalent(name):
    op = registry[name]
    alive = {str(m) for m in mutants(op) if survives(m)}
    assert alive == {m for m in EQUIVALENT if m.startswith(f"{name}: ")}
    assert passes_gradient_check(op, op.definition)  # else everything would be caught
    assert passes_corners(op, op.definition)
    assert passes_smaller_ops(op, op.definition)


@pytest.mark.slow
def test_every_mutant_is_caught_or_equivalent(made):
    found = list(scores())
    assert [m for s in found for m in s.missed] == [], "a test is missing, or a reason in EQUIVALENT"
    equivalent = [m for s in found for m in s.equivalent]
    assert set(EQUIVALENT) - set(equivalent) == set(), "these are caught, or no longer made"
    assert sum(s.made for s in found) == sum(s.caught for s in found) + len(equivalent) == len(made)


@pytest.mark.slow
def test_definitions_themselves_pass():
    for op in all_ops():
        assert passes_gradient_check(op, op.definition), op.name
        assert passes_corners(op, op.definition), op.name
        assert passes_smaller_ops(op, op.definition), op.name


def test_there_are_enough(made):
    assert len(made) > 1000
    assert len({m.name for m in made}) > 60
    assert len({str(m) for m in made}) > 0.95 * len(made)  # (the same words at two places are rare)


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "attention_weights"])
def test_the_usual_check_accepts_wrong_softmax_and_layer_norm(name):
    """What `y.sum()` at gain 1 and bias 0 is worth."""
    assert passes_usual_check(registry[name], registry[name].definition)
    assert len(score(registry[name]).usual) >= 3


# ---------------------------------------------------------------------- what the mutator can be given


def rule_of_a_learner(x, axis=-1):
    """A plain function, as an exercise has it."""
    e = np.exp(x)
    y = e / e.sum(axis, keepdims=True)
    return y, lambda dy: weighted(y, dy, axis)


def weighted(y, dy, axis):
    return y * (dy - (dy * y).sum(axis, keepdims=True))


def test_mutants_of_a_plain_function():
    made = mutants(rule_of_a_learner)
    assert all(isinstance(m, Mutant) and m.name == "rule_of_a_learner" for m in made)
    assert len(made) > 10  # those of `weighted`, which only backward calls, among them
    _, edit, rule = made[0]
    assert "  →  " in edit
    x = np.random.default_rng(0).standard_normal((3, 5))
    np.testing.assert_array_equal(rule(x)[0], rule_of_a_learner(x)[0])  # the forward pass is kept
    assert passes_gradient_check(softmax, rule_of_a_learner)
    assert not any(passes_gradient_check(softmax, m.rule) for m in made)


def test_what_has_no_source_is_refused():
    with pytest.raises(TypeError, match="an op or a plain function"):
        mutants(np.exp)
    with pytest.raises(ValueError, match="no function at the top level of a file"):
        mutants(lambda x: (x, lambda dy: dy))


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


def bare_split(x, heads=1):
    B, T, width = x.shape
    return x.reshape(B, heads, T, width // heads), lambda dy: dy.reshape(x.shape)


def bare_merge(x):
    B, H, T, d = x.shape
    return x.reshape(B, T, H * d), lambda dy: dy.reshape(x.shape)


def test_pitfall_30_heads_split_by_a_bare_reshape():
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
    with reference(), split_heads.using(bare_split):
        assert (depends() & future).any()
        with merge_heads.using(bare_merge):
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
