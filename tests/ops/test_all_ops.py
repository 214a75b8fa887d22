"""Every op at every case: four witnesses (differences, smaller ops, PyTorch, kernel), and the manners of a rule."""
from __future__ import annotations

import numpy as np
import pytest

import minitx
from minitx.audit.cases import CASES
from minitx.audit.op_columns import OpColumns
from minitx.gradcheck import gradcheck
from minitx.op import Composite, registry
from minitx.pullback import fit
from minitx.tensor import Tensor, wrap

FIRST = list({case.op: case for case in reversed(CASES)}.values())  # one case an op


def cases(which=CASES, wanted=lambda case: True):
    return pytest.mark.parametrize("case", [pytest.param(c, id=str(c)) for c in which if wanted(c)])


def pull(f, case, make=lambda a: Tensor(a, requires_grad=True), seed=1):
    """Values of f at the case's arguments, cotangents for them, and the gradients of all that has one."""
    leaves = []

    def leaf(a):
        leaves.append(make(a))
        return leaves[-1]

    args, options = case.lift(case.draw(), leaf)
    y = f(*args, **options)
    ys = y if isinstance(y, tuple) else (y,)
    rng = np.random.default_rng(seed)
    dys = [rng.standard_normal(y.shape).astype(y.dtype) for y in ys]
    for y, dy in zip(ys, dys):
        if y.requires_grad:  # of a composite's parts each has inputs of its own, which may all be frozen
            y.backward(dy, retain_graph=True)
    return [y.numpy() for y in ys], dys, leaves


def agree(a, b, tolerance):
    """By norm, as everywhere: max|a - b| <= tolerance * max|b|."""
    assert a.shape == b.shape
    same = a == b  # infinities
    assert np.all(same | np.isfinite(a))
    size = np.abs(np.where(np.isfinite(b), b, 0)).max(initial=1e-3)
    assert np.abs(np.where(same, 0, a - b)).max(initial=0) <= tolerance * size


def test_every_op_has_cases_for_everything_that_it_differentiates():
    covered = {name: set() for name in registry}
    for case in CASES:
        op, (args, options) = case.implementation, case.draw()
        names = list(op.signature.bind(*args, **options).arguments)
        by_position = [op.wrt[s] for a, s in zip(args, op.by_position) if s >= 0 and isinstance(a, np.ndarray)]
        covered[case.op] |= set(by_position) | {n for n in options if n in op.slot} & set(names)
    missing = {name: set(registry[name].wrt) - seen for name, seen in covered.items() if set(registry[name].wrt) - seen}
    assert not missing


def test_labels_tell_cases_apart():
    assert len({str(case) for case in CASES}) == len(CASES)


# ---------------------------------------------------------------------- four witnesses


@cases()
def test_rule_against_differences(case):
    measure = OpColumns(case).differences()
    assert measure.error <= 1e-7, measure.note
    assert not measure.note  # a kink


@cases(FIRST)
def test_tape_against_differences(case):
    args, options = case.draw()
    op = case.implementation

    def through_the_tape(*args, **options):
        return op(*args, **options)

    gradcheck(through_the_tape, *args, **options, tolerance=1e-7)


@cases(wanted=lambda case: not isinstance(case.implementation, Composite))
def test_tape_against_rule(case):
    """What the engine does around a rule changes nothing."""
    with minitx.reference():
        values, dys, leaves = pull(case.implementation, case)
    op, (args, options) = case.implementation, case.draw()
    value, pullback = op.rule(*(op._spread(args)[0] if op.variadic else args), **options)
    grads = [g for g in pullback(tuple(dys) if isinstance(value, tuple) else dys[0]) if g is not None]
    for a, b in zip(values, value if isinstance(value, tuple) else (value,)):
        agree(a, np.asarray(b), 1e-14)
    arrays = []
    case.lift((args, options), arrays.append)
    if len(grads) == len(leaves):  # (a number beside an array gets a gradient from the rule, and none on the tape)
        for leaf, g in zip(leaves, grads):
            agree(leaf.grad, fit(op, g, leaf.shape) if op.broadcasts else np.asarray(g), 1e-12)


@cases(wanted=lambda case: case.composition)
def test_composition_of_smaller_ops(case):
    measure = OpColumns(case).smaller()
    assert measure.passed, measure


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5)])
@cases(wanted=lambda case: case.torch)
def test_pytorch(case, dtype, tolerance):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    measure = OpColumns(case).pytorch(torch, dtype, tolerance)
    assert measure.passed, measure


