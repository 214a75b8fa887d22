"""One call for all parameters: AdamW, Adam and clipping by the kernel against their definitions."""
import copy
import math
import pickle

import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from equal import on_threads, tolerance

import minitx
from minitx import Tensor
from minitx.kernels import optimizer
from minitx.nn.module import Parameter
from minitx.optim import Adam, AdamW, clip_grad_norm

SHAPES = [(3, 5), (7,), (), (100, 333), (8192,), (0, 3), (8193,)]
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def parameters(dtype, seed=0):
    rng = np.random.default_rng(seed)
    return [Parameter(np.asarray(rng.standard_normal(shape), dtype), decay=len(shape) > 1) for shape in SHAPES]


def give_gradients(ps, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    for p in ps:
        p.grad = np.asarray(scale * rng.standard_normal(p.shape), p.dtype)


def trained(kind, dtype, steps=5, skip=None, groups=False, **options):
    """Parameters and state after some steps, with gradients that are the same for every dtype (up to rounding)."""
    ps = parameters(dtype)
    given = [{"params": ps[:3], "lr": 3e-2, "weight_decay": 0.3}, {"params": ps[3:]}] if groups else ps
    optimizer = kind(given, lr=1e-2, **options)
    for step in range(steps):
        give_gradients(ps, 100 + step)
        if skip is not None and step % 2:
            ps[skip].grad = None
        clip_grad_norm(ps, 1.0)
        optimizer.step()
    return [p.numpy() for p in ps], optimizer.state_dict()["state"]


@pytest.fixture
def calls(monkeypatch):
    """How often the kernel's adam has done something."""
    seen = []
    adam = optimizer.adam
    monkeypatch.setattr(optimizer, "adam", lambda *a: seen.append(adam(*a)) or seen[-1])
    return seen


@DTYPES
@pytest.mark.parametrize("kind", [Adam, AdamW])
@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.0}, {"weight_decay": 0.5, "betas": (0.5, 0.7), "eps": 0.1}])
@pytest.mark.parametrize(("skip", "groups"), [(None, False), (3, False), (None, True)])
def test_it_is_the_definition(dtype, kind, options, skip, groups, calls):
    values, state = trained(kind, dtype, skip=skip, groups=groups, **options)
    assert calls
    assert all(calls)
    with minitx.reference():
        expected, expected_state = trained(kind, np.float64, skip=skip, groups=groups, **options)
    limit = tolerance(dtype, 25)  # five steps of a few operations each
    for got, wanted in zip(values, expected):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, wanted, rtol=limit, atol=limit)
    for name, entry in expected_state.items():
        assert state[name]["step"] == entry["step"]
        for key in ("m", "v"):
            assert state[name][key].dtype == dtype
            np.testing.assert_allclose(state[name][key], entry[key], rtol=limit, atol=limit)


def test_bits_do_not_depend_on_threads():
    def run():
        values, state = trained(AdamW, np.float32)
        return [*values, *(entry["v"] for entry in state.values())]

    on_threads(run)


def test_reference_and_a_rule_of_ones_own_run_the_definition(calls):
    class Mine(AdamW):
        def update(self, value, g, state, group, decay):
            value -= 1

    p = Parameter(np.ones((2, 3)))
    p.grad = np.ones((2, 3))
    Mine([p], lr=0.1).step()
    np.testing.assert_array_equal(p.numpy(), np.zeros((2, 3)))
    with minitx.reference():
        AdamW([p], lr=0.1).step()
    assert not calls


@pytest.mark.parametrize("order", ["F", "C"])
def test_other_layouts(order):
    """Fortran's order is as good, as long as the four arrays of a parameter agree; else the definition does it."""
    results = []
    for g_order in "FC":
        p = Parameter(np.asarray(np.arange(6.0).reshape(2, 3), order=order))
        adam = AdamW([p], lr=0.1)
        for _ in range(3):
            p.grad = np.asarray(np.arange(6.0).reshape(2, 3) - 2, order=g_order)
            assert clip_grad_norm(adam, 1.0) == pytest.approx(math.sqrt(19))
            adam.step()
        results.append(p.numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-14)


def test_lists_that_do_not_fit_are_declined():
    a, b = np.ones((2, 3)), np.ones((2, 3), np.float32)
    assert optimizer.sum_of_squares([a, a]) == 12
    for arrays in ([a, b], [a[:, ::2]], [a, a[:, ::2]], [a[::-1]], [a.astype(int)], [a.astype(np.float16)]):
        assert optimizer.sum_of_squares(arrays) == -1
    for g, out in ((a, a[:1].copy()), (a, b), (a, np.asfortranarray(a)), (a, np.ones(7))):
        assert not optimizer.scale([g], 2.0, [out])
    np.testing.assert_array_equal(a, np.ones((2, 3)))


