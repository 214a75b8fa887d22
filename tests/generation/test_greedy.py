"""Greedy decoding: each row as if it were alone, whatever else is in the batch."""
import numpy as np
import pytest

from minitx import masks
from minitx.data import EOS, CharTokenizer
from minitx.generation import answer, evaluating, greedy
from minitx.models import Transformer, TransformerConfig
from minitx.settings import current

V = 13


def decoder(**changes):
    config = {"architecture": "decoder", "layers": 2, "d_model": 12, "heads": 3, "vocab_size": V, "max_length": 23,
              "position": "learned", "dropout": 0.3, "tie_embeddings": False}  # fmt: skip
    return sharp(Transformer(TransformerConfig.from_dict(config | changes), rng=np.random.default_rng(5)))


def encoder_decoder(**changes):
    config = {"layers": 2, "d_model": 12, "heads": 3, "vocab_size": V, "max_length": 23, "dropout": 0.3,
              "tie_embeddings": False}  # fmt: skip
    return sharp(Transformer(TransformerConfig.from_dict(config | changes), rng=np.random.default_rng(7)), 0.2)


def sharp(model, scale=0.8):
    """Random weights large enough for the rows of a batch to get different answers, in float64."""
    rng = np.random.default_rng(11)
    model.astype(np.float64)
    for p in model.parameters():
        if p.ndim == 2:  # larger biases would drown what was read
            p.data = rng.normal(0, scale, p.shape)
    return model


def alone(model, row, max_new, eos=EOS):
    """The definition, for one decoder row: the likeliest next id given everything so far."""
    said = []
    with evaluating(model):
        for _ in range(max_new):
            logits = model(np.array([[*row, *said]])).logits.numpy()[0, -1]
            new = int(logits.argmax())
            if new == eos:
                break
            said.append(new)
    return said


def prompts(rng, lengths):
    ids = rng.integers(3, V, (len(lengths), max(lengths)))
    ids[np.arange(ids.shape[1]) >= np.array(lengths)[:, None]] = 0
    return ids


# ---------------------------------------------------------------------- decoder


def test_pitfall_32_right_padded_generation():
    model = decoder()
    lengths = [2, 4, 7, 1]
    ids = prompts(np.random.default_rng(3), lengths)
    got = greedy(model, ids, mask=masks.padding(lengths), max_new=9, eos=None)
    for i, n in enumerate(lengths):
        np.testing.assert_array_equal(got[i], alone(model, ids[i, :n], 9, None))
    assert len({tuple(row) for row in got}) == 4  # the model is sharp enough for the rows to differ


def test_what_stands_in_the_padding_makes_no_difference():
    model = decoder()
    lengths = [2, 5]
    ids = prompts(np.random.default_rng(3), lengths)
    other = ids.copy()
    other[0, 2:] = 9
    mask = masks.padding(lengths)
    for a, b in zip(greedy(model, ids, mask=mask, max_new=6), greedy(model, other, mask=mask, max_new=6)):
        np.testing.assert_array_equal(a, b)


def test_the_mask_may_be_boolean():
    model = decoder()
    lengths = np.array([2, 5])
    ids = prompts(np.random.default_rng(3), lengths)
    dense = np.arange(5) < lengths[:, None]
    expected = greedy(model, ids, mask=masks.padding(lengths), max_new=6)
    for a, b in zip(greedy(model, ids, mask=dense, max_new=6), expected):
        np.testing.assert_array_equal(a, b)


def test_rows_end_at_different_times():
    """Take as EOS an id that some rows say early, some late, some never."""
    model = decoder()
    lengths = [2, 4, 7, 1, 3]
    ids = prompts(np.random.default_rng(3), lengths)
    free = [alone(model, ids[i, :n], 9, None) for i, n in enumerate(lengths)]
    ends = max(range(V), key=lambda eos: len({row.index(eos) if eos in row else 9 for row in free}))
    got = greedy(model, ids, mask=masks.padding(lengths), max_new=9, eos=ends)
    assert len({len(row) for row in got}) >= 3
    for i, row in enumerate(free):
        np.testing.assert_array_equal(got[i], row[: row.index(ends)] if ends in row else row)


def test_beyond_max_length_the_model_sees_the_latest_ids():
    model = decoder(max_length=5)
    ids = prompts(np.random.default_rng(3), [7, 3])
    got = greedy(model, ids, mask=masks.padding([7, 3]), max_new=6, eos=None)
    for i, n in enumerate([7, 3]):
        row = list(ids[i, :n])
        for new in got[i]:
            assert [new] == alone(model, row[-5:], 1, None)
            row.append(new)


