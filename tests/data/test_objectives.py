"""From ids to batches: what is read, what is predicted, shifted exactly once; masked tokens in their shares."""
import numpy as np
import pytest

from minitx import masks
from minitx.data import BOS, EOS, IGNORED, PAD, masked_lm, next_token, next_token_of_rows, sequence_to_sequence
from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy

V, MASK = 20, 3
SPECIAL = (PAD, BOS, EOS)


def rng(seed=0):
    return np.random.default_rng(seed)


# ---------------------------------------------------------------------- next token


def test_next_token_shifts_once():
    batch = next_token([[5, 6, 7, 8], [9, 4, PAD, PAD]], [4, 2])
    np.testing.assert_array_equal(batch.ids, [[5, 6, 7], [9, 4, PAD]])
    np.testing.assert_array_equal(batch.targets, [[6, 7, 8], [4, IGNORED, IGNORED]])
    np.testing.assert_array_equal(batch.mask.lengths, [3, 1])
    assert batch.tokens == 4
    whole = next_token(np.array([[5, 6, 7]], np.int32))
    np.testing.assert_array_equal(whole.ids, [[5, 6]])
    np.testing.assert_array_equal(whole.targets, [[6, 7]])
    assert whole.mask is None
    assert whole.ids.dtype == whole.targets.dtype == np.int64


def test_next_token_copies():
    ids = np.array([[5, 6, 7]])
    batch = next_token(ids)
    ids[:] = 0
    np.testing.assert_array_equal(batch.ids, [[5, 6]])
    np.testing.assert_array_equal(batch.targets, [[6, 7]])


def test_the_target_is_not_among_what_its_place_has_seen():
    """A model that copies its last input is right nowhere, and one that looks one ahead is right everywhere."""
    batch = next_token(rng().permuted(np.tile(np.arange(V), (3, 1)), axis=1))
    assert (batch.ids != batch.targets).all()
    np.testing.assert_array_equal(batch.ids[:, 1:], batch.targets[:, :-1])


def test_rows_without_anything_to_predict():
    batch = next_token([[5, 6, 7], [9, PAD, PAD], [PAD, PAD, PAD]], [3, 1, 0])
    np.testing.assert_array_equal(batch.targets[1:], IGNORED)
    np.testing.assert_array_equal(batch.mask.lengths, [2, 0, 0])


def test_next_token_of_rows_pads():
    batch = next_token_of_rows([[5, 6, 7], np.array([8, 9]), []])
    np.testing.assert_array_equal(batch.ids, [[5, 6], [8, 9], [PAD, PAD]])
    np.testing.assert_array_equal(batch.targets, [[6, 7], [9, IGNORED], [IGNORED, IGNORED]])


@pytest.mark.parametrize(("ids", "lengths", "message"), [
    ([[5], [6]], None, "a row of 1 ids has no next one"),
    ([5, 6], None, r"\(rows, places\).*ids\[None\]"),
    ([[0.5, 1.0]], None, "integers"),
    ([[5, 6]], [3], "from 0 to 2"),
    ([[5, 6]], [-1], "from 0 to 2"),
    ([[5, 6]], [1, 2], "1 integers"),
    ([[5, 6]], [1.0], "integers"),
])
def test_next_token_refuses(ids, lengths, message):
    with pytest.raises(ValueError, match=message):
        next_token(ids, lengths)


def test_pitfall_20_a_padded_batch_costs_what_its_rows_cost_alone():
    """Sum of losses and number of targets: padding counts in neither."""
    config = TransformerConfig.gpt2(layers=1, d_model=8, heads=2, vocab_size=V, max_length=8, dropout=0.0)
    model = Transformer(config, rng=rng()).astype(np.float64)
    rows = [rng(n).integers(0, V, n) for n in (5, 2, 1, 3)]
    together = next_token_of_rows(rows)
    loss = cross_entropy(model(together.ids, mask=together.mask).logits, together.targets, reduction="sum").item()
    alone = [next_token(row[None]) for row in rows if len(row) > 1]
    losses = [cross_entropy(model(b.ids).logits, b.targets, reduction="sum").item() for b in alone]
    assert together.tokens == sum(b.tokens for b in alone) == 4 + 1 + 2
    assert loss == pytest.approx(sum(losses), rel=1e-12)


# ---------------------------------------------------------------------- masked


