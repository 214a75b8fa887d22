"""Files that are whole or not there; a log that can be cut back."""
import json
import os
import sys

import pytest

from minitx.files import write_bytes
from minitx.training.log import Log, read_log


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    write_bytes(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


def test_the_place_is_taken_by_a_rename(tmp_path, monkeypatch):
    """What is at `path` is never open for writing: the bytes go to another name first."""
    path, seen = tmp_path / "a.bin", []
    write_bytes(path, b"old")
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (seen.append((a.read_bytes(), path.read_bytes())), replace(a, b)))
    write_bytes(path, b"new")
    assert seen == [(b"new", b"old")]
    assert path.read_bytes() == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes with a name, and links, are of Unix")
def test_a_pipe_stays_a_pipe_and_a_link_a_link(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_bytes(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    out, into = os.pipe()
    write_bytes(f"/dev/fd/{into}", b"by its number")
    assert os.read(out, 100) == b"by its number"
    os.close(out)
    os.close(into)
    link.symlink_to(tmp_path / "there")
    write_bytes(link, b"behind it")
    assert link.is_symlink()
    assert (tmp_path / "there").read_bytes() == b"behind it"


def test_log_is_cut_back_to_a_step(tmp_path):
    path = tmp_path / "log.jsonl"
    log = Log(path)
    for step in (1, 5, 10, 15):
        log.write({"step": step, "loss": 1 / step})
    log.close()
    with open(path, "a", encoding="utf-8") as file:
        file.write('{"step": 20, "lo')  # the power failed here
    assert [r["step"] for r in read_log(path)] == [1, 5, 10, 15]
    log = Log(path, cut_after=10)
    log.write({"step": 11})
    log.close()
    assert [r["step"] for r in read_log(path)] == [1, 5, 10, 11]


def test_log_is_json_whatever_the_numbers(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    log.write({"step": 1, "loss": float("nan"), "held_out": {"a": [float("inf"), 1.5]}})
    log.close()
    line = (tmp_path / "log.jsonl").read_text(encoding="utf-8")
    assert json.loads(line) == {"step": 1, "loss": None, "held_out": {"a": [None, 1.5]}}