# ---------------------------------------------------------------------- encoder-decoder


def translated(model, source, max_new):
    said = [1]
    with evaluating(model):
        for _ in range(max_new):
            new = int(model(source[None], np.array([said])).logits.numpy()[0, -1].argmax())
            if new == EOS:
                break
            said.append(new)
    return said[1:]


@pytest.mark.parametrize("norm_placement", ["pre", "post"])
def test_sources_of_different_lengths(norm_placement):
    model = encoder_decoder(norm_placement=norm_placement)
    lengths = [2, 7, 5, 1, 3]
    ids = prompts(np.random.default_rng(3), lengths)
    got = greedy(model, ids, mask=masks.padding(lengths), max_new=11)
    for i, n in enumerate(lengths):
        np.testing.assert_array_equal(got[i], translated(model, ids[i, :n], 11))
    assert len({tuple(row) for row in got}) >= 4


def test_the_source_is_encoded_once():
    model = encoder_decoder()
    calls = []
    encode = model.encode
    model.encode = lambda *args, **options: calls.append(1) or encode(*args, **options)
    greedy(model, np.full((3, 4), 5), max_new=7)
    assert calls == [1]


def test_more_than_the_models_positions_is_refused():
    with pytest.raises(ValueError, match="max_new 24 is more than the model's 23 positions"):
        greedy(encoder_decoder(), np.full((1, 3), 5), max_new=24)


# ---------------------------------------------------------------------- both


@pytest.mark.parametrize("make", [decoder, encoder_decoder])
def test_mode_and_tape_are_as_before(make):
    model = make()
    model.train()
    model.decoder[1].eval()
    before = {name: module.training for name, module in model.modules()}
    greedy(model, np.full((2, 3), 5), max_new=2)
    assert {name: module.training for name, module in model.modules()} == before
    assert current.get().recording
    next(model.parameters()).data *= np.nan
    with pytest.raises(ValueError, match="NaN"):
        greedy(model, np.full((2, 3), 5), max_new=2)
    assert {name: module.training for name, module in model.modules()} == before
    assert current.get().recording


@pytest.mark.parametrize("make", [decoder, encoder_decoder])
def test_dropout_is_off(make):
    model = make()
    ids = np.arange(3, 9).reshape(2, 3)
    a, b = (greedy(model, ids, max_new=9, eos=None) for _ in range(2))
    for x, y in zip(a, b):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("make", [decoder, encoder_decoder])
def test_nothing_to_do(make):
    model = make()
    assert greedy(model, np.zeros((0, 3), np.int64), max_new=2) == []
    assert [len(row) for row in greedy(model, np.full((2, 3), 5), max_new=0)] == [0, 0]


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([3, 4], {}, "rows, places"),
        ([[3.0]], {}, "integers"),
        ([[3]], {"max_new": -1}, "at least 0"),
        ([[3, 4], [5, 6]], {"mask": np.array([[True, True], [False, True]])}, "padded on the right"),
        ([[3, 4], [5, 6]], {"mask": np.array([[1, 1], [1, 0]])}, "booleans"),
        ([[3, 4], [5, 6]], {"mask": masks.padding([2, 0])}, "prompt 1 is empty"),
    ],
)
def test_bad_arguments(ids, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        greedy(decoder(), ids, **({"max_new": 2} | options))


def test_answer_is_from_text_to_text():
    t = CharTokenizer("0123456789", separator=" ")
    model = encoder_decoder()
    texts = ["1 2 3", "4"]
    got = answer(model, t, texts, max_new=9)
    for text, said in zip(texts, got):
        assert said == t.decode(translated(model, np.array([*t.encode(text), EOS]), 9))
    assert answer(model, t, ["1 2 3"]) == answer(model, t, ["1 2 3"], max_new=23)
    with pytest.raises(ValueError, match="has 23 symbols, and the model has positions for 22"):
        answer(model, t, ["1" * 23])
    with pytest.raises(ValueError, match="not among"):
        answer(model, t, ["x"])


def test_answer_of_a_decoder_is_the_continuation_alone():
    t = CharTokenizer("0123456789")
    model = decoder()
    prompts = ["12", "345"]
    expected = [t.decode(alone(model, t.encode(prompt), 4, None)) for prompt in prompts]
    assert answer(model, t, prompts, max_new=4) == expected
