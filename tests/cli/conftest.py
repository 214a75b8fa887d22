import numpy as np
import pytest

from minitx.cli import main
from minitx.data import CharTokenizer
from minitx.files import write_bytes
from minitx.models import Transformer, TransformerConfig
from minitx.training import save_model


@pytest.fixture(autouse=True)
def few_questions(monkeypatch):
    monkeypatch.setattr("minitx.tasks.sequences.HELD_OUT", 20)


@pytest.fixture
def pictures():
    """Draw the pictures in earnest, which takes a second."""


@pytest.fixture(autouse=True)
def sketches(request, monkeypatch):
    """Otherwise everything is done but the drawing."""
    if "pictures" not in request.fixturenames:
        monkeypatch.setattr("minitx.plot._save", lambda figure, path: write_bytes(path, b"\x89PNG"))


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the command line in an empty folder: run(words ...) → (status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        status = main([str(word) for word in words])
        out, err = capsys.readouterr()
        # Where no kernel is compiled yet, one line says that it is being done.
        return status, out, "".join(line for line in err.splitlines(True) if "compiling" not in line)

    return call


@pytest.fixture
def refuse(run):
    """Call it with something wrong: one line on stderr, status 2; returns the line."""

    def call(*words):
        status, _, err = run(*words)
        assert status == 2
        assert err.startswith("minitx: error: ")
        assert err.count("\n") == 1
        assert "Traceback" not in err
        return err

    return call


@pytest.fixture
def language_model(tmp_path):
    """A folder with an untrained decoder on the letters a to j."""
    config = TransformerConfig.gpt2(layers=1, d_model=8, heads=2, vocab_size=13, max_length=8)
    save_model(tmp_path / "lm", Transformer(config, rng=np.random.default_rng(0)), CharTokenizer("abcdefghij"))
    return tmp_path / "lm"