def test_arrays_of_every_origin_fit():
    a = np.arange(6.0).reshape(2, 3)
    for same in (copy.deepcopy(a), pickle.loads(pickle.dumps(a)), np.frombuffer(a.tobytes(), "<f8").reshape(2, 3)):
        assert optimizer.sum_of_squares([a, same]) == 110
    assert optimizer.sum_of_squares([a, a.astype(">f8")]) == -1


def test_who_read_a_value_keeps_it_and_old_graphs_refuse():
    p = Parameter(np.ones(3))
    adam = AdamW([p], lr=0.1)
    before, loss = p.data, (p * p).sum()
    p.grad = np.ones(3)
    adam.step()
    np.testing.assert_array_equal(before, np.ones(3))
    assert (p.numpy() < 1).all()
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward()
    with pytest.raises(ValueError, match="read-only"):
        p.data[0] = 5


def test_memory_is_written_to_in_place_when_nobody_else_holds_it():
    p = Parameter(np.ones(3))
    adam = AdamW([p], lr=0.1)
    p.grad = np.ones(3)
    adam.step()
    where = p._data.ctypes.data
    adam.step()
    assert p._data.ctypes.data == where


# ---------------------------------------------------------------------- clipping


@DTYPES
def test_clipping_is_the_definition(dtype):
    ps = parameters(dtype)
    for max_norm, scale in ((1.0, 1.0), (1e9, 1.0), (math.inf, 1.0), (0.0, 1.0), (1e-3, 1e-12), (1.0, 1e15)):
        results = []
        for context in (minitx.reference(), minitx.settings.changed(kernels=True)):
            give_gradients(ps, 7, scale=scale)
            with context:
                results.append((clip_grad_norm(ps, max_norm), [p.grad for p in ps]))
        (norm, gradients), (got_norm, got) = results
        assert got_norm == pytest.approx(norm, rel=1e-14)
        for g, wanted in zip(got, gradients):
            assert g.dtype == dtype
            np.testing.assert_allclose(g, wanted, rtol=1e-6 if dtype == np.float32 else 1e-14)


def test_who_holds_a_gradient_keeps_what_it_was():
    p, q, r = Tensor(np.zeros(3), requires_grad=True), Parameter(np.zeros(3)), Parameter(np.zeros(3))
    mine, base = np.full(3, 5.0), np.full((2, 3), 5.0)
    p.grad, q.grad, r.grad = mine, base[0], np.full(3, 5.0)
    view = r.grad[:2]
    clip_grad_norm([p, q, r], 1.0)
    for kept in (mine, base, view):
        assert (kept == 5).all()
    for t in (p, q, r):
        np.testing.assert_allclose(t.grad, 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_and_nothing_changed(bad):
    ps = [Parameter(np.zeros(3)) for _ in range(3)]
    for p in ps:
        p.grad = np.full(3, 2.0)
    ps[1].grad = np.array([1.0, bad, 1.0])
    with pytest.raises(FloatingPointError, match=r"not finite in b; no gradient was changed"):
        clip_grad_norm(dict(zip("abc", ps)), 1.0)
    assert (ps[0].grad == 2).all()


@DTYPES
def test_moments_that_fade_become_0(dtype, calls):
    """Not subnormal, which would make every further step slow; and what is not a number stays that."""
    p = Parameter(np.zeros(23, dtype))
    optimizer = AdamW([p], lr=1e-3, betas=(0.5, 0.25))
    p.grad = np.ones(23, dtype)
    optimizer.step()
    p.grad = np.zeros(23, dtype)
    m, v = (optimizer.state["0"][name] for name in "mv")
    digits = -np.finfo(dtype).minexp
    for step in range(1, digits + 3):
        optimizer.step()
        # 2^-(step + 1) and 3/4 4^-step, exactly, as long as these are normal numbers
        expected = 2.0 ** -(step + 1) if step < digits else 0, 0.75 * 4.0**-step if 2 * step < digits else 0
        np.testing.assert_array_equal(np.stack([m, v]), np.multiply.outer(expected, np.ones(23, dtype)))
    m[0] = np.nan
    optimizer.step()
    assert np.isnan(m[0])
    assert (m[1:] == 0).all()
    assert all(calls)


@DTYPES
@pytest.mark.parametrize("small", [False, True])
def test_tiny_moments_count_where_eps_is_tiny(dtype, small):
    """v of such gradients is subnormal; as 0 it would leave m / eps, a step of 3e9."""
    g, eps = (1e-20, 1e-30) if dtype == np.float32 else (1e-155, 1e-300)
    values = []
    for kernels in (True, False):
        p = Parameter(np.ones(23, dtype))
        optimizer = AdamW([p], lr=0.1, eps=eps if small else 1e-8, weight_decay=0.0)
        for _ in range(3):
            p.grad = np.full(23, g, dtype)
            if kernels:
                optimizer.step()
            else:
                with minitx.reference():
                    optimizer.step()
        values.append(p.numpy())
    np.testing.assert_allclose(*values, rtol=1e-4)
    assert (np.abs(values[0] - 0.7).max() < 0.01) == small
