"""minitx check: the table, the JSON, the status; with --mutants the score."""
import json
import re

import numpy as np
import pytest

from minitx import ops
from minitx.audit.check import COLUMNS

FAST = ["log_softmax", "dropout", "getitem", "Rotary", "sinusoidal"]


def test_the_table(run):
    status, out, _ = run("check", *FAST)
    assert status == 0
    assert out.isascii()
    lines = out.splitlines()
    assert lines[0] == "relative errors, max|a - b| / max|b|, of values and gradients"
    head = next(line for line in lines if line.startswith("component"))
    assert head.split() == ["component", "differences", "smaller", "ops", "kernel", "PyTorch", "time"]
    rows = [line for line in lines if line.endswith("  pass")]
    assert [line.split()[0] for line in rows] == FAST
    assert max(map(len, rows)) <= 100
    assert lines[-1].startswith("5 rows in ")
    assert lines[-1].endswith(": all pass")


def test_no_gap_is_silent(run):
    """A column without a number has a letter, and every letter a reason below the table."""
    _, out, _ = run("check", *FAST)
    rows = [line for line in out.splitlines() if line.endswith("  pass")]
    letters = set(re.findall(r"(?:-|e[-+]\d\d) ([a-z]+)\b", " ".join(rows)))
    assert not re.search(r" - (?![a-z])", " ".join(rows).replace("pass", ""))
    reasons = dict(re.findall(r"^  ([a-z])  (.+)$", out, re.M))
    assert set("".join(letters)) <= set(reasons)
    assert "nothing is differentiated: no parameters, and no floats among the inputs" in reasons.values()


def test_a_row_for_each_case(run):
    _, out, _ = run("check", "log_softmax", "--cases")
    assert "log_softmax[axis=0]" in out
    assert "2 rows" in out


def wrong(x, axis=-1):
    y, backward = ops.log_softmax.definition(x, axis)
    return y, lambda dy: 2 * backward(dy)


def test_a_failing_row(run):
    with ops.log_softmax.using(wrong):
        status, out, _ = run("check", "log_softmax", "exp")
    assert status == 1
    assert "log_softmax: the gradient of x is wrong" in out
    assert "backward is 2 times the right one, everywhere" in out  # the diagnosis
    assert out.splitlines()[-1].endswith("1 FAIL: log_softmax")


def test_json_instead_of_the_table(run):
    status, out, _ = run("check", *FAST, "--json")
    assert status == 0
    figures = json.loads(out)
    schema(figures)
    assert [row["name"] for row in figures["rows"]] == FAST
    assert figures["passed"] is True
    kinds = {row["name"]: row["kind"] for row in figures["rows"]}
    assert (kinds["dropout"], kinds["Rotary"]) == ("op", "layer")


def test_json_beside_the_table(run, tmp_path):
    with ops.log_softmax.using(wrong):
        status, out, _ = run("check", "log_softmax", "--json", tmp_path / "check.json")
    assert status == 1
    assert "FAIL" in out
    figures = json.loads((tmp_path / "check.json").read_text(encoding="utf-8"))
    schema(figures)
    assert figures["passed"] is False
    assert figures["rows"][0]["columns"]["differences"]["error"] == pytest.approx(1.0, rel=1e-5)


def schema(figures):
    """What a reader of the JSON may rely on."""
    assert set(figures) == {"format", "versions", "passed", "limits", "rows"}
    assert figures["format"] == 1
    assert set(figures["versions"]) == {"python", "minitx", "numpy", "numba", "torch"}
    for row in figures["rows"]:
        assert set(row) == {"name", "kind", "passed", "seconds", "columns"}
        assert list(row["columns"]) == list(COLUMNS)
        for cell in row["columns"].values():
            assert set(cell) == {"passed", "error", "limit", "cases", "of", "note", "why_not"}
            assert cell["passed"] in (True, False, None)
            assert (cell["passed"] is None) == (cell["error"] is None) == (cell["cases"] == 0)
            assert cell["cases"] == cell["of"] or cell["why_not"]
            assert cell["error"] is None or isinstance(cell["error"], float | int | str)


# ---------------------------------------------------------------------- mutants


def test_mutants(run):
    status, out, _ = run("check", "--mutants", "erf", "softmax")
    assert status == 0
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line and line[0] != " "}
    assert lines["op"] == ["made", "caught:", "differences", "corners", "equivalent", "missed", "usual"]
    erf, softmax, both = ([int(n) for n in lines[name]] for name in ("erf", "softmax", "all"))
    assert both == [a + b for a, b in zip(erf, softmax)]
    made, caught, differences, corners, equivalent, missed, usual = both
    assert made == caught + equivalent + missed
    assert caught == differences + corners
    assert (equivalent, missed) == (4, 0)
    assert usual >= 3
    assert "because: exp(-28" in out


def test_a_mutant_that_is_missed_fails(run, monkeypatch):
    monkeypatch.setattr("minitx.audit.score.EQUIVALENT", {})
    status, out, _ = run("check", "--mutants", "erf", "--json")
    figures = json.loads(out)
    assert status == 1
    assert figures["passed"] is False
    (erf,) = figures["ops"]
    assert set(erf) == {"op", "made", "caught", "by_differences", "by_corners", "equivalent", "missed", "usual"}
    assert len(erf["missed"]) == 4


# ---------------------------------------------------------------------- misuse


def test_unknown_names(refuse):
    assert "there is no component 'atention'; did you mean 'attention'?" in refuse("check", "atention")
    assert "did you mean 'gpt2'?" in refuse("check", "gpt3", "--mutants")


def test_what_does_not_go_together(refuse):
    assert "there is no folder nowhere to write c.json into" in refuse("check", "exp", "--json", "nowhere/c.json")
    assert "no --cases with it" in refuse("check", "--mutants", "--cases")
    assert "layers, blocks and models are made of them" in refuse("check", "--mutants", "gpt2")


def test_a_console_that_knows_little(run, monkeypatch):
    _, out, _ = run("check", "layers", "--json")
    assert out.isascii()
    assert np.isfinite([row["seconds"] for row in json.loads(out)["rows"]]).all()
