"""minitx train: a run from its first step to its pictures; its folder; taking it up again; starting from another."""
import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from tiny import TINY

from minitx.tasks import get_task
from minitx.training import CLOCKS, Trainer, load_card, load_model, load_training, read_log

for library in ("safetensors", "rich", "matplotlib"):
    pytest.importorskip(library, reason=f"{library} is not installed")

FILES = {
    "config.json", "tokenizer.json", "model.safetensors", "training.safetensors", "log.jsonl", "loss.png",
    "attention.png",
}  # fmt: skip


@pytest.mark.parametrize("task", ["copy", "reverse", "sort"])
def test_a_run_shows_how_good_it_is_and_leaves_everything(run, tmp_path, task, pictures):
    status, out, err = run("train", task, "--steps", 6, *TINY)
    assert (status, err) == (0, "")
    folder = tmp_path / "runs" / task
    assert {path.name for path in folder.iterdir()} == FILES
    for picture in ("loss.png", "attention.png"):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert "held-out exact match" in out
    assert [line.split()[0] for line in out.splitlines() if line.startswith("     ")][:2] == ["1", "2"]
    assert "     all" in out
    assert out.count("  prediction  ") == 5
    assert f"saved in runs/{task}" in out
    assert f'minitx generate runs/{task} "' in out
    assert "step 6/6" in out


def test_quiet(run):
    status, out, _ = run("train", "copy", "--steps", 4, "--quiet", *TINY)
    assert status == 0
    assert "step 4/4" not in out
    assert "held-out exact match" in out


def test_text(run, tmp_path, pictures):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} mal {m} ist {n * m}.\n" for n in range(30) for m in range(20)), encoding="utf-8")
    status, out, _ = run("train", "text", "--file", text, "--steps", 4, "--set", "layers=1", "d_model=8", "heads=2",
                         "context=16", "batch_size=3")  # fmt: skip
    assert status == 0
    assert "bits per character" in out
    assert {path.name for path in (tmp_path / "runs" / "text").iterdir()} == FILES
    status, out, _ = run("generate", "runs/text", "7 mal 8 ", "--max-new", 5)
    assert status == 0
    assert out.startswith("7 mal 8 ")
    assert len(out) == len("7 mal 8 ") + 5 + 1


def test_pairs(run, tmp_path):
    table = tmp_path / "pairs.tsv"
    table.write_text("".join(f"word {n}\t{n} drow\n" for n in range(40)), encoding="utf-8")
    status, out, _ = run("train", "pairs", "--file", table, "--steps", 3, *TINY[:-1])
    assert status == 0
    assert "held-out exact match" in out


def test_a_second_run_goes_elsewhere_and_says_so(run, tmp_path):
    assert run("train", "copy", "--steps", 2, *TINY)[0] == 0
    first = (tmp_path / "runs/copy/log.jsonl").read_bytes()
    for n in (2, 3):
        status, out, _ = run("train", "copy", "--steps", 2, *TINY)
        assert status == 0
        assert f"runs/copy holds a run already, so this one goes to runs/copy-{n}" in out
        assert (tmp_path / f"runs/copy-{n}/model.safetensors").exists()
    assert (tmp_path / "runs/copy/log.jsonl").read_bytes() == first


def test_a_seed_decides_everything(run, tmp_path):
    for out, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert run("train", "copy", "--steps", 3, "--out", out, "--seed", seed, *TINY)[0] == 0
    a, b, c = (load_training(tmp_path / name).weights for name in "abc")
    assert all((a[k] == b[k]).all() for k in a)
    assert any((a[k] != c[k]).any() for k in a)


