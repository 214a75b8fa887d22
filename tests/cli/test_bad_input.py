"""Whatever a user may get wrong: one line on stderr that says what, status 2, no traceback, nothing half-written."""
import json
import sys

import pytest
from tiny import TINY

from minitx.training import Trainer

for library in ("safetensors", "rich", "matplotlib"):
    pytest.importorskip(library, reason=f"{library} is not installed")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "invalid choice: 'trian'"),
        (["train"], "which task? minitx train TASK, one of copy, reverse, sort, add, text, pairs"),
        (["train", "revers"], "no task 'revers'; did you mean 'reverse'?"),
        (["train", "copy", "--stpes", "3"], "--stpes"),
        (["train", "copy", "--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["train", "copy", "--steps", "0"], "steps is at least 1, not 0"),
        (["train", "copy", "--seed", "-1"], "seed is at least 0, not -1"),
        (["train", "copy", "--set", "d_modle=8"], "no setting is called 'd_modle'; did you mean 'd_model'?"),
        (["train", "copy", "--set", "model.lr=8"], "no setting is called 'model.lr'"),
        (["train", "copy", "--set", "lr"], "--set takes key=value, like lr=0.001, not 'lr'"),
        (["train", "copy", "--set", "lr=fast"], "lr is a number, like 0.001, not 'fast'"),
        (["train", "copy", "--set", "d_model=8.5"], "d_model is a whole number"),
        (["train", "copy", "--set", "heads=3"], "heads divides d_model"),
        (["train", "copy", "--set", "kv_heads=3"], "kv_heads divides heads"),
        (["train", "copy", "--set", "activation=rleu"], "did you mean 'relu'?"),
        (["train", "copy", "--set", "architecture=decoder"], "copy is a task for architecture 'encoder-decoder'"),
        (["train", "copy", "--set", "vocab_size=5"], "vocab_size 5 is too small"),
        (["train", "copy", "--set", "max_length=5"], "max_length 5 is too small: copy has sequences of 13 positions"),
        (["train", "copy", "--set", "task.longest=true"], "longest is a whole number"),
        (["train", "copy", "--set", "task.long=3"], "no setting is called 'task.long'; did you mean 'longest'?"),
        (["train", "copy", "--config", "missing.toml"], "missing.toml: No such file or directory"),
        (["train", "copy", "--from", "missing"], "missing is not a checkpoint folder: it does not exist"),
        (["train", "copy", "--file", "x"], "copy makes up its own data and takes no file"),
        (["train", "text"], "text needs a file: --file F"),
        (["train", "text", "--file", "missing.txt"], "missing.txt: there is no such file"),
        (["generate"], "the following arguments are required: DIR, PROMPT"),
        (["generate", "missing", "1 2"], "missing is not a checkpoint folder"),
    ],
)  # fmt: skip
def test_words(refuse, tmp_path, words, said):
    assert said in refuse(*words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.toml", "lr = ", "a.toml is not valid TOML"),
        ("a.json", "{", "a.json is not valid JSON"),
        ("a.json", "[1]", "a.json holds a table of settings, not list"),
        ("a.json", '{"modle": {"d_model": 8}}', "no setting is called 'modle'"),
        ("a.json", '{"model": 3}', "model is a table of settings, not 3"),
        ("a.json", '{"training": {"warmpu": 3}}', "no setting is called 'training.warmpu'; did you mean 'warmup'?"),
        ("a.toml", "betas = 0.9", "betas is 2 numbers"),
        ("a.toml", "[task]\nname = 'sort'", "a.toml is of the task sort, not copy"),
    ],
)
def test_configuration_files(refuse, tmp_path, name, content, said):
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert said in refuse("train", "copy", "--config", name)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("task", "content", "said"),
    [
        ("text", b"", "f is empty"),
        ("text", b"too short", "has 9 characters"),
        ("text", b"caf\xe9" * 1000, "f is not UTF-8: byte 0xe9 at position 3 (line 1)"),
        ("pairs", b"", "f is empty"),
        ("pairs", b"one\teins\ntwo zwei\n", "f, line 2: no tab"),
        ("pairs", b"one\teins\n", "f has only one source"),
    ],
)
def test_data_files(refuse, tmp_path, task, content, said):
    (tmp_path / "f").write_bytes(content)
    assert said in refuse("train", task, "--file", "f")
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_cannot_be_written(refuse, tmp_path):
    (tmp_path / "file").write_text("here first", encoding="utf-8")
    assert "file" in refuse("train", "copy", "--out", "file/run", *TINY)
    assert "file" in refuse("train", "copy", "--out", "file", *TINY)
    (tmp_path / "runs").write_text("in the way", encoding="utf-8")
    assert "runs" in refuse("train", "copy", *TINY)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "runs"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "here first"


