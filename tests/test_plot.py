"""Pictures: what they are made from, and that they are made."""
import json

import numpy as np
import pytest

from minitx import plot
from minitx.models import Transformer
from minitx.tasks import get_task

pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def test_loss_curves(tmp_path):
    lines = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": None}, {"step": 3, "loss": 0.01, "held_out": {"loss": 0.02}}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    plot.loss(tmp_path / "log.jsonl", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_an_empty_log(tmp_path):
    (tmp_path / "log.jsonl").write_text("", encoding="utf-8")
    plot.loss(tmp_path / "log.jsonl", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").exists()


def test_maps_of_an_encoder_decoder(tmp_path):
    task = get_task("reverse")
    model = Transformer(task.config(layers=2, d_model=12, heads=3, dropout=0.5), rng=np.random.default_rng(0))
    maps, down, across = plot.attention_maps(model, task)
    assert list(maps) == ["decoder.0.cross", "decoder.1.cross"]
    assert len(across) == 13  # twelve digits and the end
    assert across[-1] == down[-1] == "end"
    assert down[:-1] == across[:-1][::-1]  # so that looking at the right symbol is an anti-diagonal
    for w in maps.values():
        assert w.shape == (3, 13, 13)
        np.testing.assert_allclose(w.sum(-1), 1, rtol=1e-5)
    assert model.training  # as it was
    plot.attention(model, task, tmp_path / "attention.png")
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")


def test_maps_of_a_decoder(tmp_path):
    text = "2 $x_1$ and \u4e2d\u6587\n" * 80
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    task = get_task("text", file=tmp_path / "text.txt", context=40)
    model = Transformer(task.config(layers=1, d_model=8, heads=2), rng=np.random.default_rng(0))
    maps, down, across = plot.attention_maps(model, task)
    assert list(maps) == ["decoder.0.self"]
    assert down is across
    assert len(across) == plot.SYMBOLS
    w = maps["decoder.0.self"]
    assert w.shape == (2, plot.SYMBOLS, plot.SYMBOLS)
    assert (np.triu(w, 1) == 0).all()
    np.testing.assert_allclose(w.sum(-1), 1, rtol=1e-5)
    plot.attention(model, task, tmp_path / "attention.png")  # signs of mathematics, and characters that the font lacks
    assert (tmp_path / "attention.png").exists()
