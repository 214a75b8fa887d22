"""Grading, and a teacher's own exercises."""
import csv
import io
import json

import numpy as np
import pytest
from answers import ANSWERS

from minitx.cli import main
from minitx.learn import language, shelf
from minitx.learn.grade import as_csv, as_table, grade
from minitx.learn.shelf import VARIANTS

TEMPERATURE = '''"""Softmax with a temperature.

Write softmax(x / temperature) along the last axis, and its backward.
"""
import numpy as np


def softmax_temperature(x: "(..., n)", temperature=0.7):
    e = np.exp((x - x.max(-1, keepdims=True)) / temperature)
    return e / e.sum(-1, keepdims=True)
'''

ONE_PLUS = '''"""RMSNorm with 1 + w."""
from __future__ import annotations

import numpy as np

hints = ["The gain is 1 + w.", "Two terms.", "dx = ..."]


def rms_one_plus(x: "(..., D)", w: "(D,)", eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (1 + w)
'''

ANSWER = '''import numpy as np


def softmax_temperature(x, temperature=0.7):
    e = np.exp((x - x.max(-1, keepdims=True)) / temperature)
    y = e / e.sum(-1, keepdims=True)
    return y, lambda dy: y * (dy - (dy * y).sum(-1, keepdims=True)) / temperature
'''


@pytest.fixture
def variants(tmp_path, monkeypatch):
    folder = tmp_path / "variants"
    folder.mkdir()
    (folder / "softmax_temperature.py").write_text(TEMPERATURE, "utf-8")
    (folder / "rms_one_plus.py").write_text(ONE_PLUS, "utf-8")
    monkeypatch.setenv(VARIANTS, str(folder))
    shelf.exercise.cache_clear()
    language.words.cache_clear()
    yield folder
    shelf.exercise.cache_clear()
    language.words.cache_clear()


def learner(tmp_path, name, **files):
    folder = tmp_path / name
    folder.mkdir()
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text, "utf-8")
    return str(folder)


def test_points_for_rungs(tmp_path):
    right = ANSWERS["softmax"]
    folders = [
        learner(tmp_path, "all", softmax=right),
        learner(tmp_path, "forward", softmax=right.replace("- (dy * y)", "+ (dy * y)")),
        learner(tmp_path, "no-adversarial", softmax=right.replace("np.where(np.isfinite(top), top, 0)", "top")),
        learner(tmp_path, "endless", softmax="while True:\n    pass\n"),
        learner(tmp_path, "nothing"),
    ]
    result = grade(folders, ["softmax"], limit=2.0)
    assert [row["points"] for row in result["results"]] == [100, 40, 80, 0, 0]
    assert "line 1" in result["results"][3]["diagnosis"][0]
    assert result["totals"][folders[0]] == {"points": 100, "of": 100}
    rows = list(csv.DictReader(io.StringIO(as_csv(result))))
    assert [float(row["points"]) for row in rows] == [100, 40, 80, 0, 0]
    assert "forward: 40 of 100" in as_table(result)


def test_json_says_what_was_graded_with(tmp_path, capsys):
    folder = learner(tmp_path, "anna", softmax=ANSWERS["softmax"])
    (tmp_path / "anna" / "progress.json").write_text('{"exercises": {"softmax": {"attempts": 7, "hints": 2}}}', "utf-8")
    out = tmp_path / "grades.json"
    assert main(["learn", "grade", folder, "--only", "softmax", "--json", str(out), "--seed", "5"]) == 0
    result = json.loads(out.read_text("utf-8"))
    assert result["schema"] == 1
    assert result["seed"] == 5
    assert set(result["versions"]) == {"minitx", "numpy", "python"}
    assert len(result["exercises"]) == 16
    assert (result["results"][0]["attempts"], result["results"][0]["hints"]) == (7, 2)
    assert [path.name for path in (tmp_path / "anna").iterdir() if path.suffix == ".json"] == ["progress.json"]


def test_a_variant_is_one_forward_function(tmp_path, variants):
    right = learner(tmp_path, "right", softmax_temperature=ANSWER)
    wrong = learner(tmp_path, "wrong", softmax_temperature=ANSWER.replace(" / temperature\n", "\n", 2))
    result = grade([right, wrong], ["softmax-temperature"])
    assert [row["points"] for row in result["results"]] == [100, 40]
    factor = next(found for found in result["results"][1]["findings"] if found["key"] == "factor-named")
    assert factor["values"]["factor"] == "temperature"


