"""The demos run, in few steps, and say what they promise."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMOS = Path(__file__).parent.parent / "demos"
SAYS = {
    "train_copy.py": ["held-out exact match", "3 1 4 1 5    ->"],
    "train_reverse.py": ["held-out exact match", "decoder.0", "pictures are in"],
    "train_text.py": ["bits per character", "model:"],
    "write_an_op.py": ["gradcheck of softplus", "softplus: the gradient of x is wrong", "the sign is wrong"],
    "read_digits.py": ["held-out accuracy", "of 400 images"],
    "recurrent.py": ["tokens: state", "tokens: recurrent"],
}
NEEDS = {
    "train_reverse.py": ("safetensors", "rich", "matplotlib"),
    "train_text.py": ("safetensors", "rich", "matplotlib"),
    "read_digits.py": ("sklearn",),
}


def run(name, folder, **variables):
    done = subprocess.run(
        [sys.executable, str(DEMOS / name)], cwd=folder, capture_output=True, encoding="utf-8", timeout=200,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONIOENCODING": "utf-8", **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SAYS)
def test_a_demo_runs(tmp_path, name):
    for library in NEEDS.get(name, ()):
        pytest.importorskip(library, reason=f"{library} is not installed")
    said = run(name, tmp_path, MINITX_STEPS="4")
    for words in SAYS[name]:
        assert words in said


@pytest.mark.slow
def test_digits_that_were_held_out_are_read(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    accuracy = re.search(r"held-out accuracy ([\d.]+)% of 400", run("read_digits.py", tmp_path)).group(1)
    assert float(accuracy) >= 95


def test_digits_without_scikit_learn_say_what_is_missing(tmp_path):
    (tmp_path / "sklearn.py").write_text("raise ImportError", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(DEMOS / "read_digits.py")], capture_output=True, encoding="utf-8", timeout=100,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("this demo needs scikit-learn")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", SAYS)
def test_a_demo_is_short_and_in_cells(name):
    lines = (DEMOS / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    assert lines[0] == "# %% [markdown]"
    assert sum(line.startswith("# %%") for line in lines) >= 4


def test_all_demos_are_here():
    assert sorted([*SAYS, "one_page.py"]) == sorted(path.name for path in DEMOS.glob("*.py"))
