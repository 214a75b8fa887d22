"""The command line as a process of its own: version, help, quick start, and consoles that cannot show everything."""
import os
import subprocess
import sys

import pytest

for library in ("safetensors", "rich", "matplotlib"):
    pytest.importorskip(library, reason=f"{library} is not installed")


def minitx(*words, cwd, encoding="utf-8", code=None, **env):
    start = [sys.executable, "-c", code] if code else [sys.executable, "-m", "minitx"]
    return subprocess.run([*start, *map(str, words)], cwd=cwd, capture_output=True, timeout=100,
                          env={**os.environ, "PYTHONIOENCODING": encoding, **env})  # fmt: skip


def test_version_and_help(tmp_path):
    from minitx import __version__

    assert minitx("--version", cwd=tmp_path).stdout.decode().strip() == f"minitx {__version__}"
    done = minitx(cwd=tmp_path)
    assert done.returncode == 0
    for command in (b"train", b"generate", b"trace"):
        assert command in done.stdout
    assert b"--resume" in minitx("train", "--help", cwd=tmp_path).stdout


def test_help_imports_nothing_heavy(tmp_path):
    code = "import sys; from minitx.cli import main; main([]); print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["numba", "matplotlib", "rich", "safetensors", "torch", "minitx.training", "minitx.models"]
    assert minitx(*heavy, cwd=tmp_path, code=code).stdout.decode().splitlines()[-1] == "[]"


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "utf-8"])
def test_any_console(tmp_path, encoding):
    """A text whose characters ASCII and GBK do not have: they are escaped, and nothing stops."""
    text = "Käse, übrig, ½ Ćma — naïve €5.\n" * 40
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    done = minitx("train", "text", "--file", "text.txt", "--steps", 2, "--set", "layers=1", "d_model=8", "heads=2",
                  "context=16", "batch_size=2", cwd=tmp_path, encoding=encoding)  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode(encoding)
    assert ("Käse" in shown) == (encoding == "utf-8")
    assert encoding == "utf-8" or "\\xe4" in shown
    done = minitx("generate", "runs/text", "Ж", cwd=tmp_path, encoding=encoding)
    assert done.returncode == 2
    assert "minitx: error: " in done.stderr.decode(encoding)


@pytest.mark.parametrize("encoding", ["ascii", "gbk", "utf-8"])
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_a_live_bar_on_a_terminal(tmp_path, encoding):
    """On a pseudo-terminal a bar is drawn, of ASCII characters where the encoding has no others."""
    import pty

    master, slave = pty.openpty()
    code = (
        "import sys, minitx.tasks.sequences as s; s.HELD_OUT = 20\n"
        "from minitx.cli import main\n"
        "sys.exit(main(['train', 'copy', '--steps', '8', '--set', 'layers=1', 'd_model=8', 'heads=2', 'longest=3']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=slave, stderr=slave,
        env={**os.environ, "PYTHONIOENCODING": encoding, "TERM": "xterm", "COLUMNS": "120"},
    )  # fmt: skip
    os.close(slave)
    raw = b""
    try:
        while chunk := os.read(master, 65536):
            raw += chunk
    except OSError:  # the other end is closed
        pass
    os.close(master)
    assert process.wait(100) == 0, raw.decode(errors="replace")
    shown = raw.decode(encoding)
    assert "step 8/8" in shown
    assert "tokens/s" in shown
    assert "grad norm" in shown
    assert "left" in shown
    bar = "\u2501" in shown
    assert bar == (encoding == "utf-8")
    assert encoding == "utf-8" or shown.isascii()


def test_the_reader_may_leave(tmp_path):
    """`minitx train ... | head -1` ends quietly."""
    command = [sys.executable, "-u", "-m", "minitx"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(100)
