"""minitx generate: sources and prompts, from the command line and from standard input."""
import io

import pytest
from tiny import TINY

from minitx.training import load_model, save_model

for library in ("safetensors", "matplotlib"):
    pytest.importorskip(library, reason=f"{library} is not installed")


def test_a_prompt_goes_on(run, language_model):
    status, out, err = run("generate", language_model, "abc", "--max-new", 4)
    assert (status, err) == (0, "")
    assert out.startswith("abc")
    assert run("generate", language_model, "abc", "--max-new", 4)[1] == out


def test_standard_input(run, language_model, monkeypatch):
    expected = run("generate", language_model, "abc", "--max-new", 4)[1]
    monkeypatch.setattr("sys.stdin", io.StringIO("abc\n"))
    assert run("generate", language_model, "-", "--max-new", 4)[1] == expected


def test_a_source_is_answered(run):
    assert run("train", "reverse", "--steps", 2, "--out", "a", *TINY)[0] == 0
    status, out, _ = run("generate", "a", "1 2 3", "--max-new", 5)
    assert status == 0
    assert len(out.split()) <= 5
    assert run("generate", "a", "123", "--max-new", 5)[1] == out  # spaces between symbols are not needed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["", "--max-new", 3], "the prompt is empty"),
        (["abz"], "'z' (character 3"),
        (["abc", "--max-new", 0], "--max-new is at least 1, not 0"),
        (["abc", "--max-new", "x"], "invalid int value"),
    ],
)
def test_refused(refuse, language_model, words, said):
    assert said in refuse("generate", language_model, *words)


def test_a_source_longer_than_the_positions(run, refuse):
    assert run("train", "copy", "--steps", 1, "--out", "a", *TINY, "max_length=4")[0] == 0
    assert "5 symbols" in refuse("generate", "a", "1 2 3 4 5")


def test_without_a_vocabulary(refuse, language_model):
    save_model(language_model.parent / "without", load_model(language_model).model)
    assert "has no tokenizer.json" in refuse("generate", language_model.parent / "without", "abc")
    (language_model / "tokenizer.json").unlink()
    assert "tokenizer.json" in refuse("generate", language_model, "abc")
    (language_model / "tokenizer.json").write_text("{}", encoding="utf-8")
    assert "tokenizer.json" in refuse("generate", language_model, "abc")
