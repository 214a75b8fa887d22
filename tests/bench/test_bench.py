"""The benchmarks run, count right and compare like with like; what they measure is nobody's assertion."""
import json

import numpy as np
import pytest

from minitx.bench import side_minitx
from minitx.bench.models import Size, batch
from minitx.bench.overhead import gradient_of_a_chain, overhead_lines, overheads
from minitx.bench.timing import summary
from minitx.bench.train import rows
from minitx.cli import main

SMALL = Size(2, 5, 8, 2, 1, V=11)


def test_summary_is_median_and_quartiles():
    assert summary([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, 2.0, 4.0)


def test_flops_by_hand():
    """One layer, a sequence of two tokens, d 1: 12 weights a token, head V, 3 pairs of 2 products; times 2, times 3."""
    assert Size(1, 2, 1, 1, 1, V=5).flops() == 3 * 2 * (2 * (12 + 5) + 3 * 2)


def test_our_side_learns():
    step = side_minitx.build(SMALL, 1)
    losses = [step() for _ in range(30)]
    assert losses[-1] < losses[0]


@pytest.mark.torch
def test_both_sides_are_the_same_model():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from minitx.bench import side_torch

    ours, theirs = side_minitx.build(SMALL, 1), side_torch.build(SMALL, 1)

    def numbers(step, name):
        cells = dict(zip(step.__code__.co_freevars, step.__closure__, strict=True))
        return sum(int(np.prod(p.shape)) for p in cells[name].cell_contents.parameters())

    assert numbers(ours, "model") == numbers(theirs, "model")
    assert abs(theirs() - np.log(11)) < 1


def test_rows_come_from_a_process_of_their_own():
    (row,) = rows(None, threads=1, seconds=0.01, sizes=[SMALL])
    assert row.ours.median > 0
    assert row.theirs is None
    assert row.ratio is None
    assert 0 < row.loss[0] < 5


def test_overheads_and_chain():
    lines = overhead_lines(overheads(rounds=1))
    assert any(line.startswith("linear") for line in lines)
    assert gradient_of_a_chain(1000)() == 1


def test_the_command(tmp_path, capsys):
    target = tmp_path / "figures.json"
    assert main(["bench", "import", "--json", str(target)]) == 0
    assert "import minitx" in capsys.readouterr().out
    assert json.loads(target.read_text(encoding="utf-8"))["minitx"] > 0
    assert main(["bench", "--threads", "0"]) == 2


def test_batches_are_shifted_once():
    ids, targets = batch(SMALL)
    np.testing.assert_array_equal(ids[:, 1:], targets[:, :-1])