@cases(wanted=lambda case: case.implementation.kernel)
def test_kernel_against_definition(case):
    measure = OpColumns(case).kernel()
    assert measure.passed is not False, measure  # (it may leave a case to the definition)


# ---------------------------------------------------------------------- manners


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@cases()
def test_keeps_the_dtype(case, dtype):
    values, _, leaves = pull(case.implementation, case, lambda a: Tensor(a.astype(dtype), requires_grad=True))
    assert {v.dtype for v in values} == {np.dtype(dtype)}
    assert {leaf.grad.dtype for leaf in leaves} == {np.dtype(dtype)}
    assert all(type(leaf.grad) is np.ndarray and leaf.grad.shape == leaf.shape for leaf in leaves)


def strided(a):
    """Every other element of a larger array along each axis."""
    wide = np.full([2 * n for n in a.shape], np.nan)
    view = wide[(*[slice(None, None, 2)] * a.ndim, ...)]
    view[...] = a
    return view


def reversed_(a):
    back = (*[slice(None, None, -1)] * a.ndim, ...)
    return a[back].copy()[back]


LAYOUTS = {
    "Fortran": lambda a: np.array(a, order="F"),
    "reversed": reversed_,
    "strided": strided,
    "read-only": lambda a: np.broadcast_to(a, a.shape),
}


@cases()
def test_pitfall_39_layout_of_inputs(case):
    """Values and gradients are those of the contiguous copy, and the inputs are left alone."""
    expected, _, exact = pull(case.implementation, case)
    for layout in LAYOUTS.values():
        given = []

        def make(a, layout=layout, given=given):
            view = layout(a)
            given.append((view, a.copy()))
            leaf = wrap(view.view())  # no copy: the op gets this very layout
            leaf.requires_grad = True
            return leaf

        values, _, leaves = pull(case.implementation, case, make)
        for a, b in zip(values, expected, strict=True):
            agree(a, b, 1e-13)
        for a, b in zip(leaves, exact, strict=True):
            agree(a.grad, b.grad, 1e-13)
        for view, before in given:
            np.testing.assert_array_equal(view, before)


@cases(wanted=lambda case: not isinstance(case.implementation, Composite))
def test_cotangent_in_any_layout(case):
    """A cotangent often arrives as a view: of a transpose, or of one number repeated by a sum's backward."""
    op, (args, options) = case.implementation, case.draw()
    args = op._spread(args)[0] if op.variadic else args
    value, pullback = op.rule(*args, **options)
    if isinstance(value, tuple):
        pytest.skip("several outputs")
    dy = np.random.default_rng(1).standard_normal(np.shape(value))
    for layout in LAYOUTS.values():
        view = layout(dy)
        for a, b in zip(pullback(view), pullback(dy)):
            if b is not None:
                agree(np.asarray(a), np.asarray(b), 1e-13)
        np.testing.assert_array_equal(view, dy)


@cases()
def test_pitfall_02_gradients_share_no_memory(case):
    _, dys, leaves = pull(case.implementation, case)
    for i, leaf in enumerate(leaves):
        assert leaf.grad.flags.writeable
        others = [t.data for t in leaves] + [t.grad for t in leaves[:i]] + dys
        assert not any(np.shares_memory(leaf.grad, other) for other in others)


@cases()
def test_arrays_that_are_not_tensors_stay_as_they_are(case):
    """An op on plain arrays neither keeps, nor freezes, nor changes them."""
    arrays = []
    args, options = case.draw()
    case.lift((args, options), arrays.append)
    before = [a.copy() for a in arrays]
    y = case.implementation(*args, **options)
    for a, b in zip(arrays, before):
        np.testing.assert_array_equal(a, b)
        assert a.flags.writeable
        assert not any(np.shares_memory(a, t.data) for t in (y if isinstance(y, tuple) else (y,)))


@cases()
def test_no_warning_even_where_all_raise(case):
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        pull(case.implementation, case)


@cases()
def test_backward_needs_only_what_is_wanted(case):
    """Each gradient alone is what it is together with the others."""
    _, _, together = pull(case.implementation, case)
    for i in range(len(together)):
        count = iter(range(len(together)))
        _, _, alone = pull(case.implementation, case, lambda a, i=i, c=count: Tensor(a, requires_grad=next(c) == i))
        agree(alone[i].grad, together[i].grad, 1e-14)
        assert all(leaf.grad is None for j, leaf in enumerate(alone) if j != i)
