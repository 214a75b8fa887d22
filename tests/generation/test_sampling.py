"""Drawing: the frequencies are those of the filtered distribution, and what was filtered out never comes."""
import numpy as np
import pytest

from minitx.generation.sampling import Sampling, draw, filtered

NOTHING = np.zeros(0, np.int64)
V = 11
N = 20_000


def logits():
    return np.random.default_rng(5).normal(0, 1, V).astype(np.float32)


# The chance that a right implementation exceeds it is 1e-4; the seeds are fixed.
CHI_SQUARE = {1: 15.1, 2: 18.4, 3: 21.1, 4: 23.5, 5: 25.7, 6: 27.9, 7: 29.9, 8: 31.8, 9: 33.7, 10: 35.6}


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 4},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"temperature": 0.7, "top_k": 8, "top_p": 0.95, "min_p": 0.02},
        {"temperature": 1.0, "banned": [0, 3]},
        {"temperature": 2.0, "repetition_penalty": 1.7},
    ],
    ids=str,
)
def test_frequencies(options):
    how = Sampling(**options)
    ids = np.array([2, 7])
    z = filtered(logits(), ids, how.steps)
    p = np.exp(z - z.max())
    p /= p.sum()
    rng = how.generator(0, 0)
    said = how.choose(np.tile(logits(), (N, 1)), [ids] * N, [rng] * N)
    counts = np.bincount(said, minlength=V)
    possible = p > 0
    assert counts[~possible].sum() == 0
    expected = N * p[possible]
    assert expected.min() > 5
    assert ((counts[possible] - expected) ** 2 / expected).sum() < CHI_SQUARE[possible.sum() - 1]


def test_draw_falls_where_the_uniform_number_says():
    z = np.log([0.3, 0.0, 0.5, 0.2], where=[True, False, True, True], out=np.full(4, -np.inf))
    cuts = {0.0: 2, 0.49: 2, 0.51: 0, 0.79: 0, 0.81: 3, 1 - 2**-53: 3}  # the likeliest first: 2, 0, 3
    for u, i in cuts.items():
        assert draw(z, u) == i
    np.testing.assert_array_equal(draw(np.tile(z, (len(cuts), 1)), [*cuts]), [*cuts.values()])


def test_what_is_next_to_impossible_does_not_come_instead_of_the_impossible():
    z = np.array([-np.inf, 0.0, -800.0, -np.inf])  # exp(-800) is 0
    assert {int(draw(z, u)) for u in (0.0, 0.5, 1 - 2**-53)} == {1}


def test_seeded_runs_repeat_and_rows_differ():
    def run(seed, *number):
        how = Sampling(temperature=1.0, seed=seed)
        rng = how.generator(*number)
        return tuple(how.choose(logits()[None], [NOTHING], [rng])[0] for _ in range(20))

    assert run(7, 0, 0) == run(7, 0, 0)
    assert len({run(seed, i, k) for seed in (7, 8) for i in range(3) for k in range(3)}) == 18


def test_greedy_takes_the_lowest_of_equals_and_draws_nothing():
    how = Sampling()
    assert not how.draws
    z = np.array([[1.0, 2.0, 2.0]])
    assert how.choose(z, [NOTHING], [None]) == [1]
    assert not Sampling(temperature=0.0, top_k=3).draws
    assert Sampling(top_k=3).draws
    assert Sampling(temperature=0.0, top_k=3).choose(z, [NOTHING], [None]) == [1]


def test_to_dict_says_what_differs_from_greedy():
    assert Sampling().to_dict() == {}
    assert Sampling(top_k=3, seed=5).to_dict() == {"top_k": 3, "seed": 5}
    assert Sampling(filters=[lambda z, ids: z]).to_dict() == {"filters": ["<lambda>"]}