def test_masked_lm_in_its_shares():
    ids = rng(1).integers(4, V, (200, 500))
    batch = masked_lm(ids, rng(), V, MASK, SPECIAL)
    chosen = batch.targets != IGNORED
    np.testing.assert_array_equal(batch.targets[chosen], ids[chosen])
    np.testing.assert_array_equal(batch.ids[~chosen], ids[~chosen])
    n = chosen.sum()
    assert n == batch.tokens
    assert n / ids.size == pytest.approx(0.15, abs=0.005)
    masked, same = batch.ids[chosen] == MASK, batch.ids[chosen] == ids[chosen]
    assert masked.sum() / n == pytest.approx(0.8, abs=0.015)
    chance = 1 / (V - 4)  # a random token is sometimes the one that was there
    assert same.sum() / n == pytest.approx(0.1 + 0.1 * chance, abs=0.01)
    others = batch.ids[chosen][~masked & ~same]
    assert set(others.tolist()) == set(range(4, V))  # all ordinary ones, and no special one


def test_special_ids_and_padding_are_never_chosen():
    ids = rng(1).integers(0, V, (50, 40))
    lengths = rng(2).integers(0, 41, 50)
    batch = masked_lm(ids, rng(), V, MASK, SPECIAL, p=1.0, lengths=lengths)
    kept = np.isin(ids, (*SPECIAL, MASK)) | (np.arange(40) >= lengths[:, None])
    np.testing.assert_array_equal(batch.targets == IGNORED, kept)
    np.testing.assert_array_equal(batch.ids[kept], ids[kept])
    np.testing.assert_array_equal(batch.mask.lengths, lengths)


def test_masked_lm_is_a_function_of_the_generator():
    ids = rng(1).integers(4, V, (5, 7))
    a, b, c = (masked_lm(ids, rng(seed), V, MASK) for seed in (0, 0, 1))
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_array_equal(a.targets, b.targets)
    assert (a.targets != c.targets).any()
    other = ids.copy()
    other[0] = PAD  # what happens elsewhere stays the same
    d = masked_lm(other, rng(), V, MASK, SPECIAL)
    np.testing.assert_array_equal(d.targets[1:], masked_lm(ids, rng(), V, MASK, SPECIAL).targets[1:])


def test_masked_lm_at_the_ends():
    ids = rng(1).integers(4, V, (5, 7))
    none = masked_lm(ids, rng(), V, MASK, p=0)
    assert none.tokens == 0
    np.testing.assert_array_equal(none.ids, ids)
    assert masked_lm(ids, rng(), V, MASK, p=1).tokens == 35
    assert masked_lm(np.zeros((0, 7), int), rng(), V, MASK).ids.shape == (0, 7)


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"p": 1.5}, ValueError, "0 <= p <= 1, not 1.5"),
    ({"mask_id": V}, IndexError, "id 20 is outside the vocabulary of 20"),
    ({"special_ids": [-1]}, IndexError, "id -1 is outside"),
    ({"special_ids": range(V)}, ValueError, "all 20 ids are special"),
    ({"ids": [[V]]}, IndexError, "ids: id 20"),
    ({"ids": [5]}, ValueError, r"\(rows, places\)"),
])
def test_masked_lm_refuses(options, error, message):
    with pytest.raises(error, match=message):
        masked_lm(**{"ids": [[5, 6]], "rng": rng(), "vocab_size": V, "mask_id": MASK, **options})


# ---------------------------------------------------------------------- sequence to sequence


def test_sequence_to_sequence_by_hand():
    batch = sequence_to_sequence([[5, 6, 7], [8]], [np.array([9]), [4, 3]])
    np.testing.assert_array_equal(batch.ids, [[5, 6, 7, EOS], [8, EOS, PAD, PAD]])
    np.testing.assert_array_equal(batch.target_ids, [[BOS, 9, PAD], [BOS, 4, 3]])
    np.testing.assert_array_equal(batch.targets, [[9, EOS, IGNORED], [4, 3, EOS]])
    assert isinstance(batch.mask, masks.padding)
    with pytest.raises(ValueError, match="2 sources, 1 targets"):
        sequence_to_sequence([[5], [6]], [[7]])
    with pytest.raises(ValueError, match="a row is integers"):
        sequence_to_sequence([[[5]]], [[7]])
