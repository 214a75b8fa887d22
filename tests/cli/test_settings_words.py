"""How the word after `key=` is read."""
import pytest

from minitx.cli.common import UserError, words
from minitx.cli.settings import gather, parse


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("12", 12), ("-3", -3), ("1e-3", 1e-3), ("0.5", 0.5), ("true", True), ("False", False), ("none", None),
        ("null", None), ("[0.9, 0.98]", [0.9, 0.98]), ("(0.9, 0.98)", (0.9, 0.98)), ("cosine", "cosine"), ("", ""),
        ("'12'", "12"), ("__import__('os')", "__import__('os')"), ("1+1", "1+1"),
    ],
)  # fmt: skip
def test_parse(word, value):
    assert parse(word) == value
    assert type(parse(word)) is type(value)


@pytest.mark.parametrize("key", ["position", "model.position", "model.position.method", "head", "model.output.head"])
def test_none_is_a_word_where_it_is_a_choice(key):
    assert parse("none", key) == "none"
    assert parse("null", key) is None


def test_none_is_nothing_elsewhere():
    tables = gather("copy", [], ["position=none", "window=none", "clip=none"])
    assert tables == {"model": {"position": "none", "window": None}, "training": {"clip": None}, "task": {}}


def test_every_key_finds_its_table():
    tables = gather("copy", [{"layers": 1, "training": {"lr": 1}}], ["lr=2", "model.heads=2", "longest=5"])
    assert tables == {"model": {"layers": 1, "heads": 2}, "training": {"lr": 2}, "task": {"longest": 5}}


def test_a_key_may_be_said_as_in_a_card():
    tables = gather("copy", [], ["model.width=8", "model.attention.heads=2", "training.optimizer.lr=2"])
    assert tables == {"model": {"d_model": 8, "heads": 2}, "training": {"lr": 2}, "task": {}}
    with pytest.raises(UserError, match=r"no setting is called 'model.attention.haeds'"):
        gather("copy", [], ["model.attention.haeds=2"])


def test_words_of_an_error_fit_one_line():
    assert words(ValueError("two\n  lines")) == "two lines"
    assert words(PermissionError(13, "Permission denied", "a/b")) == "a/b: Permission denied"
    assert words(RuntimeError()) == "RuntimeError"
