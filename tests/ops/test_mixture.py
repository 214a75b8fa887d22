"""Routing and dispatch: choices, weights, the losses of a router, and sorted rows against a loop over tokens."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck
from minitx.ops import balance_loss, combine, dispatch, expert_linear, expert_weights, put_rows, router_z_loss
from minitx.ops.mixture import plan
from minitx.ops.routing import choose

N, E, D, F = 7, 5, 3, 11


def rng(seed=0):
    return np.random.default_rng(seed)


def gradient(f, x, dy=1.0):
    x = Tensor(x, requires_grad=True)
    y = f(x)
    y.backward(np.broadcast_to(dy, y.shape))
    return y.numpy(), x.grad


# ---------------------------------------------------------------------- choosing


def test_choose_takes_the_largest_first_and_of_equals_the_lowest_number():
    scores = np.array([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-1.0, -0.0, 0.0, -2.0]])
    np.testing.assert_array_equal(choose(scores, 3), [[1, 2, 3], [0, 1, 2], [1, 2, 0]])


@pytest.mark.parametrize("k", [0, 6])
def test_choose_between_one_and_all(k):
    with pytest.raises(ValueError, match=f"k = {k}, and there are 5 experts"):
        choose(np.zeros((2, 5)), k)


@given(seed=st.integers(0, 1000), k=st.integers(1, E))
@settings(deadline=None, max_examples=20)
def test_choose_is_a_top_k(seed, k):
    scores = rng(seed).integers(-2, 3, (N, E)).astype(float)
    chosen = choose(scores, k)
    picked = np.take_along_axis(scores, chosen, 1)
    rest = np.sort(scores, 1)[:, ::-1][:, :k]
    np.testing.assert_array_equal(picked, rest)
    assert all(len(set(row)) == k for row in chosen.tolist())


# ---------------------------------------------------------------------- weights


def test_weights_sum_to_one_only_for_several():
    scores = rng().standard_normal((N, E))
    p = ops.softmax(scores).numpy()
    one, two = choose(scores, 1), choose(scores, 2)
    np.testing.assert_allclose(expert_weights(scores, one).numpy(), np.take_along_axis(p, one, 1), rtol=1e-14)
    w = expert_weights(scores, two).numpy()
    picked = np.take_along_axis(p, two, 1)
    np.testing.assert_allclose(w, picked / picked.sum(1, keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(w.sum(1), 1, rtol=1e-15)


def test_a_single_choice_still_teaches_the_router():
    """Renormalised, its weight would be 1 and its gradient 0."""
    _, ds = gradient(lambda s: expert_weights(s, [[2]]), np.log([[1.0, 3.0, 4.0]]), 1.0)
    np.testing.assert_allclose(ds, [[-0.5 / 8, -0.5 * 3 / 8, 0.5 * 0.5]], rtol=1e-14)


def test_experts_that_were_not_chosen_take_no_part_in_renormalised_weights():
    scores = rng().standard_normal((N, E))
    chosen = choose(scores, 2)
    _, ds = gradient(lambda s: expert_weights(s, chosen), scores, rng(1).standard_normal((N, 2)))
    out = np.ones((N, E), bool)
    np.put_along_axis(out, chosen, False, 1)
    assert (ds[out] == 0).all()
    assert (ds[~out] != 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 2])
def test_large_scores(dtype, k):
    scores = np.array([[1e30, 1e30, -1e30], [1000.0, 0.0, -1000.0]], dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        w, ds = gradient(lambda s: expert_weights(s, choose(scores, k)), scores, np.ones(1, dtype))
        gradient(lambda s: balance_loss(s, choose(scores, k)), scores)
    assert w.dtype == ds.dtype == dtype
    np.testing.assert_allclose(w[1], [1, 0][:k], atol=1e-30)
    assert np.isfinite(ds).all()


# ---------------------------------------------------------------------- losses


@pytest.mark.parametrize("k", [1, 2, 5])
def test_balance_loss_is_1_where_uniform_and_E_where_collapsed(k):
    even = (np.arange(20)[:, None] + np.arange(k)) % E
    assert balance_loss(np.zeros((20, E)), even).item() == pytest.approx(1, rel=1e-14)
    assert balance_loss(np.zeros((20, E)), np.tile(np.arange(k), (20, 1))).item() == pytest.approx(1, rel=1e-14)
    scores = np.zeros((20, E))
    scores[:, 3] = 100
    assert balance_loss(scores, np.full((20, 1), 3)).item() == pytest.approx(E, rel=1e-14)


def test_balance_loss_pulls_the_busy_expert_down():
    scores = rng().standard_normal((N, E))
    scores[:, 2] += 3
    _, ds = gradient(lambda s: balance_loss(s, choose(scores, 1)), scores)
    assert (ds[:, 2] > 0).all()
    np.testing.assert_allclose(ds.sum(1), 0, atol=1e-15)


@pytest.mark.parametrize("f", [lambda s: balance_loss(s, np.zeros((0, 2), int)), router_z_loss])
def test_pitfall_35_no_tokens(f):
    value, ds = gradient(f, np.zeros((0, E)))
    assert value == 0
    assert ds.shape == (0, E)


def test_router_z_loss_of_large_scores():
    value, ds = gradient(router_z_loss, np.array([[1000.0, 1000.0 + np.log(3)]]))
    assert value == pytest.approx((1000 + np.log(4)) ** 2, rel=1e-14)
    np.testing.assert_allclose(ds, 2 * (1000 + np.log(4)) * np.array([[0.25, 0.75]]), rtol=1e-13)


@pytest.mark.parametrize("f", [expert_weights, balance_loss])
def test_pitfall_07_choices_out_of_range(f):
    scores = np.zeros((2, E))
    with pytest.raises(IndexError, match=r"chosen\[1, 0\] is 5, but there are 5 experts"):
        f(scores, [[0], [5]])
    with pytest.raises(IndexError, match="is -1"):
        f(scores, [[0], [-1]])
    with pytest.raises(ValueError, match="one row per token"):
        f(scores, [[0]])
    with pytest.raises(TypeError, match="integers"):
        f(scores, [[0.0], [1.0]])


# ---------------------------------------------------------------------- dispatch, experts, combine


def test_plan_by_hand():
    p = plan([[1, 0], [1, 2], [2, 0]], 4)
    np.testing.assert_array_equal(p.token, [0, 2, 0, 1, 1, 2])
    np.testing.assert_array_equal(p.place, [[2, 0], [3, 4], [5, 1]])
    np.testing.assert_array_equal(p.counts, [2, 2, 2, 0])
    with pytest.raises(IndexError, match="is 4, but there are 4 experts"):
        plan([[4]], 4)
    with pytest.raises(ValueError, match="tokens, k"):
        plan([1, 2], 4)


@given(seed=st.integers(0, 1000), n=st.integers(0, 9), k=st.integers(1, E))
@settings(deadline=None, max_examples=30)
def test_plan_is_a_permutation_that_place_undoes(seed, n, k):
    chosen = choose(rng(seed).standard_normal((n, E)), k)
    p = plan(chosen, E)
    np.testing.assert_array_equal(np.sort(p.place, axis=None), np.arange(n * k))
    np.testing.assert_array_equal(p.token[p.place], np.repeat(np.arange(n)[:, None], k, 1))
    np.testing.assert_array_equal(np.repeat(np.arange(E), p.counts)[p.place], chosen)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_whole_is_a_loop_over_tokens(k):
    """y_n = Σ_j w_nj W_(c_nj) x_n, and its gradients, against the same sum written token by token."""
    r = rng(k)
    x, weight, bias, scores = (r.standard_normal(s) for s in [(N, D), (E, F, D), (E, F), (N, E)])
    chosen = choose(scores, k)

    def sorted_rows(x, weight, bias, scores):
        p = plan(chosen, E)
        return combine(expert_linear(dispatch(x, p), weight, p.counts, bias), expert_weights(scores, chosen), p)

    def loop(x, weight, bias, scores):
        w = expert_weights(scores, chosen)
        return ops.stack([
            sum(w[n, j] * (weight[c] @ x[n] + bias[c]) for j, c in enumerate(chosen[n].tolist())) for n in range(N)
        ])

    dy = r.standard_normal((N, F))
    results = []
    for f in (sorted_rows, loop):
        leaves = [Tensor(a, requires_grad=True) for a in (x, weight, bias, scores)]
        y = f(*leaves)
        y.backward(dy)
        results.append([y.numpy(), *(leaf.grad for leaf in leaves)])
    for a, b in zip(*results):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    gradcheck(sorted_rows, x, weight, bias, scores)


def test_an_expert_nobody_chose_gets_gradient_0():
    weight = Tensor(np.full((3, 2, 2), np.nan), requires_grad=True)
    with weight.writing() as w:
        w[[0, 2]] = 1.0
    y = expert_linear(np.ones((4, 2)), weight, [3, 0, 1])
    y.backward(np.ones((4, 2)))
    np.testing.assert_array_equal(weight.grad[1], 0)
    np.testing.assert_array_equal(weight.grad[[0, 2]], [[[3, 3], [3, 3]], [[1, 1], [1, 1]]])


def test_pitfall_06_ten_thousand_rows_for_one_expert():
    """Every contribution counts, each time the same."""
    n = 10_000
    p = plan(np.zeros((n, 1), int), 2)
    for _ in range(3):
        weight = Tensor(np.zeros((2, 1, 1)), requires_grad=True)
        x = Tensor(np.ones((n, 1)), requires_grad=True)
        w = Tensor(np.ones((n, 1)), requires_grad=True)
        y = combine(expert_linear(dispatch(x, p), weight, p.counts), w, p)
        y.backward(np.ones((n, 1)))
        np.testing.assert_array_equal(weight.grad, [[[n]], [[0]]])


@pytest.mark.parametrize("k", [1, 3])
def test_no_tokens(k):
    p = plan(np.zeros((0, k), int), E)
    x, weight = Tensor(np.zeros((0, D)), requires_grad=True), Tensor(np.ones((E, F, D)), requires_grad=True)
    y = combine(expert_linear(dispatch(x, p), weight, p.counts), np.zeros((0, k)), p)
    y.backward(np.zeros((0, F)))
    assert y.shape == (0, F)
    assert x.grad.shape == (0, D)
    np.testing.assert_array_equal(weight.grad, 0)


def test_put_rows_undoes_a_mask():
    x = rng().standard_normal((2, 3, D))
    mask = np.array([[True, False, True], [False, True, True]])
    y = put_rows(x[mask], mask).numpy()
    np.testing.assert_array_equal(y, np.where(mask[..., None], x, 0))
    with pytest.raises(ValueError, match="once for each of the 2 rows"):
        put_rows(np.ones((2, 1)), [True, False, False])
    with pytest.raises(ValueError, match="boolean"):
        put_rows(np.ones((2, 1)), [1, 1])


def test_shapes_are_checked():
    p = plan([[0, 1]], 2)
    with pytest.raises(ValueError, match=r"one weight per choice, \(1, 2\), not \(2, 1\)"):
        combine(np.ones((2, 3)), np.ones((2, 1)), p)
    with pytest.raises(ValueError, match="counts says how many of the 2 rows"):
        expert_linear(np.ones((2, 3)), np.ones((2, 5, 3)), [1, 2])
    with pytest.raises(ValueError, match="counts says how many"):
        expert_linear(np.ones((2, 3)), np.ones((2, 5, 3)), [3, -1])
    with pytest.raises(ValueError, match="goes into weight"):
        expert_linear(np.ones((2, 5)), np.ones((2, 5, 3)), [1, 1])
    with pytest.raises(ValueError, match=r"bias is \(2, 5\)"):
        expert_linear(np.ones((2, 3)), np.ones((2, 5, 3)), [1, 1], np.ones(5))
