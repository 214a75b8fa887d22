"""The demos run, in few steps, and say what they promise."""
import os
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
}


@pytest.mark.parametrize("name", SAYS)
def test_a_demo_runs(tmp_path, name):
    if name in ("train_reverse.py", "train_text.py"):
        for library in ("safetensors", "rich", "matplotlib"):
            pytest.importorskip(library, reason=f"{library} is not installed")
    done = subprocess.run(
        [sys.executable, str(DEMOS / name)], cwd=tmp_path, capture_output=True, encoding="utf-8", timeout=200,
        env={**os.environ, "MINITX_STEPS": "4", "TMPDIR": str(tmp_path), "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in SAYS[name]:
        assert words in done.stdout


@pytest.mark.parametrize("name", SAYS)
def test_a_demo_is_short_and_in_cells(name):
    lines = (DEMOS / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    assert lines[0] == "# %% [markdown]"
    assert sum(line.startswith("# %%") for line in lines) >= 4
