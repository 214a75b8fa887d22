"""text and pairs: tasks on a user's own file."""
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from minitx.data import EOS, IGNORED
from minitx.data.split import text_is_held_out
from minitx.tasks import get_task


def write(tmp_path, text, name="f.txt"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def sentences(n=200):
    rng = np.random.default_rng(3)
    words = ["lorem", "ipsum", "dolor", "sit", "amet,", "consectetur", "Über", "12"]
    return "".join(" ".join(rng.choice(words, 7)) + "\n" for _ in range(n))


# ---------------------------------------------------------------------- text


def test_text_trains_on_windows_of_the_first_nine_tenths(tmp_path):
    text = sentences()
    task = get_task("text", file=write(tmp_path, text), context=17)
    batch = task.batch(np.random.default_rng(3), 500)
    assert batch.ids.shape == batch.targets.shape == (500, 17)
    assert batch.tokens == 500 * 17
    head, tail = text[: task.cut], text[task.cut :]
    assert len(tail) == len(text) // 10
    for ids, targets in zip(batch.ids[:50], batch.targets):
        window = task.tokenizer.decode([*ids, targets[-1]])
        assert window in head
        np.testing.assert_array_equal(ids[1:], targets[:-1])
    starts = {task.tokenizer.decode(ids) for ids in task.batch(np.random.default_rng(3), 20000).ids}
    assert head[:17] in starts  # the first and the last window are among them
    assert head[-18:-1] in starts


def test_text_asks_for_each_held_out_character_once(tmp_path):
    text = sentences()
    task = get_task("text", file=write(tmp_path, text), context=17)
    batches = task.held_out()
    said = "".join(task.tokenizer.decode(row) for batch in batches for row in batch.targets)
    assert text[task.cut + 1 :].startswith(said)
    assert len(text) - task.cut - 1 - len(said) < 17
    assert sum(map(len, task.held_out(5))) == 5


def test_seen_8_grams_by_hand(tmp_path):
    # 100 characters, the last 10 of them "bcdefghixx": 3 runs of 8, of which two stand in the training text
    text = "abcdefghi" * 10 + "bcdefghixx"
    task = get_task("text", file=write(tmp_path, text), context=9)
    assert task.text[task.cut :] == "bcdefghixx"
    assert task.seen_grams == pytest.approx(1 / 3)  # bcdefghi is there, cdefghix and defghixx are not


def test_seen_8_grams_counts_repeats(tmp_path):
    text = sentences(60)
    task = get_task("text", file=write(tmp_path, text), context=9)
    head, tail = text[: task.cut], text[task.cut :]
    grams = Counter(tail[i : i + 8] for i in range(len(tail) - 7))
    expected = sum(n for gram, n in grams.items() if gram in head) / grams.total()
    assert 0 < expected < 1
    assert task.seen_grams == pytest.approx(expected)


def test_text_vocabulary_is_that_of_the_whole_file(tmp_path):
    text = "ab" * 100 + "z"
    task = get_task("text", file=write(tmp_path, text), context=9)
    assert task.tokenizer.symbols == "abz"
    assert task.config().vocab_size == 6
    assert task.config().max_length == 9


def test_text_too_short_for_the_context(tmp_path):
    path = write(tmp_path, "abcd" * 100)
    with pytest.raises(ValueError, match=r"400 characters, and a context of 64 needs at least 650 .*or context=39"):
        get_task("text", file=path)
    assert get_task("text", file=path, context=39).held_out()
    with pytest.raises(ValueError, match=r"a longer text$"):
        get_task("text", file=write(tmp_path, "abcd"))
    with pytest.raises(ValueError, match="context is at least 1"):
        get_task("text", file=path, context=0)


def test_a_model_with_fewer_positions_than_the_context_is_refused(tmp_path):
    task = get_task("text", file=write(tmp_path, sentences()), context=17)
    with pytest.raises(ValueError, match="max_length 16 is too small: text has sequences of 17 positions"):
        task.config(max_length=16)


# ---------------------------------------------------------------------- pairs


def pairs_file(tmp_path, n=400, extra=""):
    return write(tmp_path, "".join(f"word {i}\tWort {i}\n" for i in range(n)) + extra, "p.tsv")


def both_sides(task):
    train = [source for source, _ in task.train]
    held = [task.tokenizer.decode(e.source) for e in task._examples]
    return train, held


def test_pairs_are_held_out_by_a_hash_of_the_source(tmp_path):
    task = get_task("pairs", file=pairs_file(tmp_path))
    train, held = both_sides(task)
    assert len(train) + len(held) == 400
    assert not set(train) & set(held)
    assert 20 < len(held) < 60
    assert all(map(text_is_held_out, held))
    assert not any(map(text_is_held_out, train))


def test_pairs_batches(tmp_path):
    task = get_task("pairs", file=pairs_file(tmp_path))
    batch = task.batch(np.random.default_rng(3), 101)
    for ids, targets, length in zip(batch.ids, batch.targets, batch.mask.lengths):
        assert ids[length - 1] == EOS
        source, target = task.tokenizer.decode(ids), task.tokenizer.decode(targets[targets != IGNORED])
        assert target == source.replace("word", "Wort")
        assert not text_is_held_out(source)


def test_a_repeated_pair_counts_once_and_a_source_with_several_targets_stays_together(tmp_path):
    i = next(i for i in range(400) if text_is_held_out(f"word {i}"))
    j = next(i for i in range(400) if not text_is_held_out(f"word {i}"))
    again = f"word {i}\tWort {i}\n" f"word {i}\tVokabel {i}\n" f"word {j}\tWort {j}\n" f"word {j}\tVokabel {j}\n"
    task = get_task("pairs", file=pairs_file(tmp_path, extra=again))
    assert task.repeated == 2
    assert "2 repeated lines count once" in task.describe()
    train, held = both_sides(task)
    assert train.count(f"word {j}") == 2
    assert held.count(f"word {i}") == 1
    (example,) = (e for e in task._examples if task.tokenizer.decode(e.source) == f"word {i}")
    assert [task.tokenizer.decode(t) for t in example.targets] == [f"Wort {i}", f"Vokabel {i}"]


def test_sources_on_both_sides_but_for_case_or_spaces_are_dropped_and_counted(tmp_path):
    i = next(i for i in range(400) if text_is_held_out(f"word {i}"))
    twin = next(t for t in (f"WORD {i}", f"Word {i}", f"word  {i}", f"wOrd {i}") if not text_is_held_out(t))
    whole = get_task("pairs", file=pairs_file(tmp_path))
    task = get_task("pairs", file=pairs_file(tmp_path, extra=f"{twin}\tWort {i}\n"))
    assert whole.dropped == 0
    assert task.dropped == 1
    train, held = both_sides(task)
    assert twin in train
    assert f"word {i}" not in held
    assert len(held) == len(both_sides(whole)[1]) - 1
    assert "1 held-out pairs dropped" in task.describe()


def test_a_small_file_holds_out_one_source_at_least(tmp_path):
    names = [f"n{i}" for i in range(50) if not text_is_held_out(f"n{i}")][:3]
    task = get_task("pairs", file=write(tmp_path, "".join(f"{s}\tx\n" for s in names)))
    train, held = both_sides(task)
    assert (len(train), len(held)) == (2, 1)
    with pytest.raises(ValueError, match="only one source"):
        get_task("pairs", file=write(tmp_path, "a\tb\na\tc\n"))


def test_the_longest_text_decides_the_positions_and_its_line_is_named(tmp_path):
    task = get_task("pairs", file=pairs_file(tmp_path, extra=f"long\t{'x' * 70}\n"))
    assert task.config().max_length == 71
    with pytest.raises(ValueError, match=r"max_length 70 is too small: .*p\.tsv \(line 401\) has 70 characters"):
        task.config(max_length=70)


def test_the_table_of_lengths_has_at_most_twelve_rows(tmp_path):
    text = "".join(f"{'s' * (i % 90)}{i}\tt\n" for i in range(2000))
    task = get_task("pairs", file=write(tmp_path, text))
    labels = list(dict.fromkeys(task.label(len(e.source)) for e in task.examples()))
    assert len(labels) <= 12
    spans = [tuple(map(int, label.split("-"))) for label in labels]
    assert all(b[0] == a[1] + 1 for a, b in pairwise(spans))
    for e in task.examples():
        low, high = map(int, task.label(len(e.source)).split("-"))
        assert low <= len(e.source) <= high


def test_questions_are_a_fixed_choice_in_order_of_length(tmp_path):
    task = get_task("pairs", file=pairs_file(tmp_path, 3000))
    lengths = [len(e.source) for e in task.examples()]
    assert lengths == sorted(lengths)
    some = {task.tokenizer.decode(e.source) for e in task.examples(11)}
    assert len(some) == 11
    assert some < {task.tokenizer.decode(e.source) for e in task.examples(50)}


def test_a_tab_is_missing(tmp_path):
    with pytest.raises(ValueError, match=r"p\.tsv, line 401: no tab"):
        get_task("pairs", file=pairs_file(tmp_path, extra="no tab\n"))
