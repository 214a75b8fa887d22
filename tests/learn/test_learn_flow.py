"""The commands as a learner types them: files are never lost, progress is kept, hints come one by one."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from answers import ANSWERS

from minitx.cli import main
from minitx.learn.exercises import ORDER
from minitx.learn.flow import Course
from minitx.learn.language import words
from minitx.learn.shelf import exercise
from minitx.learn.stub import stub
from minitx.learn.watch import watch

FOLDER = Path("minitx-exercises")
FILE = FOLDER / "softmax.py"
PROGRESS = FOLDER / "progress.json"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


def learn(*words, capfd=None):
    status = main(["learn", *words])
    return (status, capfd.readouterr()) if capfd else status


def solved(slug="softmax"):
    FOLDER.mkdir(exist_ok=True)
    FILE.write_text(ANSWERS["softmax"], "utf-8")
    return learn("check", slug)


def entry(slug="softmax"):
    return json.loads(PROGRESS.read_text("utf-8"))["exercises"][slug]


def test_next_writes_a_file_and_says_where_to_write(capfd):
    status, said = learn(capfd=capfd)
    first = exercise(ORDER[0])
    file = FOLDER / f"{first.slug.replace('-', '_')}.py"
    assert status == 1
    assert file.is_file()
    assert file.name in said.out
    assert "..." in said.out or first.judge is not None


def test_next_does_not_touch_a_file_that_is_there(capfd):
    FOLDER.mkdir()
    file = FOLDER / f"{ORDER[0].replace('-', '_')}.py"
    file.write_text("mine = 1\n", "utf-8")
    learn()
    assert file.read_text("utf-8") == "mine = 1\n"


def test_a_pass_is_kept_and_shown(capfd):
    assert solved() == 0
    assert entry()["passed"]
    assert entry()["attempts"] == 1
    FILE.write_text("def softmax(x:\n", "utf-8")
    status, said = learn("check", "softmax", capfd=capfd)
    assert status == 1
    assert entry()["passed"]  # once is enough
    _, said = learn("list", capfd=capfd)
    row = next(line for line in said.out.splitlines() if " softmax " in line)
    assert "✓" in row
    assert "edited since" in row


def test_hints_come_one_by_one(capfd):
    FOLDER.mkdir()
    hints = words("softmax", "en")["hints"]
    for n in (1, 2, 3, 3):
        _, said = learn("hint", "softmax", capfd=capfd)
        assert hints[n - 1].split(".")[0][:40] in " ".join(said.out.split())
        assert all(hints[m][:40] not in " ".join(said.out.split()) for m in range(n, 3))
    assert entry()["hints"] == 3


def test_a_hint_elsewhere_leaves_nothing(capfd):
    assert learn("hint", "softmax") == 0
    assert learn("solution", "softmax") == 0
    assert not FOLDER.exists()


def test_reset_keeps_the_old_file(capfd):
    solved()
    learn("reset", "softmax")
    learn("reset", "softmax")
    assert FILE.read_text("utf-8") == stub(exercise("softmax"), "en")
    assert (FOLDER / "softmax.old-1.py").read_text("utf-8") == ANSWERS["softmax"]
    assert (FOLDER / "softmax.old-2.py").exists()
    assert entry()["passed"]


def test_solution_is_noted_before_a_pass_and_not_after(capfd):
    FOLDER.mkdir()
    FILE.write_text(ANSWERS["softmax"].replace("- (dy * y)", "+ (dy * y)"), "utf-8")
    _, said = learn("solution", "softmax", capfd=capfd)
    assert entry()["solution"]
    assert "minitx/ops/softmax.py:softmax" in said.out
    assert "+ (dy * y)" in said.out  # in the diff
    assert "type: ignore" not in said.out
    PROGRESS.unlink()
    solved()
    learn("solution", "softmax")
    assert "solution" not in entry()


def test_a_damaged_progress_file_is_kept_aside(capfd):
    FOLDER.mkdir()
    for n, text in enumerate(('{"exercises": {"softm', "[1, 2]", '{"exercises": 3}', "\ufeff\udcff", "["*100000), 1):
        PROGRESS.write_bytes(text.encode("utf-8", "surrogateescape"))
        _, said = learn("hint", "softmax", capfd=capfd)
        aside = FOLDER / f"progress.damaged-{n}.json"
        assert aside.read_bytes() == text.encode("utf-8", "surrogateescape")
        assert aside.name in said.out
        assert entry() == {"hints": 1}


def test_entries_of_other_versions_are_kept(capfd):
    FOLDER.mkdir()
    other = {"schema": 9, "new": [1], "exercises": {"of-tomorrow": {"passed": "2030-01-01"}, "softmax": {"x": 1}}}
    PROGRESS.write_text(json.dumps(other), "utf-8")
    solved()
    now = json.loads(PROGRESS.read_text("utf-8"))
    assert now["new"] == [1]
    assert now["exercises"]["of-tomorrow"] == {"passed": "2030-01-01"}
    assert now["exercises"]["softmax"]["x"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "softmax"], "minitx learn` makes it"),  # no folder
        (["check", "sotfmax"], "did you mean softmax"),
        (["hint", "nonsense"], "minitx learn list"),
        (["frobnicate"], "invalid choice"),
        (["check"], "SLUG"),
        (["check", "softmax", "--limit", "0"], "--limit"),
        (["list", "--lang", "xx"], "--lang"),
        (["list", "--variants", "nowhere"], "no folder"),
        (["grade", "nowhere"], "no folder"),
    ],
)
def test_bad_input_is_one_line(words, said, capfd):
    status, output = learn(*words, capfd=capfd)
    assert status == 2
    assert said in output.err
    assert len(output.err.strip().splitlines()) == 1
    assert not FOLDER.exists()


def test_explain(capfd):
    _, said = learn("explain", "softmax", capfd=capfd)
    assert "y_i = exp(x_i)" in said.out
    assert "dy * y" not in said.out  # the backward pass is not given away
    _, said = learn("explain", "logits", capfd=capfd)
    assert "minitx/ops/loss.py" in said.out
    _, said = learn("explain", "γ", "--lang", "zh", capfd=capfd)
    assert "增益" in said.out


def test_watch_checks_again_after_a_save():
    lines = []
    course = Course("en", out=lines.append)
    FOLDER.mkdir()
    FILE.write_text(ANSWERS["softmax"].replace("- (dy * y)", "+ (dy * y)"), "utf-8")

    def out(text):
        lines.append(text)
        if text.startswith("\nWatching"):
            FILE.write_text(ANSWERS["softmax"], "utf-8")

    course.out = out
    assert watch(course, "softmax", rounds=2) == 0
    text = "\n".join(lines)
    assert text.index("✗ 5") < text.index("softmax is right")


@pytest.mark.parametrize(
    ("encoding", "lang"), [("ascii", "en"), ("ascii", "zh"), ("gbk", "zh"), ("cp1252", "zh"), ("utf-8", "zh")]
)
def test_every_console_can_show_it(encoding, lang):
    FOLDER.mkdir()
    FILE.write_text("print('梯度')\n" + ANSWERS["softmax"].replace("dy * y)", "dy * y * 2)"), "utf-8")
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "minitx", "learn", "check", "softmax", "--lang", lang]
    done = subprocess.run(command, capture_output=True, env=environment)
    assert done.returncode == 1, done.stderr.decode("utf-8", "replace")
    assert not done.stderr
    text = done.stdout.decode(encoding)
    assert ("✗" if encoding == "utf-8" else "x") in text
    if encoding in ("utf-8", "gbk") and lang == "zh":
        assert "梯度" in text


def test_the_language_follows_the_locale(capfd, monkeypatch):
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    _, said = learn("list", capfd=capfd)
    assert "已完成" in said.out
    _, said = learn("list", "--lang", "en", capfd=capfd)
    assert "solved" in said.out


def test_hints_can_be_asked_for_by_number(capfd):
    """Where no progress is kept there is another way to the second one."""
    hints = words("softmax", "en")["hints"]
    _, said = learn("hint", "softmax", capfd=capfd)
    assert "minitx learn hint softmax 2" in said.out
    _, said = learn("hint", "softmax", "2", capfd=capfd)
    assert hints[1][:30] in said.out
    assert learn("hint", "softmax", "0") == 2
    FOLDER.mkdir()
    learn("hint", "softmax", "2")
    learn("hint", "softmax", "1")
    assert entry()["hints"] == 2


def test_numbers_that_were_put_into_the_progress_file(capfd):
    FOLDER.mkdir()
    PROGRESS.write_text('{"exercises": {"softmax": {"hints": -5, "attempts": -2}}}', "utf-8")
    assert learn("hint", "softmax") == 0
    assert entry()["hints"] == 1


def test_a_check_of_no_file_is_no_attempt(capfd):
    FOLDER.mkdir()
    status, said = learn("check", "softmax", capfd=capfd)
    assert status == 1
    assert "`minitx learn reset softmax` writes it" in " ".join(said.out.split())
    assert not PROGRESS.exists()


def test_a_folder_that_can_only_be_read(capfd, monkeypatch):
    def refuse(known):
        raise PermissionError(13, "Permission denied")

    solved()
    monkeypatch.setattr("minitx.learn.progress.Progress.save", refuse)
    for command in ("check", "hint", "solution"):
        if command == "solution":
            PROGRESS.unlink()
        status, said = learn(command, "softmax", capfd=capfd)
        assert status == 0
        assert "could not be written (Permission denied)" in said.out
        assert len(said.out.splitlines()) > 3
        assert "Noted" not in said.out


def test_nothing_is_said_to_be_noted_where_it_is_not(capfd):
    _, said = learn("solution", "softmax", capfd=capfd)
    assert "Noted" not in said.out


def test_an_unknown_slug_in_chinese(capfd):
    status, said = learn("check", "sofmax", "--lang", "zh", capfd=capfd)
    assert status == 2
    assert "是不是 softmax" in said.err


def test_explain_of_nothing(capfd):
    assert learn("explain", "") == 2


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("ascii", "sigma^2 = mean((x - mu)^2)"), ("gbk", "σ^2 = mean((x - μ)^2)"), ("utf-8", "σ² = mean((x - μ)²)")],
)
def test_signs_of_equations_are_spelt_out_where_need_be(encoding, said):
    environment = os.environ | {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "minitx", "learn", "explain", "layer-norm", "--lang", "zh"]
    text = subprocess.run(command, capture_output=True, env=environment, check=True).stdout.decode(encoding)
    assert said in text
    assert encoding == "ascii" or "方差" in text