def test_a_folder_that_refuses_files_is_taken_away_again(refuse, tmp_path, monkeypatch):
    from pathlib import Path

    def denied(self, _):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "write_bytes", denied)
    assert "Permission denied" in refuse("train", "copy", "--out", "a/b/c", *TINY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = 2", "version is that of a card, and this minitx reads up to 1, not 2"),
        ("version = 1\n[modle]\nwidth = 8", "a card has no modle; did you mean 'model'?"),
        ("version = 1\n[model]\nd_model = 8", "a card has no model.d_model"),
        ("version = 1\n[model.attention]\nhaeds = 8", "did you mean model.attention.heads?"),
        ("version = 1\n[training.run]\nstep = 8", "training.run.step: did you mean training.run.steps?"),
        ("version = 1\n[training]\nprecision = 'bf16'", "training.precision of a run is fp32 or fp64, not 'bf16'"),
        ("version = 1\n[training]\nseeds = [1, 2]", "training.seeds of a run is one number in a list, [0], not [1, 2]"),
        ("version = 1\n[training]\noptimizer = 'sgd'", "training.optimizer is a table with its name"),
        ("version = 1\n[inference]\nbach = 1", "a card has no inference.bach: did you mean inference.batch?"),
        ("[model.attention]\nheads = 2", "model.attention is a table, as in a card; a card begins with version = 1"),
    ],
)
def test_a_card_that_cannot_be_trained(refuse, tmp_path, text, words):
    (tmp_path / "card.toml").write_text(text, encoding="utf-8")
    said = refuse("train", "copy", "--config", "card.toml", *TINY)
    assert "card.toml: " in said
    assert words in said


def test_a_run_whose_card_was_changed(refuse, run, tmp_path):
    assert run("train", "copy", "--steps", 1, "--out", "a", *TINY)[0] == 0
    card = json.loads((tmp_path / "a/config.json").read_text(encoding="utf-8"))
    card["model"]["norm"]["epsilon"] = 0.1
    (tmp_path / "a/config.json").write_text(json.dumps(card), encoding="utf-8")
    for words in ("train --resume a", "train copy --from a", "generate a 1", "card a"):
        assert "it was changed after its weights were made" in refuse(*words.split())


def test_a_folder_with_a_run_in_it(refuse, run):
    assert run("train", "copy", "--steps", 1, "--out", "a", *TINY)[0] == 0
    assert "a holds a run already: --resume a goes on with it" in refuse("train", "copy", "--out", "a", *TINY)


def test_a_run_that_diverges(refuse, tmp_path):
    words = refuse("train", "copy", "--steps", 9, "--out", "a", *TINY, "optimizer=sgd", "lr=1e38", "clip=0",
                   "warmup=0", "save_every=1", "schedule=constant")  # fmt: skip
    assert "not finite in" in words
    assert "Try a lower lr" in words
    assert "the checkpoint of step" in words
    assert Trainer  # the folder it names is whole:
    card = json.loads((tmp_path / "a/config.json").read_text(encoding="utf-8"))
    assert card["training"]["optimizer"]["lr"] == 1e38


@pytest.mark.parametrize("library", ["safetensors", "matplotlib"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(refuse, tmp_path, monkeypatch, library):
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    words = refuse("train", "copy", *TINY)
    assert f'{library} is not installed, and this needs it: in the clone, pip install -e ".[app]"' in words
    assert list(tmp_path.iterdir()) == []


def test_a_traceback_on_request(run, monkeypatch):
    monkeypatch.setenv("MINITX_TRACEBACK", "1")
    with pytest.raises(ValueError, match="steps is at least 1"):
        run("train", "copy", "--steps", 0)
