"""Byte pairs: learned as by recounting after every merge, applied as by one pass for every merge, and no text lost."""
import json
import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx.data import BOS, EOS, PAD, BytePairTokenizer, CharTokenizer, tokenizer_from_dict
from minitx.data.bpe import PIECES
from minitx.data.merges import Words, apply_merges, learn_merges

TEXT = "low lower lowest, slow slower. It's 2024: 北京, año, 🙂🙂!\n\n  slow_down\tnow  "
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FEW = st.text("ab c", max_size=30)


def merged(ids, pair, new):
    """One pass from left to right."""
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


def recount(words):
    """Overlapping counts of all pairs, in the order in which they are seen: words is [(symbols, frequency)]."""
    counts = {}
    for symbols, frequency in words:
        for pair in pairwise(symbols):
            counts[pair] = counts.get(pair, 0) + frequency
    return counts


def learned_by_recounting(words, n, least=2):
    """The definition: count everything, merge the first of the most frequent, begin again."""
    words, merges = [(list(word), f) for word, f in words], []
    while len(merges) < n:
        counts = recount(words)
        if not counts or max(counts.values()) < least:
            break
        pair = max(counts, key=counts.get)  # of equal ones the first
        words = [(merged(symbols, pair, 256 + len(merges)), f) for symbols, f in words]
        merges.append(pair)
    return merges


def bare(text, n):
    return BytePairTokenizer.train(text, 256 + n, special=())


# ---------------------------------------------------------------------- learning


def test_pitfall_29_by_hand():
    tokenizer = bare("aaabdaaabac", 3)
    assert tokenizer.merges == [(97, 97), (256, 97), (257, 98)]
    np.testing.assert_array_equal(tokenizer.encode("aaabdaaabac"), [258, 100, 258, 97, 99])
    np.testing.assert_array_equal(bare("aaaaa", 1).encode("aaaaa"), [256, 256, 97])


def test_pitfall_29_pairs_overlap_and_the_first_seen_wins():
    """aa counts 2 in aaabcbc, as bc does, and is seen first; without overlap it would count 1."""
    assert Words([(b"aaabcbc", 1)]).counts == {(97, 97): 2, (97, 98): 1, (98, 99): 2, (99, 98): 1}
    assert bare("aaabcbc", 1).merges == [(97, 97)]
    assert bare("bcbcaaa", 1).merges == [(98, 99)]
    assert bare("xy ab xy ab", 1).merges == [(ord("x"), ord("y"))]  # (also before " x", seen later)


@given(words=st.lists(st.tuples(st.binary(max_size=9).map(lambda b: bytes(97 + c % 3 for c in b)), st.integers(1, 4)),
                      max_size=6, unique_by=lambda w: w[0]))
@settings(deadline=None, max_examples=150)
def test_pitfall_29_incremental_counts_are_recounts_after_every_merge(words):
    chains = Words(words)
    frequencies = [f for word, f in words if word]
    now = [(list(word), f) for word, f in words if word]
    new = 256
    while True:
        counts = recount(now)
        assert chains.counts == counts
        assert chains.words() == [symbols for symbols, _ in now]
        best = chains.best()
        if best is None:
            assert not counts
            break
        pair, count = best
        assert count == max(counts.values())
        assert pair == max(counts, key=counts.get)
        chains.merge(pair, new)
        now = [(merged(symbols, pair, new), f) for (symbols, _), f in zip(now, frequencies)]
        new += 1


@given(text=st.one_of(FEW, ANY))
@settings(deadline=None, max_examples=60)
def test_training_is_the_definition(text):
    words = [(w.encode(), c) for w, c in Counter(PIECES.findall(text)).items()]
    assert bare(text, 20).merges == learned_by_recounting(words, 20)


def test_learning_stops_where_nothing_is_frequent():
    assert bare("abcdef", 10).merges == []
    assert len(BytePairTokenizer.train("abab", 1000)) == 3 + 256 + 1
    assert len(BytePairTokenizer.train("abab", 1000, least=1).merges) == 2
    assert learn_merges([], 5) == []
    with pytest.raises(ValueError, match="vocab_size is at least 259, bytes and special ids, not 258"):
        BytePairTokenizer.train("a", 258)


def test_training_on_several_texts_never_joins_them():
    a = BytePairTokenizer.train(["ab ab", "ab"], 300)
    assert a == BytePairTokenizer.train(iter(["ab ab", "ab"]), 300)
    assert BytePairTokenizer.train(["a", "b"] * 5, 300).merges == []
    assert BytePairTokenizer.train("a<eos>b<eos>" * 5, 300).merges == []  # nor what a special token divides


# ---------------------------------------------------------------------- text to ids and back


@given(text=ANY)
@settings(deadline=None, max_examples=150)
def test_pieces_are_the_text(text):
    assert "".join(PIECES.findall(text)) == text


