"""Progress: about twenty lines a run, and the time left known from the second step on."""
from minitx.training.progress import Lines


def test_lines_are_few_and_say_how_long(capsys):
    lines = Lines()
    lines.start(0, 100)
    for step in range(1, 101):
        lines.left(step)
        lines.update(step, 1.0, 0.1, 0.5, 10.0)
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 21  # the first step, and every fifth
    assert out[0].endswith("? left")
    assert all(line.endswith("0:00 left") for line in out[1:])
