"""clip_grad_norm: the factor, no overflow, and refusal with the parameter's name."""

import math

import numpy as np
import pytest

from minitx import Tensor
from minitx.optim import SGD, clip_grad_norm


def parameters(*gradients, dtype=np.float64):
    made = []
    for i, g in enumerate(gradients):
        g = None if g is None else np.array(g, dtype)
        p = Tensor(np.zeros(() if g is None else g.shape, dtype), requires_grad=True)
        p.grad = g
        made.append((f"p{i}", p))
    return made


def gradients(pairs):
    return [p.grad for _, p in pairs]


def test_pitfall_17_one_factor_over_all_parameters():
    pairs = parameters([3.0], 4.0, None)
    assert clip_grad_norm(pairs, 1.0) == 5.0
    np.testing.assert_allclose(np.hstack(gradients(pairs)[:2]), [0.59999988, 0.79999984], rtol=1e-8)
    assert gradients(pairs)[2] is None
    assert all(type(g) is np.ndarray for g in gradients(pairs)[:2])


def test_a_norm_within_the_limit_changes_nothing():
    pairs = parameters([3.0, 4.0])
    before = pairs[0][1].grad
    assert clip_grad_norm(pairs, 5.1) == 5.0
    assert pairs[0][1].grad is before
    assert clip_grad_norm(pairs, math.inf) == 5.0


def test_pitfall_17_huge_but_finite():
    pairs = parameters([2e19, 2e19], dtype=np.float32)
    np.testing.assert_allclose(clip_grad_norm(pairs, 1.0), 2.828427e19, rtol=1e-6)
    np.testing.assert_allclose(pairs[0][1].grad, [math.sqrt(0.5)] * 2, rtol=1e-6)
    assert pairs[0][1].grad.dtype == np.float32
    pairs = parameters([3e300], [-4e300])
    np.testing.assert_allclose(clip_grad_norm(pairs, 1.0), 5e300, rtol=1e-15)
    np.testing.assert_allclose(np.hstack(gradients(pairs)), [0.6, -0.8], rtol=1e-12)


def test_tiny_gradients_do_not_underflow():
    assert clip_grad_norm(parameters([3e-200, 4e-200]), 1.0) == pytest.approx(5e-200, rel=1e-14)


def test_pitfall_17_zeros_and_nothing():
    pairs = parameters([0.0, 0.0], np.zeros((0, 3)), None)
    assert clip_grad_norm(pairs, 1.0) == 0.0
    np.testing.assert_array_equal(pairs[0][1].grad, [0.0, 0.0])
    assert clip_grad_norm([], 1.0) == 0.0


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_pitfall_17_not_finite_is_refused_by_name(bad):
    pairs = parameters([30.0], [1.0, bad], [[40.0]], [bad])
    with pytest.raises(FloatingPointError, match=r"not finite in p1, p3;"):
        clip_grad_norm(pairs, 1.0)
    np.testing.assert_array_equal(np.hstack([pairs[0][1].grad, pairs[2][1].grad[0]]), [30.0, 40.0])


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_pitfall_17_a_negative_limit_is_refused(bad):
    with pytest.raises(ValueError, match="max_norm"):
        clip_grad_norm(parameters([1.0]), bad)


def test_pitfall_17_a_generator_is_taken_and_a_tied_parameter_counts_once():
    (_, p), (_, q) = parameters([3.0], [4.0])
    assert clip_grad_norm((x for x in (p, q, p)), 1.0) == 5.0
    np.testing.assert_allclose([p.grad[0], q.grad[0]], [0.6, 0.8], rtol=1e-6)


def test_an_optimizer_will_do_and_float32_stays():
    pairs = parameters([3.0, 4.0], dtype=np.float32)
    assert clip_grad_norm(SGD(pairs, lr=1.0), np.float64(1.0)) == 5.0
    assert pairs[0][1].grad.dtype == np.float32


def test_whoever_holds_the_old_gradient_keeps_it():
    pairs = parameters([3.0, 4.0])
    held = pairs[0][1].grad
    clip_grad_norm(pairs, 1.0)
    np.testing.assert_array_equal(held, [3.0, 4.0])


def test_pitfall_17_a_norm_beyond_float64_is_refused():
    pairs = parameters([1.5e308, 1.5e308], [1.0], [1.5e308] * 2)
    with pytest.raises(FloatingPointError, match=r"norm is above 1.8e308, by the gradient of p0, p2; none was changed"):
        clip_grad_norm(pairs, 1.0)
    np.testing.assert_array_equal(pairs[0][1].grad, [1.5e308] * 2)


def test_pitfall_17_a_factor_below_float32_loses_nothing():
    n = 1_000_000
    pairs = parameters(np.full(n, 3e38), dtype=np.float32)  # the factor is 3e-42, which float32 rounds to two digits
    np.testing.assert_allclose(clip_grad_norm(pairs, 1.0), 3e41, rtol=1e-6)
    np.testing.assert_allclose(pairs[0][1].grad, 1e-3, rtol=1e-6)
    pairs = parameters([1e308, 1e308])
    clip_grad_norm(pairs, 1e-10)
    np.testing.assert_allclose(pairs[0][1].grad, [1e-10 / math.sqrt(2)] * 2, rtol=1e-14)


def test_gradients_that_nobody_else_holds_are_scaled_in_place():
    pytest.importorskip("numba", reason="numba is not installed")
    pairs = parameters(np.full((50, 40), 9.0), np.full(3, 9.0), np.full((7, 5), 9.0), dtype=np.float32)
    held = pairs[1][1].grad
    before = [g.ctypes.data for g in gradients(pairs)]
    clip_grad_norm(pairs, 1.0)
    assert [g.ctypes.data == at for g, at in zip(gradients(pairs), before)] == [True, False, True]
    np.testing.assert_array_equal(held, 9.0)
