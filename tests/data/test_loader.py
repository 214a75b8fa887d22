"""Data sets: every example once an epoch, little padding, and batch i a function of the seed and i."""
import numpy as np
import pytest

from minitx.data import (
    IGNORED,
    PackedBatches,
    PaddedBatches,
    masked_lm,
    next_token_of_rows,
    pad,
    sequence_to_sequence,
)


def rows(n=53, longest=31, seed=0):
    """Rows whose ids tell them apart: row i is filled with i + 3."""
    return [np.full(k, i + 3) for i, k in enumerate(np.random.default_rng(seed).integers(2, longest + 1, n))]


def build(seed=0, **limit):
    return PaddedBatches(rows(), lambda rows, rng: next_token_of_rows(rows), seed=seed, **limit or {"batch_size": 5})


@pytest.mark.parametrize("limit", [{"batch_size": 5}, {"max_tokens": 64}])
def test_every_example_once_an_epoch(limit):
    data = build(**limit)
    for e in range(3):
        seen = [int(row[0]) for batch in data.epoch(e) for row in batch.ids]
        assert sorted(seen) == list(range(3, 56))


def test_the_limit_holds_and_the_number_of_batches_does_not_change():
    data = build(max_tokens=64)
    for e in range(3):
        batches = list(data.epoch(e))
        assert len(batches) == len(data)
        assert max(b.ids.shape[0] * (b.ids.shape[1] + 1) for b in batches) <= 64
    assert {len(b) for b in build(batch_size=5).epoch()} == {5, 53 % 5}


def test_rows_of_a_length_go_together():
    def share_of_padding(batches):
        places = sum(b.ids.size for b in batches)
        return 1 - sum(b.mask.lengths.sum() for b in batches) / places

    sorted_ = share_of_padding(list(build().epoch()))
    everything = rows()
    as_they_come = share_of_padding([next_token_of_rows(everything[i : i + 5]) for i in range(0, 53, 5)])
    assert sorted_ < 0.08 < 0.25 < as_they_come


def test_a_batch_depends_on_seed_and_number_alone():
    a, b = build(), build()
    for i in (30, 3, 14, 3):  # in any order, from any epoch
        np.testing.assert_array_equal(a[i].ids, b[i].ids)
    orders = [[batch.ids.tobytes() for batch in epoch] for epoch in (a.epoch(0), a.epoch(1), build(seed=1).epoch(0))]
    assert len(set(map(tuple, orders))) == 3


def test_what_is_random_about_a_batch_is_fixed_too():
    def gaps(rows, rng):
        ids, lengths = pad(rows)
        return masked_lm(ids, rng, 60, 1, [0, 2], lengths=lengths)

    a = PaddedBatches(rows(), gaps, max_tokens=64)
    b = PaddedBatches(rows(), gaps, max_tokens=64)
    for i in (5, 0, 5 + len(a)):
        np.testing.assert_array_equal(a[i].targets, b[i].targets)
        assert a[i].tokens > 0


def test_without_shuffling_every_epoch_is_the_same():
    data = PaddedBatches(rows(), lambda rows, rng: next_token_of_rows(rows), batch_size=7, shuffle=False)
    for k in range(len(data)):
        np.testing.assert_array_equal(data[k].ids, data[k + len(data)].ids)
    lengths = [batch.ids.shape[1] for batch in data.epoch()]
    assert lengths == sorted(lengths)


def test_pairs():
    pairs = [(row, row[:2]) for row in rows()]
    data = PaddedBatches(
        pairs, lambda some, rng: sequence_to_sequence(*zip(*some)), batch_size=5, size=lambda pair: max(map(len, pair))
    )
    seen = 0
    for batch in data.epoch():
        np.testing.assert_array_equal(batch.target_ids[:, 1], batch.ids[:, 0])
        seen += len(batch)
    assert seen == 53


def test_packed():
    data = PackedBatches(rows(), 32, 3)
    for e in range(2):
        batches = list(data.epoch(e))
        assert len(batches) == len(data)
        assert all(batch.ids.shape[1] == 32 and 1 <= len(batch) <= 3 for batch in batches)
        assert sum(batch.tokens for batch in batches) == sum(len(row) - 1 for row in rows())
        for batch in batches:
            counted = batch.targets != IGNORED
            np.testing.assert_array_equal(batch.ids[counted], batch.targets[counted])  # no row foretells another
    short = rows(longest=13)
    used = sum(len(batch) for batch in PackedBatches(short, 32, 3).epoch())
    assert used <= -(-sum(map(len, short)) // 32) + 1
    np.testing.assert_array_equal(PackedBatches(rows(), 32, 3)[17].ids, data[17].ids)
    assert (data[0].ids[0] != data[len(data)].ids[0]).any()


def test_packed_cuts_what_is_too_long():
    data = PackedBatches([np.arange(3, 40)], 8, 2)
    assert sum(batch.tokens for batch in data.epoch()) == 36


@pytest.mark.parametrize(("options", "message"), [
    ({}, "give one of the two"),
    ({"batch_size": 2, "max_tokens": 9}, "give one of the two"),
    ({"batch_size": 0}, "at least 1, not 0"),
    ({"max_tokens": 20}, r"max_tokens 20 has no room for example \d+, of length"),
])
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PaddedBatches(rows(), lambda rows, rng: next_token_of_rows(rows), **options)


def test_nothing_and_negative_numbers():
    with pytest.raises(ValueError, match="needs examples"):
        PaddedBatches([], lambda rows, rng: next_token_of_rows(rows), batch_size=2)
    with pytest.raises(ValueError, match="batch_size is at least 1"):
        PackedBatches(rows(), 32, 0)
    with pytest.raises(IndexError, match="no batch -1"):
        build()[-1]
