"""Filters: from logits to logits, each by hand and on random vectors."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.generation import filters
from minitx.generation.sampling import NothingLeft, Sampling, draw, filtered

NOTHING = np.zeros(0, np.int64)
INF = np.inf


def left(step, p, ids=NOTHING):
    """What a filter leaves of a distribution: (ids, renormalised probabilities)."""
    z = step(np.log(np.array(p, np.float64)), ids)
    kept = np.flatnonzero(z > -INF)
    q = np.exp(z[kept] - z[kept].max())
    return list(kept), q / q.sum()


def say(how, logits):
    """What one row says; raises what it fails with."""
    (said,) = how.choose(np.array([logits]), [NOTHING], [np.random.default_rng(0)])
    if isinstance(said, Exception):
        raise said
    return said


def some_logits(V, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(0, 3, V).astype(dtype)


# ---------------------------------------------------------------------- top-p


@pytest.mark.parametrize(
    ("p", "top_p", "kept", "q"),
    [
        ([0.5, 0.3, 0.15, 0.05], 0.6, [0, 1], [0.625, 0.375]),
        ([0.5, 0.41, 0.09], 0.9, [0, 1], [0.5 / 0.91, 0.41 / 0.91]),
        ([0.4, 0.3, 0.2, 0.1], 0.8, [0, 1, 2], [4 / 9, 3 / 9, 2 / 9]),
        ([0.5, 0.3, 0.15, 0.05], 1e-12, [0], [1]),
        ([0.5, 0.3, 0.15, 0.05], 1.0, [0, 1, 2, 3], [0.5, 0.3, 0.15, 0.05]),
    ],
)
def test_pitfall_09_top_p_keeps_the_one_that_crosses(p, top_p, kept, q):
    ids, got = left(filters.top_p(top_p), p)
    assert ids == kept
    np.testing.assert_allclose(got, q, rtol=1e-12)


def test_pitfall_09_top_p_of_a_permuted_input_keeps_the_same_tokens():
    rng = np.random.default_rng(3)
    z = some_logits(4096)
    for p in (0.1, 0.5, 0.9, 0.999):
        kept = filters.top_p(p)(z, NOTHING) > -INF
        order = rng.permutation(len(z))
        np.testing.assert_array_equal(filters.top_p(p)(z[order], NOTHING) > -INF, kept[order])


def test_pitfall_09_top_p_of_float32_keeps_one():
    z = some_logits(4096, dtype=np.float32)
    kept = filtered(z, NOTHING, [filters.top_p(1e-8)])
    np.testing.assert_array_equal(np.flatnonzero(kept > -INF), [z.argmax()])


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=30), st.floats(1e-6, 1, exclude_max=True))
def test_top_p_keeps_as_few_as_reach_p(z, p):
    z = np.array(z)
    kept = np.flatnonzero(filters.top_p(p)(z, NOTHING) > -INF)
    q = np.exp(z - z.max())
    q /= q.sum()
    assert q[kept].sum() >= p - 1e-9
    assert q[kept].sum() - q[kept].min() <= p + 1e-9  # without the least of them it is not reached
    assert q[kept].min() >= np.delete(q, kept).max(initial=0)


# ---------------------------------------------------------------------- temperature


def test_pitfall_36_temperature():
    z = np.array([1.0, 3.0, 3.0, 2.0])
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(filters.temperature(0)(z, NOTHING), [-INF, 3, -INF, -INF])  # the lowest of equals
        tiny = filters.temperature(1e-30)(z, NOTHING)
        assert tiny.argmax() == 1
        assert np.isfinite(tiny.max())
        with np.errstate(under="ignore"):
            assert {int(draw(tiny, np.random.default_rng(i).random())) for i in range(40)} == {1, 2}
    z = some_logits(97)
    for t in (1e-320, 1e-30, 1e-3):
        assert draw(filters.temperature(t)(z, NOTHING), 0.7) == z.argmax()


def test_temperature_is_the_power_of_the_probabilities():
    _, q = left(filters.temperature(0.5), [0.1, 0.6, 0.3])
    np.testing.assert_allclose(q, np.array([1, 36, 9]) / 46)


# ---------------------------------------------------------------------- top-k, min-p


def test_pitfall_36_top_k():
    z = some_logits(13)
    np.testing.assert_array_equal(filters.top_k(14)(z, NOTHING), z)
    np.testing.assert_array_equal(filters.top_k(13)(z, NOTHING), z)
    np.testing.assert_array_equal(np.flatnonzero(filters.top_k(1)(z, NOTHING) > -INF), [z.argmax()])
    kept = filters.top_k(5)(z, NOTHING) > -INF
    assert kept.sum() == 5
    assert z[kept].min() > z[~kept].max()


def test_top_k_of_equal_ones_keeps_the_lower_ids():
    assert left(filters.top_k(2), [0.2, 0.2, 0.2, 0.4])[0] == [0, 3]


@pytest.mark.parametrize(("p", "kept"), [(0, 4), (0.1, 4), (0.3, 3), (0.5, 2), (1, 1)])
def test_min_p(p, kept):
    assert left(filters.min_p(p), [0.5, 0.27, 0.16, 0.07])[0] == list(range(kept))


# ---------------------------------------------------------------------- constraints


def test_repetition_penalty_by_hand():
    z = filters.repetition_penalty(2.0)(np.array([4.0, -4.0, 3.0, -3.0, 0.0]), np.array([0, 1, 1, 4]))
    np.testing.assert_array_equal(z, [2.0, -8.0, 3.0, -3.0, 0.0])


def test_banned():
    np.testing.assert_array_equal(filters.banned([2, 0])(np.ones(4), NOTHING), [-INF, 1, -INF, 1])
    np.testing.assert_array_equal(filters.banned([])(np.ones(2), NOTHING), [1, 1])


def test_the_order_is_constraints_temperature_top_k_top_p_min_p():
    """[.5, .3, .15, .05] at temperature 1/2 is [.685, .247, .062, .006]; only in this order do two ids remain."""
    names = [step.__name__ for step in Sampling(
        temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, repetition_penalty=1.5, banned=[7], filters=[lambda z, ids: z]
    ).steps]  # fmt: skip
    assert names == ["banned", "repetition_penalty", "<lambda>", "temperature", "top_k", "top_p", "min_p"]
    z = filtered(np.log([0.5, 0.3, 0.15, 0.05]), NOTHING, Sampling(temperature=0.5, top_k=3, top_p=0.9).steps)
    np.testing.assert_array_equal(np.flatnonzero(z > -INF), [0, 1])


def test_a_filter_of_ones_own_is_three_lines():
    def never_twice_in_a_row(logits, ids):
        logits[ids[-1]] = -np.inf
        return logits

    z = np.array([1.0, 2.0, 3.0])
    how = Sampling(filters=[never_twice_in_a_row])
    assert how.choose(z[None], [np.array([0, 2])], [None]) == [1]
    np.testing.assert_array_equal(z, [1, 2, 3])  # it wrote into a copy


# ---------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -0.1}, "temperature is a number at least 0"),
        ({"temperature": np.nan}, "temperature"),
        ({"temperature": np.inf}, "temperature"),
        ({"top_k": 0}, "top_k is a whole number, at least 1, not 0"),
        ({"top_k": -3}, "top_k"),
        ({"top_k": 2.0}, "top_k"),
        ({"top_p": 0.0}, "top_p is a number above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": -0.1}, "min_p is a number between 0 and 1"),
        ({"min_p": 1.5}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty is a number above 0"),
        ({"banned": [-1]}, "a banned id"),
        ({"seed": -1}, "seed"),
        ({"temperature": True}, "temperature"),
        ({"temperature": "1"}, "temperature"),
    ],
)
def test_settings_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        Sampling(**options)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([0.0, np.nan, 1.0], r"not numbers \(NaN\)"),
        ([-INF, -INF, -INF], "all -inf"),
        ([0.0, INF, 1.0], "infinite"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"temperature": 1.0}, {"top_k": 1}])
def test_pitfall_36_logits_that_are_none(logits, message, options):
    with pytest.raises(ValueError, match=message):
        say(Sampling(**options), logits)


def test_every_id_is_banned():
    with pytest.raises(NothingLeft, match="every one of the 3 is banned"):
        say(Sampling(banned=[0, 1, 2]), np.zeros(3))
    with pytest.raises(ValueError, match="banned id 3 is outside the vocabulary of 3"):
        say(Sampling(banned=[3]), np.zeros(3))


@pytest.mark.parametrize("wrong", [lambda z, ids: None, lambda z, ids: z[:2]])
def test_a_filter_that_returns_no_logits(wrong):
    with pytest.raises(ValueError, match=r"a filter returns logits \(3,\), and <lambda> returned"):
        say(Sampling(filters=[wrong]), np.zeros(3))


def test_rows_side_by_side_are_as_alone():
    """Bit for bit, also those beside a row that fails."""
    rng = np.random.default_rng(5)
    z = rng.normal(0, 3, (7, 65)).astype(np.float32)
    z[3, 5] = np.nan
    for steps in (Sampling(temperature=0.7, top_k=20, top_p=0.9, min_p=0.01).boldness, [filters.temperature(0)]):
        for step in steps:
            sound = np.delete(z, 3, axis=0)
            np.testing.assert_array_equal(step(sound, NOTHING), [step(row, NOTHING) for row in sound])
    how = Sampling(temperature=0.7, top_k=20, top_p=0.9, seed=3)
    said = how.choose(z, [NOTHING] * 7, [how.generator(n) for n in range(7)])
    assert "NaN" in str(said.pop(3))
    assert said == [how.choose(z[n : n + 1], [NOTHING], [how.generator(n)])[0] for n in (0, 1, 2, 4, 5, 6)]
