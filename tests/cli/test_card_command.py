"""minitx card: one card, two side by side, and what a model costs."""
import json

import pytest

from minitx.models import Card, TransformerConfig
from minitx.models.presets import PRESETS


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_in_full_size(run, preset):
    status, out, err = run("card", preset)
    assert (status, err) == (0, "")
    assert "fingerprint " in out
    assert out.isascii()
    status, out, _ = run("card", preset, "--cost")
    assert status == 0
    assert out.isascii()
    assert "resident in inference" in out


def test_the_tree_shows_shapes_and_counts(run):
    _, out, _ = run("card", "gpt2")
    assert "embedding: weight 50257 x 768  [38,597,376]" in out
    assert "0 - 11  [7,087,872 each]" in out
    assert "decoder  [124,439,808]" in out


def test_then_and_now(run):
    status, out, _ = run("card", "original", "llama")
    assert status == 0
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("*")}
    for path, then, now in [
        ("architecture", "encoder-decoder", "decoder"),
        ("norm.placement", "post", "pre"),
        ("norm.type", "layer", "rms"),
        ("position.method", "sinusoidal", "rotary"),
        ("ffn.activation", "relu", "swiglu"),
        ("attention.heads", "8", "32"),
    ]:
        assert rows[path].split()[2:] == [then, now]
    assert "attention.kernel" not in rows


def test_the_figures_of_the_course(run):
    _, out, _ = run("card", "original", "--cost", "--batch", 1, "--length", 4096, "--dtype", "fp16")
    assert "256 MiB" in out
    assert "134,217,728 numbers" in out
    _, out, _ = run("card", "llama", "--cost", "--length", 8192, "--dtype", "fp16")
    assert next(line for line in out.splitlines() if "KV cache" in line).split()[2:4] == ["1", "GiB"]


def test_int8_stores_only(run):
    _, out, _ = run("card", "llama", "--cost", "--dtype", "int8")
    assert "int8 is how weights and cache are stored" in out
    assert next(line for line in out.splitlines() if "weights  " in line).split()[1:3] == ["7.479", "GiB"]


def test_a_preset_is_scaled(run):
    _, out, _ = run("card", "mixtral", "--set", "d_model=16", "heads=4", "layers=2", "vocab_size=7", "--cost")
    assert "used by one token" in out
    _, out, _ = run("card", "llama", "gpt2", "--set", "layers=3")
    assert "  layers " in out


def test_as_data(run, tmp_path):
    for kind in ("json", "toml"):
        _, out, _ = run("card", "gemma2", "--format", kind)
        (tmp_path / f"g.{kind}").write_text(out, encoding="utf-8")
        assert Card.read(tmp_path / f"g.{kind}").config == TransformerConfig.gemma2()
        assert run("card", tmp_path / f"g.{kind}", "--cost")[0] == 0


def test_a_trained_model(run, language_model):
    status, out, _ = run("card", language_model, "--format", "json")
    assert status == 0
    card = Card.from_dict(json.loads(out))
    assert card.config == TransformerConfig.gpt2(layers=1, d_model=8, heads=2, vocab_size=13, max_length=8)
    assert card.tokenizer == "characters"
    assert run("card", language_model, "gpt2")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lama"], "lama is neither a preset nor a folder or file; did you mean 'llama'?"),
        (["."], ". is not a checkpoint folder: it has no config.json"),
        (["gpt2", "--length", 3], "add --cost"),
        (["gpt2", "--cost", "--length", 0], "length is a whole number, at least 1, not 0"),
        (["gpt2", "--cost", "--length", 1025], "past the 1024 learned positions"),
        (["gpt2", "--cost", "--dtype", "fp8"], "invalid choice: 'fp8'"),
        (["gpt2", "llama", "--cost"], "two cards are printed side by side: no --cost"),
        (["gpt2", "--set", "heads=7"], "heads divides d_model"),
        (["gpt2", "--set", "heads"], "--set takes key=value"),
    ],
)
def test_refused(refuse, words, said):
    assert said in refuse("card", *words)


def test_a_broken_vocabulary_is_named(refuse, language_model):
    (language_model / "tokenizer.json").write_text("{", encoding="utf-8")
    assert "tokenizer.json: " in refuse("card", language_model)


def test_a_wrong_file_is_named(refuse, tmp_path):
    (tmp_path / "card.toml").write_text("version = 1\n[model.attention]\nheads = 7\n", encoding="utf-8")
    assert "card.toml: model.attention.heads: heads divides d_model" in refuse("card", tmp_path / "card.toml")
    (tmp_path / "card.json").write_text("{", encoding="utf-8")
    assert "card.json: " in refuse("card", tmp_path / "card.json")
