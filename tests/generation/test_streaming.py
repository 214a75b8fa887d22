"""Text as it is written: whole characters only, and nothing that a stop sequence would take back."""
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.data import EOS, BytePairTokenizer, CharTokenizer
from minitx.generation import generate, stream
from minitx.generation.stopping import Stops, eos_ids
from minitx.generation.streaming import Written
from minitx.models import Transformer, TransformerConfig
from minitx.settings import current

BYTES = BytePairTokenizer([])  # every byte is an id of its own
TEXT = "naïve 中文 🙂 é"


def pieces(tokenizer, ids, stops=()):
    written = Written(tokenizer, Stops(stops))
    out = [written.push(int(i)) for i in ids]
    return [*out, written.finish()], written


# ---------------------------------------------------------------------- characters


def test_a_character_comes_with_its_last_byte():
    said, written = pieces(BYTES, BYTES.encode("é🙂"))
    assert said == ["", "é", "", "", "", "🙂", ""]
    assert written.text == "é🙂"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_streamed_pieces_are_the_text(text):
    said, _ = pieces(BYTES, BYTES.encode(text, special=False))
    assert "".join(said) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in said)


def test_a_character_that_is_never_completed():
    ids = BYTES.encode("a🙂")[:-1]
    said, _ = pieces(BYTES, ids)
    assert said == ["a", "", "", "", "\ufffd"]
    assert "".join(said) == BYTES.decode(ids)


def test_symbols_that_are_written_apart():
    digits = CharTokenizer("0123456789", separator=" ")
    said, written = pieces(digits, digits.encode("1 2 3"))
    assert said == ["1", " 2", " 3", ""]
    assert written.text == "1 2 3"


# ---------------------------------------------------------------------- stop sequences


def cut(text, stops):
    """Where a stop sequence is complete for the first time, character by character."""
    for n in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:n].endswith(stop):
                return text[: n - len(stop)], stop
    return text, None


@given(
    st.lists(st.text("ab", max_size=5), max_size=8),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_where_text_ends_does_not_depend_on_its_pieces(parts, stops):
    text, found = cut("".join(parts), stops)
    for some in (parts, ["".join(parts)], list("".join(parts))):
        s = Stops(stops)
        said = [s.push(piece) for piece in some]
        assert s.found == found
        assert "".join(said) + s.finish() == text
        if found is None:  # whatever came out at once is never more than is certain
            assert all("".join(said[: n + 1]) == "".join(said)[: len("".join(said[: n + 1]))] for n in range(len(said)))


def test_only_what_may_become_a_stop_sequence_is_held_back():
    s = Stops(["abc", "b!"])
    assert [s.push(piece) for piece in ["xa", "b", "a", "b"]] == ["x", "", "ab", ""]
    assert (s.push("c?"), s.found, s.push("more"), s.finish()) == ("", "abc", "", "")


def test_a_stop_sequence_across_tokens():
    said, written = pieces(BYTES, BYTES.encode("one é! two"), ["é! "])
    assert written.stopped
    assert "".join(said) == "one "


@pytest.mark.parametrize("stops", [[""], [3], ["a", ""]])
def test_stop_sequences_are_texts(stops):
    with pytest.raises(ValueError, match="a stop sequence is a text of at least one character"):
        Stops(stops)


def test_eos_ids():
    assert eos_ids(None) == frozenset()
    assert eos_ids(2) == {2}
    assert eos_ids(np.array([2, 7])) == {2, 7}
    for wrong in (-1, [2, "x"], [True]):
        with pytest.raises(ValueError, match="eos is an id"):
            eos_ids(wrong)


# ---------------------------------------------------------------------- a model that recites


def reciting(tokenizer, text, longest=64):
    """A decoder that says id t of `text` at position t, and EOS at the end: it looks at nothing but its positions."""
    config = TransformerConfig.gpt2(
        layers=1, d_model=longest, heads=2, vocab_size=len(tokenizer), max_length=longest, dropout=0.0,
        tie_embeddings=False,
    )  # fmt: skip
    model = Transformer(config, rng=np.random.default_rng(0))
    ids = [*tokenizer.encode(text), EOS]
    for p in (model.embedding.weight, model.decoder[0].attention.out.weight, model.decoder[0].feedforward.down.weight):
        p.data = np.zeros(p.shape)
    model.positions.weight.data = np.eye(longest)
    head = np.zeros((len(tokenizer), longest))
    head[[ids[min(t, len(ids) - 1)] for t in range(longest)], range(longest)] = 1
    model.head.weight.data = head
    return model


@pytest.mark.parametrize("cache", [True, False])
def test_a_stream_is_what_generate_returns(cache):
    model = reciting(BYTES, TEXT)
    whole = generate(model, "x", BYTES, cache=cache)[0]
    assert whole.text == TEXT
    assert whole.finish == "eos"
    said = list(stream(model, "x", BYTES, cache=cache))
    assert "".join(said) == TEXT
    assert all(said)
    assert not any("\ufffd" in piece for piece in said)
    assert len(said) == len(TEXT)


def test_a_stream_ends_before_a_stop_sequence():
    model = reciting(BYTES, TEXT)
    assert list(stream(model, "x", BYTES, stop="文 ")) == [*"naïve 中"]
    answer = generate(model, "x", BYTES, stop=["文 ", "zzz"])[0]
    assert (answer.text, answer.finish) == ("naïve 中", "stop")
    assert BYTES.decode(answer.ids) == "naïve 中文 "  # the ids are what was said


def test_text_that_was_held_back_comes_at_the_end():
    model = reciting(BYTES, "abc")
    assert "".join(stream(model, "x", BYTES, stop="cd")) == "abc"
    assert generate(model, "x", BYTES, stop="bd", max_new=2)[0].text == "ab"


def test_the_tape_is_as_it_was_between_two_pieces():
    model = reciting(BYTES, "abc")
    model.train()
    before = current.get()
    running = stream(model, "x", BYTES)
    next(running)
    assert current.get().recording
    running.close()
    assert model.training
    assert current.get() is before


def test_a_stream_refuses_and_raises():
    model = reciting(BYTES, "abc")
    for prompt, options in ((["x"], {}), ("x", {"beam": 2}), ("x", {"temperature": 1.0, "copies": 2})):
        with pytest.raises(ValueError, match="a stream is the text of one prompt"):
            next(stream(model, prompt, BYTES, **options))
    with pytest.raises(ValueError, match="the prompt is empty"):
        next(stream(model, "", BYTES))
