"""Rows of different lengths in one rectangle."""
import numpy as np
import pytest

from minitx import masks
from minitx.data import BOS, EOS, IGNORED, PAD, Batch, encoder_decoder, ended, language_model, pad
from minitx.data.batch import mask_rows


def test_pad():
    ids, lengths = pad([np.array([5, 6, 7]), np.array([], np.int64), np.array([8])])
    np.testing.assert_array_equal(ids, [[5, 6, 7], [PAD, PAD, PAD], [8, PAD, PAD]])
    np.testing.assert_array_equal(lengths, [3, 0, 1])
    assert ids.dtype == lengths.dtype == np.int64
    assert pad([])[0].shape == (0, 0)


def test_ended_ignores_what_stands_beyond_the_length():
    rows = np.array([[5, 6, 99], [7, 99, 99]])
    np.testing.assert_array_equal(ended(rows, np.array([2, 1])), [[5, 6, EOS], [7, EOS, PAD]])
    np.testing.assert_array_equal(ended(rows[:1], np.array([3]), IGNORED), [[5, 6, 99, EOS]])
    np.testing.assert_array_equal(ended(rows[:1], np.array([0])), [[EOS]])


def test_encoder_decoder_by_hand():
    x, y = np.array([[5, 6, 7], [8, 99, 99]]), np.array([[9, 99], [4, 3]])
    batch = encoder_decoder(x, np.array([3, 1]), y, np.array([1, 2]))
    np.testing.assert_array_equal(batch.ids, [[5, 6, 7, EOS], [8, EOS, PAD, PAD]])
    np.testing.assert_array_equal(batch.target_ids, [[BOS, 9, PAD], [BOS, 4, 3]])
    np.testing.assert_array_equal(batch.targets, [[9, EOS, IGNORED], [4, 3, EOS]])
    np.testing.assert_array_equal(batch.mask.lengths, [4, 2])
    assert batch.tokens == 5
    assert len(batch) == 2


def test_language_model_shifts_by_one():
    batch = language_model(np.array([[3, 4, 5, 6]], np.int32))
    np.testing.assert_array_equal(batch.ids, [[3, 4, 5]])
    np.testing.assert_array_equal(batch.targets, [[4, 5, 6]])
    assert batch.target_ids is None
    assert batch.mask is None
    assert batch.ids.dtype == np.int64


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 11])
def test_split_is_a_partition(n):
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, 7)
    x = rng.integers(3, 13, (7, 5))
    batch = encoder_decoder(x, lengths, x, lengths)
    parts = batch.split(n)
    assert len(parts) == min(n, 7)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for name in ("ids", "targets", "target_ids"):
        np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in parts]), getattr(batch, name))
    whole = batch.mask.dense(7, 1, batch.ids.shape[1])
    np.testing.assert_array_equal(
        np.concatenate([p.mask.dense(len(p), 1, batch.ids.shape[1]) for p in parts]), whole
    )
    assert sum(p.tokens for p in parts) == batch.tokens


def test_split_into_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Batch(np.zeros((2, 3), np.int64), np.zeros((2, 3), np.int64)).split(0)


def test_masks_of_some_rows():
    B, T = 5, 3
    rng = np.random.default_rng(7)
    dense = rng.random((B, T, T)) < 0.5
    lengths = np.array([1, 3, 2, 3, 1])
    documents = np.array([[0, 0, 1], [0, 1, 1], [2, 2, 2], [0, 1, 2], [1, 1, 0]])
    for mask in (
        masks.padding(lengths),
        masks.padding(lengths, side="left"),
        masks.causal() & masks.padding(lengths),
        masks.documents(documents) & masks.window(2),
        masks.documents(documents[0]),
        masks.causal() & dense,
        masks.causal(),
    ):
        rows = slice(1, 4)
        whole = np.broadcast_to(mask.dense(B, T, T), (B, T, T))
        np.testing.assert_array_equal(np.broadcast_to(mask_rows(mask, rows).dense(3, T, T), (3, T, T)), whole[rows])
    np.testing.assert_array_equal(mask_rows(dense, slice(1, 4)), dense[1:4])
    np.testing.assert_array_equal(mask_rows(dense[0], slice(1, 2)), dense[0])  # (T_q, T_k) holds for every row
    assert mask_rows(None, slice(1, 2)) is None