def test_pieces_by_hand():
    assert PIECES.findall("It's 2024, we've  _x_\n\n y") == [
        "It", "'s", " 2024", ",", " we", "'ve", " ", " _", "x", "_", "\n\n", " y",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer():
    return BytePairTokenizer.train(TEXT, 268)


@given(text=st.one_of(ANY, st.text("slower <>eosbpad 🙂", max_size=30)))
@settings(deadline=None, max_examples=150)
def test_nothing_is_lost(tokenizer, text):
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64
    assert tokenizer.decode(ids, whole=True) == text
    plain = tokenizer.encode(text, special=False)
    assert (plain >= 3).all()
    assert tokenizer.decode(plain) == text
    np.testing.assert_array_equal(tokenizer.encode(text), ids)


@given(text=FEW)
@settings(deadline=None, max_examples=100)
def test_encoding_is_one_pass_for_every_merge(text):
    merges = bare("aababbaabb abab aaa bbb aabb", 9).merges
    symbols = list(text.encode())
    for r, pair in enumerate(merges):
        symbols = merged(symbols, pair, 256 + r)
    assert apply_merges(text.encode(), {pair: r for r, pair in enumerate(merges)}) == symbols


def test_the_layout_of_ids(tokenizer):
    assert len(tokenizer) == 268
    assert [tokenizer.token(i) for i in (PAD, BOS, EOS, 3, 258)] == [b"<pad>", b"<bos>", b"<eos>", b"\x00", b"\xff"]
    assert tokenizer.token(259) == b"ow"
    assert tokenizer.encode("").shape == (0,)
    assert tokenizer.decode([]) == ""


def test_special_tokens_are_never_split(tokenizer):
    np.testing.assert_array_equal(tokenizer.encode("<bos>ow<eos>"), [BOS, 259, EOS])
    assert len(tokenizer.encode("<eos>", special=False)) == 5
    nested = BytePairTokenizer([], ["<a", "<a>"])
    np.testing.assert_array_equal(nested.encode("<a><a"), [1, 0])
    np.testing.assert_array_equal(bare("", 0).encode("<eos>"), list(b"<eos>"))


def test_decoding_ends_at_eos(tokenizer):
    ids = [BOS, 259, PAD, EOS, 259, PAD]
    assert tokenizer.decode(ids) == "<bos>ow<pad>"
    assert tokenizer.decode(ids, whole=True) == "<bos>ow<pad><eos>ow<pad>"
    assert tokenizer.decode(np.array([259, EOS])) == "ow"


def test_pitfall_07_ids_outside(tokenizer):
    for i in (-1, 268):
        with pytest.raises(IndexError, match=f"id {i} is outside the vocabulary of 268"):
            tokenizer.decode([i])


def test_a_text_is_a_str(tokenizer):
    with pytest.raises(TypeError, match="a text is a str, not bytes"):
        tokenizer.encode(b"abc")
    with pytest.raises(TypeError, match="a text is a str, not int"):
        BytePairTokenizer.train([1, 2], 300)


def test_half_a_character_in_python(tokenizer):
    with pytest.raises(ValueError, match=r"character 3 is '\\ud83d', half of a pair"):
        tokenizer.encode("ab\ud83d")


# ---------------------------------------------------------------------- streaming


def test_a_character_is_held_back_until_it_is_whole():
    stream = bare("", 0).stream()
    assert [stream.push(b) for b in "a🙂é".encode()] == ["a", "", "", "", "🙂", "", "é"]
    assert stream.finish() == ""
    cut = bare("", 0).stream()
    assert [cut.push(b) for b in "🙂".encode()[:3]] == ["", "", ""]
    assert cut.finish() == "\ufffd"


@given(data=st.binary(max_size=12))
def test_any_bytes_can_be_decoded(data):
    tokenizer = bare("", 0)
    assert tokenizer.decode(data) == data.decode("utf-8", "replace")


def test_a_stream_says_nothing_after_eos(tokenizer):
    stream = tokenizer.stream()
    assert [stream.push(i) for i in (259, EOS, 259)] == ["ow", "", ""]
    assert stream.ended
    assert [tokenizer.stream(whole=True).push(i) for i in (259, EOS)] == ["ow", "<eos>"]


# ---------------------------------------------------------------------- as plain data


def test_save_and_load(tokenizer):
    again = tokenizer_from_dict(json.loads(json.dumps(tokenizer.to_dict())))
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    np.testing.assert_array_equal(again.encode(TEXT), tokenizer.encode(TEXT))
    assert "268 ids: 3 special, 9 merges" in repr(again)
    characters = CharTokenizer("abc")
    assert tokenizer_from_dict(characters.to_dict()) == characters
    assert tokenizer != characters


@pytest.mark.parametrize(("changes", "message"), [
    ({"kind": "word-piece"}, "kind 'word-piece'.*characters, byte-pair"),
    ({"split": "other"}, "the rule 'gpt2' here, not 'other'"),
    ({"merges": [[97, 97, 97]]}, "pairs of whole numbers"),
    ({"merges": [[97, "b"]]}, "pairs of whole numbers"),
    ({"merges": [[97, 256]]}, "merge 0 is of symbols that exist before it, 0 to 255"),
    ({"merges": [[97, 98], [97, 98]]}, "stands twice"),
    ({"merges": None}, "not a byte-pair vocabulary"),
    ({"special": "<eos>"}, "list of strings"),
    ({"special": ["a", "a"]}, "different strings"),
    ({"special": [""]}, "none empty"),
])
def test_bad_vocabularies_are_refused(tokenizer, changes, message):
    with pytest.raises(ValueError, match=message):
        tokenizer_from_dict(tokenizer.to_dict() | changes)


# ---------------------------------------------------------------------- time


def test_a_long_word_does_not_take_quadratic_time():
    rng = random.Random(0)
    text = "".join(rng.choice("abcdefgh") for _ in range(30_000))
    tokenizer = BytePairTokenizer.train(text, 600)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) < 15_000


@pytest.mark.slow
def test_a_megabyte_takes_seconds():
    rng = random.Random(0)
    words = ["".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(1, 9))) for _ in range(20_000)]
    text = " ".join(rng.choice(words) for _ in range(175_000))
    assert len(text) > 1_000_000
    tokenizer = BytePairTokenizer.train(text, 8192)
    assert tokenizer.decode(tokenizer.encode(text)) == text