def test_variants_stand_in_the_list(variants, capsys):
    assert main(["learn", "list"]) == 0
    said = capsys.readouterr().out
    assert "Softmax with a temperature" in said
    assert "rms-one-plus" in said


def test_a_variant_that_does_not_load_is_one_message(variants, capsys):
    (variants / "broken.py").write_text("def other(x):\n    return x\n", "utf-8")
    assert main(["learn", "explain", "broken"]) == 2
    assert "def broken(...)" in capsys.readouterr().err


def softmax(tmp_path, text):
    return str(learner(tmp_path, "mine", softmax=text))


def test_a_folder_or_slug_named_twice_counts_once(tmp_path):
    folder = softmax(tmp_path, ANSWERS["softmax"])
    assert grade([folder, folder], ["softmax", "softmax"])["totals"] == {folder: {"points": 100.0, "of": 100.0}}


def test_the_reason_is_told_first(tmp_path):
    folder = softmax(tmp_path, ANSWERS["softmax"].replace("- (dy * y)", "+ (dy * y)"))
    said = grade([folder], ["softmax"])["results"][0]["diagnosis"]
    assert "term 2 has the wrong sign" in said[0]


def test_what_is_no_number_is_json_all_the_same(tmp_path):
    folder = softmax(tmp_path, ANSWERS["softmax"].replace("return dx", "return dx if dy.shape[-1] > 1 else dx / 0"))
    out = tmp_path / "out.json"
    assert main(["learn", "grade", folder, "--only", "softmax", "--json", str(out)]) == 0

    def refuse(name):
        raise AssertionError(name)

    assert json.loads(out.read_text("utf-8"), parse_constant=refuse)["results"][0]["failed"] == 7


def test_files_that_cannot_be_written_are_told_before_the_work(tmp_path, capsys, monkeypatch):
    folder = softmax(tmp_path, ANSWERS["softmax"])
    monkeypatch.setattr("minitx.learn.grade.check_file", lambda *args, **options: pytest.fail("it began"))
    assert main(["learn", "grade", folder, "--only", "softmax", "--csv", folder]) == 2
    assert main(["learn", "grade", folder, "--only", "softmax", "--seed", "-1"]) == 2
    assert "--seed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('def bad(x: "(..., n)", y): return x', "y needs a shape or a default"),
        ('def bad(x: "(n,)", *more): return x', "needs a shape or a default"),
        ('def bad(x: "(2 * n,)"): return x', "say the shapes"),
        ('def bad(x: "(n,)"): return None', "one array of float64"),
        ('def bad(x: "(n,)"): return x, x', "one array of float64"),
        ('def bad(x: "(n,)"): return x.astype("float32")', "one array of float64"),
        ('def bad(x: "(n,)"): return x / 0', "all of it finite"),
        ('def bad(x: "(n,)"): return x[100]', "stops with IndexError"),
        ('def bad(x: "(n,)"):\n    x += 1\n    return x * x', "writes into x"),
        ('gradients = ("z",)\ndef bad(x: "(n,)"): return x', "no parameter"),
        ("raise SystemExit", "does not load"),
        ("one = 1", "begins with _"),
    ],
)
def test_a_variant_that_is_amiss_is_told_to_its_teacher(tmp_path, variants, capsys, text, said):
    (variants / "bad.py").write_text(text, "utf-8")
    assert main(["learn", "reset", "bad", "--folder", str(tmp_path / "mine")]) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert len(errors.splitlines()) == 1


def test_a_variant_with_a_size_of_its_own(variants):
    (variants / "good.py").write_text('hints = "one"\ndef good(x: "(2, n)", s: "()"): return s * x * x', "utf-8")
    made = shelf.exercise("good").arguments(np.random.default_rng(0))
    assert (made["x"].shape, made["s"].shape) == ((2, 5), ())
    assert language.words("good", "en")["hints"] == ["one"]


def test_a_variant_without_hints_has_none(variants, capsys):
    assert main(["learn", "hint", "softmax-temperature"]) == 0
    assert main(["learn", "solution", "softmax-temperature"]) == 0
    said = capsys.readouterr().out
    assert "no hints" in said
    assert "no solution" in said


def test_a_variant_does_not_take_the_name_of_an_exercise(variants):
    (variants / "softmax.py").write_text('def softmax(x: "(n,)"): return x', "utf-8")
    with pytest.raises(ValueError, match="of this name already"):
        shelf.slugs()
