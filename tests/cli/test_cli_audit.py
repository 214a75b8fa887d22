"""minitx audit: a folder, presets, the JSON, the status."""
import json

import pytest

from minitx import masks
from minitx.audit.finding import QUESTIONS


class OffByOne(masks.causal):
    __slots__ = ()

    def bounds(self, position, T_k):
        return 0, position + 2


@pytest.fixture
def leak(monkeypatch):
    monkeypatch.setattr("minitx.nn.blocks.CAUSAL", OffByOne())


def test_presets(run):
    status, out, _ = run("audit", "gpt2", "vit")
    assert status == 0
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 110
    assert "gpt2: decoder, vocabulary 23, length 11" in out
    assert "vit: encoder, patches of 5 numbers" in out
    assert out.splitlines()[-1] == "nothing leaks"
    for row in ("future", "padding", "batch", "documents"):
        assert any(line.startswith(f"{row} ") and line.endswith("no leak") for line in out.splitlines())
    assert "an encoder sees both sides by design" in out


def test_a_folder(run, language_model):
    status, out, _ = run("audit", language_model)
    assert status == 0
    assert "vocabulary 13, length 8" in out  # as long as its learned positions


def test_settings_of_a_preset(run):
    status, out, _ = run("audit", "llama", "--set", "layers=1", "vocab_size=31", "--length", 6)
    assert status == 0
    assert "vocabulary 31, length 6" in out


def test_a_leak(run, leak):
    status, out, _ = run("audit", "gpt2")
    assert status == 1
    assert "position 0 moves by" in out
    assert "when token 1 is changed" in out
    assert out.splitlines()[-1].startswith("LEAKS: gpt2 (future")


def test_noise(run, leak):
    status, out, _ = run("audit", "gpt2", "--set", "layers=1", "--noise", "--seconds", 20)
    assert status == 1
    assert "noise" in out.splitlines()[-1]


def test_json(run, tmp_path):
    status, out, _ = run("audit", "gpt2", "bert", "--json")
    figures = json.loads(out)
    assert status == 0
    assert set(figures) == {"format", "versions", "passed", "models"}
    assert (figures["format"], figures["passed"]) == (1, True)
    for model in figures["models"]:
        assert set(model) == {"title", "passed", "findings"}
        assert [f["row"] for f in model["findings"]] == [row for row in QUESTIONS if row != "noise"]
        for finding in model["findings"]:
            assert set(finding) == {"row", "question", "leak", "size", "at", "by", "said"}
            assert finding["leak"] is False or (finding["leak"] is None and finding["said"])
    status, text, _ = run("audit", "gpt2", "--json", tmp_path / "audit.json")
    assert "nothing leaks" in text
    assert json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))["models"][0]["passed"]


def test_misuse(refuse, language_model):
    assert "gpt3 is neither a folder nor a preset; did you mean 'gpt2'?" in refuse("audit", "gpt3")
    assert "as it is" in refuse("audit", language_model, "--set", "layers=3")
    assert "add --noise" in refuse("audit", "gpt2", "--seconds", 3)
    assert "--seconds is above 0" in refuse("audit", "gpt2", "--noise", "--seconds", 0)
    assert "at least 4 places" in refuse("audit", "gpt2", "--length", 2)
    assert "d_model=32" in refuse("audit", "gpt2", "--set", "layers")
    assert "heads" in refuse("audit", "gpt2", "--set", "heads=5")
    refuse("audit")
