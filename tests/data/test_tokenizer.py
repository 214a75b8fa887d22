"""Characters to ids and back."""
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitx.data import BOS, EOS, PAD, CharTokenizer


def test_special_ids_come_first():
    t = CharTokenizer("ab")
    assert (PAD, BOS, EOS) == (0, 1, 2)
    assert len(t) == 5
    np.testing.assert_array_equal(t.encode("ba"), [4, 3])
    assert t.encode("ba").dtype == np.int64


@given(st.text(min_size=1))
def test_decode_undoes_encode(text):
    t = CharTokenizer.of(text)
    assert t.decode(t.encode(text)) == text


def test_the_vocabulary_of_a_text_is_in_order_of_code_points():
    assert CharTokenizer.of("banana\n").symbols == "\nabn"


def test_separator_is_written_and_not_needed_for_reading():
    t = CharTokenizer("0123456789", separator=" ")
    np.testing.assert_array_equal(t.encode("1 2  9"), t.encode("129"))
    assert t.decode(t.encode("129")) == "1 2 9"


def test_without_separator_white_space_is_a_symbol_like_any_other():
    assert CharTokenizer("a \n").decode(CharTokenizer("a \n").encode("a \na")) == "a \na"


def test_decode_stops_at_eos_and_shows_misplaced_special_ids():
    t = CharTokenizer("ab")
    assert t.decode([3, 4, EOS, 3, PAD]) == "ab"
    assert t.decode([3, PAD, 4]) == "a<pad>b"  # or a wrong answer would look right
    assert t.decode([BOS, 4]) == "<bos>b"


def test_empty_text():
    t = CharTokenizer("ab")
    assert t.encode("").shape == (0,)
    assert t.encode("").dtype == np.int64
    assert t.decode([]) == ""


def test_json_round_trip():
    t = CharTokenizer("äb\u2028\n", separator=" ")
    again = CharTokenizer.from_dict(json.loads(json.dumps(t.to_dict())))
    assert again == t
    np.testing.assert_array_equal(again.encode("äb"), t.encode("äb"))


def test_an_unknown_character_is_named_with_its_place():
    with pytest.raises(ValueError, match=r"'\\xfc' \(character 3\) is not among the 2 symbols .*'ab'"):
        CharTokenizer("ab").encode("abü")
    with pytest.raises(ValueError, match=r"'x' \(character 3\)"):
        CharTokenizer("ab", separator=" ").encode("a x")


def test_bad_vocabularies():
    with pytest.raises(ValueError, match="at least one"):
        CharTokenizer("")
    with pytest.raises(ValueError, match="'a' stands in it twice"):
        CharTokenizer("aba")
    with pytest.raises(ValueError, match="not a vocabulary of characters"):
        CharTokenizer.from_dict({"kind": "bytes"})


@pytest.mark.parametrize("i", [-1, 5])
def test_ids_outside_the_vocabulary(i):
    with pytest.raises(IndexError, match=f"id {i} "):
        CharTokenizer("ab").decode([i])
