"""What is held out is decided by the example itself: here are the values that must never change."""
import numpy as np
import pytest

from minitx.data.split import check_digit, mix, quotas, text_hash, text_is_held_out


def all_sequences(n):
    return np.arange(10**n)[:, None] // 10 ** np.arange(n - 1, -1, -1) % 10


def test_mix_is_splitmix64():
    """The first outputs of the generator with seed 0, as published with its source."""
    golden = 0x9E3779B97F4A7C15
    got = mix(np.array([0, golden, 2 * golden % 2**64], np.uint64))
    assert [int(v) for v in got] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_exactly_a_tenth_of_every_length(n):
    digits = all_sequences(n)
    held = check_digit(digits, np.full(len(digits), n)) == digits[:, -1]
    assert held.sum() == 10 ** (n - 1)
    # ... and exactly one in each group of ten that share all but the last digit
    np.testing.assert_array_equal(held.reshape(-1, 10).sum(1), 1)


def test_the_check_digit_depends_on_all_digits_before_it_on_their_places_and_on_the_length_only():
    rng = np.random.default_rng(5)
    digits = rng.integers(0, 10, (500, 7))
    lengths = rng.integers(1, 8, 500)
    got = check_digit(digits, lengths)
    beyond = np.arange(7) >= lengths[:, None] - 1
    np.testing.assert_array_equal(check_digit(np.where(beyond, rng.integers(0, 10, (500, 7)), digits), lengths), got)
    np.testing.assert_array_equal(check_digit(np.pad(digits, ((0, 0), (0, 3))), lengths), got)  # padding
    full = np.full(500, 7)
    for place in range(6):  # a change of any earlier digit gives a new one, nine times in ten
        other = digits.copy()
        other[:, place] = (other[:, place] + 1) % 10
        assert 0.85 < (check_digit(other, full) != check_digit(digits, full)).mean() < 0.95
    assert 0.8 < (check_digit(digits[:, ::-1], full) != check_digit(digits, full)).mean() < 1


def test_check_digits_are_evenly_spread():
    digits = all_sequences(4)
    counts = np.bincount(check_digit(digits, np.full(len(digits), 4))[::10], minlength=10)  # one per prefix
    assert counts.min() > 70
    assert counts.max() < 130  # 1,000 prefixes, 100 expected for each


def test_stable_values():
    """Another value here means that a model trained before may have seen what is now called held out."""
    digits = np.array([[0, 0, 0, 0], [3, 1, 4, 1], [9, 9, 9, 9]])
    np.testing.assert_array_equal(check_digit(digits, np.array([1, 4, 3])), [5, 5, 4])
    assert text_hash("four") == 0x04B2BA5B2707820D
    assert text_hash("") == 0x83D7CA8C8BD23B0C


def test_a_tenth_of_texts():
    share = np.mean([text_is_held_out(f"text {i}") for i in range(5000)])
    assert 0.085 < share < 0.115


@pytest.mark.parametrize(
    ("total", "available", "shares"),
    [
        (10, [1, 9, 9], [1, 5, 4]),
        (1000, [1, 10, 100, 1000], [1, 10, 100, 889]),
        (50, [1, 10, 5], [1, 10, 5]),
        (0, [3, 3], [0, 0]),
        (7, [9, 9, 9], [3, 2, 2]),
        (3, [], []),
    ],
)
def test_quotas(total, available, shares):
    assert quotas(total, available) == shares
