"""The recorded walk makes the mistakes it is there to show, and ends right."""
import pytest

from minitx.learn import walk
from minitx.learn.ladder import climb
from minitx.learn.shelf import exercise


def in_this_process(wanted, path):
    space = {}
    exec(compile(path.read_text("utf-8"), str(path), "exec"), space)
    return climb(wanted, space[wanted.function], str(path))


def test_each_exercise_ends_right_and_only_there(tmp_path):
    results = []
    for slug, text, _ in walk.versions():
        path = tmp_path / f"{slug}.py"
        path.write_text(text, "utf-8")
        results.append((slug, in_this_process(exercise(slug), path)))
    for (slug, result), (following, _) in zip(results, [*results[1:], ("", None)]):
        assert result.passed == (slug != following)
        assert result.passed or result.explained or result.failed in (2, 3)


def test_the_picture(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(walk, "check_file", in_this_process)
    text = walk.picture("en")
    assert text.startswith("<svg")
    assert "softmax" in text
