"""A learner's file in a process of its own: what goes wrong is said at the learner's line, and nothing else stops."""
import os
import signal
import subprocess
import sys
import time

import pytest
from answers import ANSWERS

from minitx.learn.exercises.softmax import EXERCISE
from minitx.learn.runner import check_file

HEAD = "import numpy as np\n"


def check(tmp_path, text, **options):
    file = tmp_path / "softmax.py"
    if isinstance(text, bytes):
        file.write_bytes(text)
    else:
        file.write_text(text, "utf-8")
    return check_file(EXERCISE, file, **options)


def test_a_right_file_passes(tmp_path):
    assert check(tmp_path, ANSWERS["softmax"]).passed


def test_printing_is_let_through(tmp_path, capfd):
    assert check(tmp_path, "print('梯度', 17)\n" + ANSWERS["softmax"]).passed
    assert "梯度 17" in capfd.readouterr().out


def test_a_print_in_the_function_does_not_flood_the_terminal(tmp_path, capfd):
    result = check(tmp_path, ANSWERS["softmax"].replace("def softmax(x):", "def softmax(x):\n    print('here')"))
    assert result.passed
    assert capfd.readouterr().out.count("here") == 40
    assert result.held_back > 40


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("def softmax(x:\n    pass\n", "no.syntax", {"line": 1}),
        ("def softmx(x):\n    pass\n", "no.function", {"near": "softmx"}),
        ("import torch\n" + ANSWERS["softmax"], "no.blocked", {"module": "torch", "line": 1}),
        ("from minitx.ops import softmax\n", "no.blocked", {"module": "minitx.ops"}),
        (HEAD + "def softmax(x):\n    import jax\n", "no.blocked", {"module": "jax", "line": 3}),
        (HEAD + "x = 1 / 0\n", "no.raised-at", {"line": 2, "kind": "ZeroDivisionError"}),
        (HEAD + "raise SystemExit(0)\n", "no.raised-at", {"kind": "SystemExit"}),
        (HEAD + "def softmax(x):\n    return undefined\n", "no.raised-at", {"line": 3, "kind": "NameError"}),
        ("import os\nos._exit(7)\n", "no.crash", {"status": 7}),
        ("softmax = 3\n", "no.callable", {}),
        ("", "no.function", {"near": ""}),
        ("# 梯度\n".encode("gbk"), "no.encoding", {}),
        (b"\xef\xbb\xbf" + ANSWERS["softmax"].encode(), None, {}),  # Windows' mark of UTF-8
        (HEAD + "def softmax(x):\n    return softmax(x)\n", "no.raised-at-shapes", {"kind": "RecursionError"}),
    ],
)  # fmt: skip
def test_bad_files(tmp_path, text, key, values):
    result = check(tmp_path, text)
    if key is None:
        assert result.passed
        return
    assert result.findings[0].key == key
    assert {name: result.findings[0].values[name] for name in values} == values


def test_a_missing_file(tmp_path):
    assert check_file(EXERCISE, tmp_path / "softmax.py").findings[0].key == "no.file"


def test_an_endless_loop_is_stopped_at_its_line(tmp_path):
    text = HEAD + "def softmax(x):\n    while True:\n        x = x + 1\n"
    start = time.perf_counter()
    found = check(tmp_path, text, limit=1.0).findings[0]
    assert time.perf_counter() - start < 5
    assert found.key == "no.time-at"
    assert found.values["line"] in (3, 4)


def test_names_of_other_modules_do_no_harm(tmp_path):
    """A file random.py beside the exercise is not what NumPy imports."""
    (tmp_path / "random.py").write_text("raise RuntimeError('mine')\n", "utf-8")
    assert check(tmp_path, ANSWERS["softmax"]).passed


def test_files_of_the_folder_can_be_imported(tmp_path):
    (tmp_path / "helper.py").write_text("def one():\n    return 1\n", "utf-8")
    assert check(tmp_path, "import helper\n" + ANSWERS["softmax"].replace("dx = y", "dx = helper.one() * y")).passed


def test_the_checker_is_light():
    heavy = ["numba", "torch", "rich", "matplotlib"]
    code = f"import sys, minitx.learn.inside; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rungs_that_were_climbed_before_an_endless_loop_stay_climbed(tmp_path):
    text = ANSWERS["softmax"].replace("        dx = y", "        while True:\n            pass\n        dx = y")
    result = check(tmp_path, text, limit=1.0)
    assert (result.climbed, result.failed) == ([1, 2], 3)
    assert result.findings[0].key == "no.time-at"


def test_the_line_that_is_shown_is_the_one_that_ran(tmp_path):
    """Though the file was saved again in the meantime."""
    text = HEAD + "open(__file__, 'w').write('#\\n' * 9)\ndef softmax(x):\n    return x.nothing\n"
    assert check(tmp_path, text).findings[0].values["code"] == "return x.nothing"


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "GeneratorExit", "BaseException"])
def test_whatever_is_raised_is_told_at_its_line(tmp_path, capfd, error):
    found = check(tmp_path, HEAD + f"def softmax(x):\n    raise {error}\n").findings[0]
    assert found.values["line"] == 3
    assert found.values["kind"] == error
    assert "Traceback" not in capfd.readouterr().err


def test_what_is_printed_ends_with_its_line_and_does_not_flood(tmp_path, capfd):
    loud = "def softmax(x):\n    print('.' * 1000, end='')\n    print('!', file=sys.stderr)"
    assert check(tmp_path, "import sys\n" + ANSWERS["softmax"].replace("def softmax(x):", loud)).passed
    said = capfd.readouterr()
    assert said.out == "." * 8000 + "\n"
    assert said.err.count("!") == 40


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent in another way there")
def test_ctrl_c_ends_a_check_without_a_traceback(tmp_path):
    (tmp_path / "softmax.py").write_text("print('running', flush=True)\nwhile True:\n    pass\n", "utf-8")
    command = [sys.executable, "-m", "minitx", "learn", "check", "softmax", "--folder", str(tmp_path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = subprocess.Popen(command, **pipes, text=True, start_new_session=True)
    while "running" not in started.stdout.readline():
        assert started.poll() is None
    os.killpg(started.pid, signal.SIGINT)  # to the checker's process too, as a terminal does
    _, errors = started.communicate(timeout=20)
    assert started.returncode == 130
    assert errors == "minitx: stopped\n"