def test_settings_from_a_file_and_from_the_line(run, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text("seed = 5\n[model]\nlayers = 1\nd_model = 8\nheads = 2\n[training]\nsteps = 3\nlr = 0.01\n"
                    "betas = [0.8, 0.9]\n[task]\noptions = {longest = 3}\n", encoding="utf-8")  # fmt: skip
    status, _, _ = run("train", "copy", "--config", file, "--set", "training.lr=0.02", "batch_size=4", "--out", "a")
    assert status == 0
    card = json.loads((tmp_path / "a/config.json").read_text(encoding="utf-8"))
    assert card["model"]["width"] == 8
    training = card["training"]
    assert training["task"]["options"] == {"longest": 3}
    assert (training["optimizer"]["lr"], training["optimizer"]["betas"]) == (0.02, [0.8, 0.9])
    assert (training["seeds"], training["run"]["steps"]) == ([5], 3)
    # A run's own card makes the same run again, task and all.
    assert run("train", "--config", "a/config.json", "--out", "b")[0] == 0
    assert (tmp_path / "b/config.json").read_bytes() == (tmp_path / "a/config.json").read_bytes()
    assert (tmp_path / "b/model.safetensors").read_bytes() == (tmp_path / "a/model.safetensors").read_bytes()


def test_a_card_as_settings(run, tmp_path):
    """Nested, as config.json is, in TOML; what it leaves out has the task's defaults."""
    file = tmp_path / "card.toml"
    file.write_text(
        'version = 1\n[model]\nwidth = 8\nlayers = 1\n[model.attention]\nheads = 2\n'
        '[model.dropout]\nresidual = 0.25\n'
        '[training]\nprecision = "fp64"\nseeds = [5]\n[training.optimizer]\nname = "sgd"\nlr = 0.01\n'
        '[training.schedule]\nname = "linear"\n[training.run]\nsteps = 3\nbatch_size = 2\n'
        '[training.task]\nname = "copy"\noptions = {longest = 3}\n[inference]\nbatch = 1\n',
        encoding="utf-8",
    )
    status, _, _ = run("train", "--config", file, "--set", "momentum=0.5", "--out", "a")
    assert status == 0
    card = load_card(tmp_path / "a")
    config = card.config
    assert (config.d_model, config.layers, config.heads, config.dropout) == (8, 1, 2, 0.25)
    assert config.vocab_size == len(get_task("copy").tokenizer)
    training = card.training
    assert (training.precision, training.seeds, training.task["options"]) == ("fp64", [5], {"longest": 3})
    assert (training.optimizer["name"], training.optimizer["momentum"]) == ("sgd", 0.5)
    assert (training.schedule["name"], training.run["steps"], training.run["batch_size"]) == ("linear", 3, 2)
    status, out, _ = run("card", "a")
    assert status == 0
    assert f"fingerprint {card.fingerprint()}" in out
    assert "steps                3" in out
    # What `minitx card` prints makes the same run again.
    for kind in ("json", "toml"):
        (tmp_path / f"a.{kind}").write_text(run("card", "a", "--format", kind)[1], encoding="utf-8")
        assert run("train", "--config", f"a.{kind}", "--out", kind)[0] == 0
        assert (tmp_path / kind / "config.json").read_bytes() == (tmp_path / "a/config.json").read_bytes()
        assert (tmp_path / kind / "model.safetensors").read_bytes() == (tmp_path / "a/model.safetensors").read_bytes()


# ---------------------------------------------------------------------- stopping and going on


def stop_in_step(monkeypatch, step):
    train_step = Trainer.train_step

    def stopping(self):
        if self.step == step - 1:
            signal.raise_signal(signal.SIGINT)
        return train_step(self)

    monkeypatch.setattr(Trainer, "train_step", stopping)


def test_ctrl_c_saves_and_says_how_to_go_on(run, tmp_path, monkeypatch):
    settings = ["--steps", 6, *TINY, "eval_every=2", "log_every=1", "dropout=0.1"]
    assert run("train", "copy", "--out", "whole", *settings)[0] == 0
    with monkeypatch.context() as patch:
        stop_in_step(patch, 3)
        status, out, _ = run("train", "copy", "--out", "parts", *settings)
    assert status == 130
    assert "stopped after step 3 of 6, and saved. To go on:\n  minitx train --resume parts\n" in out
    status, out, _ = run("train", "--resume", "parts")
    assert status == 0
    assert "going on after step 3" in out

    def timeless(name):
        return [{k: v for k, v in r.items() if k not in CLOCKS} for r in read_log(tmp_path / name / "log.jsonl")]

    assert timeless("parts") == timeless("whole")
    a, b = load_training(tmp_path / "whole"), load_training(tmp_path / "parts")
    for name, value in a.weights.items():
        np.testing.assert_array_equal(b.weights[name], value)
    assert (tmp_path / "parts/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_more_steps_than_were_asked_for(run, tmp_path):
    assert run("train", "copy", "--steps", 2, "--out", "a", *TINY)[0] == 0
    status, out, _ = run("train", "copy", "--resume", "a", "--steps", 4)
    assert status == 0
    assert load_training(tmp_path / "a").values["step"] == 4
    assert json.loads((tmp_path / "a/config.json").read_text(encoding="utf-8"))["training"]["run"]["steps"] == 4
    status, out, _ = run("train", "--resume", "a", "--set", "d_model=8", "steps=5")  # what is the case may be said
    assert status == 0
    assert "going on after step 4" in out


def test_a_finished_run_shows_its_result_again(run, tmp_path):
    shown = run("train", "copy", "--steps", 2, "--out", "a", *TINY)[1]
    before = (tmp_path / "a/training.safetensors").read_bytes()
    status, out, _ = run("train", "--resume", "a")
    assert status == 0
    assert "going on after step 2, the last; --steps N asks for more" in out
    assert out[out.index("held-out exact match") :] == shown[shown.index("\nheld-out exact match\n") + 1 :]
    assert (tmp_path / "a/training.safetensors").read_bytes() == before


def test_what_cannot_be_resumed(run, refuse, tmp_path):
    run("train", "copy", "--steps", 2, "--out", "a", *TINY)
    assert "is a run of copy, not of sort" in refuse("train", "sort", "--resume", "a")
    assert "another configuration: d_model 8 there, 16 here" in refuse("train", "--resume", "a", "--set", "d_model=16")
    assert "longest 3 there, 4 here" in refuse("train", "--resume", "a", "--set", "task.longest=4")
    assert "seed 0 there, 3 here" in refuse("train", "--resume", "a", "--seed", 3)
    assert "--out and --resume" in refuse("train", "--resume", "a", "--out", "b")
    assert "does not exist" in refuse("train", "--resume", "nowhere")
    (tmp_path / "a/training.safetensors").write_bytes((tmp_path / "a/training.safetensors").read_bytes()[:-7])
    assert "training.safetensors is cut short" in refuse("train", "--resume", "a", "--steps", 4)


def test_a_run_on_a_file_that_has_changed_is_not_resumed(run, refuse, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the same words, over and over again. " * 30, encoding="utf-8")
    tiny = ["--set", "layers=1", "d_model=8", "heads=2", "context=16", "batch_size=3"]
    assert run("train", "text", "--file", text, "--steps", 2, "--out", "a", *tiny)[0] == 0
    original = text.read_bytes()
    text.write_bytes(original[:-9] + b"different")
    assert "has changed since a was trained on it" in refuse("train", "--resume", "a", "--steps", 3)
    (tmp_path / "copy.txt").write_bytes(original)
    assert run("train", "--resume", "a", "--steps", 3, "--file", "copy.txt")[0] == 0


def test_from_the_weights_of_another_run(run, refuse, tmp_path):
    assert run("train", "copy", "--steps", 2, "--out", "a", *TINY)[0] == 0
    assert run("train", "reverse", "--from", "a", "--steps", 1, "--out", "b", "--set", "lr=1e-12", "task.longest=3",
               "batch_size=4")[0] == 0  # fmt: skip
    a, b = load_model(tmp_path / "a").model, load_model(tmp_path / "b").model
    assert b.config == a.config
    for (name, p), q in zip(a.named_parameters(), b.parameters(), strict=True):
        np.testing.assert_allclose(q.data, p.data, atol=1e-6, err_msg=name)
    words = refuse("train", "reverse", "--from", "a", "--set", "d_model=16")
    assert "--from a: its weights are of another model: d_model 8 there, 16 here" in words
    words = refuse("train", "add", "--from", "a", "--set", "vocab_size=14")
    assert "vocab_size 13 there, 14 here" in words
    assert not (tmp_path / "runs").exists()


def test_a_second_ctrl_c_aborts(tmp_path):
    """A real process, real signals: one of them saves, two of them stop at once."""
    code = (
        "import sys, signal, minitx.tasks.sequences as s; s.HELD_OUT = 20\n"
        "from minitx.training import Trainer; from minitx.cli import main\n"
        "step = Trainer.train_step\n"
        "def stopping(self):\n"
        "    if self.step == 2: [signal.raise_signal(signal.SIGINT) for _ in range(int(sys.argv.pop(1)))]\n"
        "    return step(self)\n"
        "Trainer.train_step = stopping\n"
        "sys.exit(main(['train', 'copy', '--out', 'a', '--steps', '5', '--set', 'd_model=8', 'heads=2', 'longest=3']))"
    )
    done = subprocess.run([sys.executable, "-c", code, "2"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "minitx: stopped")
    assert not (tmp_path / "a/training.safetensors").exists()


def test_the_task_table_of_a_file_is_read(run, refuse, tmp_path):
    (tmp_path / "c.toml").write_text("[task]\nlongest = 2\n", encoding="utf-8")
    status, out, _ = run("train", "copy", "--steps", 2, "--config", "c.toml", "--set", *TINY[1:5])
    assert status == 0
    assert [line.split()[0] for line in out.splitlines() if line.startswith("       ")][:3] == ["1", "2"]
    (tmp_path / "c.toml").write_text("[task]\nlongst = 2\n", encoding="utf-8")
    assert "longest" in refuse("train", "copy", "--config", "c.toml")


def test_fewer_steps_than_were_made_are_refused_and_nothing_is_rewritten(run, refuse, tmp_path):
    run("train", "copy", "--steps", 4, "--out", "r", *TINY)
    before = (tmp_path / "r" / "config.json").read_bytes()
    assert "has made 4 steps already" in refuse("train", "--resume", "r", "--steps", 2)
    assert (tmp_path / "r" / "config.json").read_bytes() == before


def test_an_empty_folder_name(refuse):
    assert "--out is the folder" in refuse("train", "copy", "--out", "", *TINY)


def test_a_reader_that_goes_away_does_not_take_the_run_with_it(tmp_path):
    """`minitx train ... | head -1`: the run goes on, and is kept."""
    command = [sys.executable, "-m", "minitx", "train", "copy", "--steps", "40", "--out", "r", *TINY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=tmp_path, text=True) as process:
        process.stdout.readline()
        process.stdout.close()
        process.wait(timeout=120)
    assert load_training(tmp_path / "r").values["step"] == 40
