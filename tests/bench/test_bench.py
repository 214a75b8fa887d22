"""The benchmarks run, count right and compare like with like; what they measure is nobody's assertion."""
import json

import numpy as np
import pytest

from minitx.bench import attention, growth, matmul, matmul_minitx, matmul_numpy, side_minitx, tables
from minitx.bench.models import Size, batch
from minitx.bench.overhead import gradient_of_a_chain, overhead_lines, overheads
from minitx.bench.timing import summary
from minitx.bench.train import rows
from minitx.cli import bench, main
from minitx.models import Transformer

SMALL = Size(2, 5, 8, 2, 1, V=11)


def test_summary_is_median_and_quartiles():
    assert summary([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, 2.0, 4.0)


def test_flops_by_hand():
    """One layer, a sequence of two tokens, d 1: 12 weights a token, head V, 3 pairs of 2 products; times 2, times 3."""
    assert Size(1, 2, 1, 1, 1, V=5).flops() == 3 * 2 * (2 * (12 + 5) + 3 * 2)


KINDS = pytest.mark.parametrize(
    "size", [SMALL, SMALL._replace(kind="llama"), SMALL._replace(kind="reverse", V=13)], ids=str
)


@KINDS
def test_our_side_learns(size):
    step = side_minitx.build(size, 1)
    losses = [step()["loss"] for _ in range(30)]
    assert losses[-1] < losses[0]


@KINDS
@pytest.mark.torch
def test_both_sides_are_the_same_model(size):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from minitx.bench import side_torch

    ours, theirs = side_minitx.build(size, 1), side_torch.build(size, 1)

    def numbers(step):
        cells = dict(zip(step.__code__.co_freevars, step.__closure__, strict=True))
        return sum(int(np.prod(p.shape)) for p in cells["model"].cell_contents.parameters())

    assert numbers(ours) == numbers(theirs)
    losses = [theirs()["loss"] for _ in range(30)]
    assert losses[-1] < losses[0]


@KINDS
@pytest.mark.torch
def test_with_the_same_weights_both_sides_say_the_same(size):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from minitx.bench import torch_models

    kinds = {"decoder": torch_models.Decoder, "llama": torch_models.Llama, "reverse": torch_models.EncoderDecoder}
    ours, theirs = Transformer(size.config(), rng=np.random.default_rng(0)), kinds[size.kind](size.config())
    rng, data = np.random.default_rng(1), batch(size)
    for p in ours.parameters():
        p.data = p.numpy() + 0.1 * rng.standard_normal(p.shape).astype(np.float32)
    counted = []

    def put(target, *layers):
        for name in ("weight", "bias"):
            if getattr(target, name, None) is not None:
                values = torch.cat([torch.from_numpy(np.array(getattr(layer, name).numpy())) for layer in layers])
                assert getattr(target, name).shape == values.shape
                getattr(target, name).data = values
                counted.append(values.numel())

    def attention(target, layer):
        if target.query is not None:
            put(target.query, layer.query)
        put(target.qkv, *([] if target.query is not None else [layer.query]), layer.key, layer.value)
        put(target.out, layer.out)

    def feedforward(target, layer):
        put(target.up, *([layer.gate] if hasattr(layer, "gate") else []), layer.up)
        put(target.down, layer.down)

    put(theirs.tokens, ours.embedding)
    if size.kind == "reverse":
        for block, mine in zip([*theirs.encoder, *theirs.decoder], [*ours.encoder, *ours.decoder]):
            residuals = [mine.attention_residual, mine.feedforward_residual]
            attention(block.attention, mine.attention)
            if block.cross is not None:
                attention(block.cross, mine.cross_attention)
                residuals.insert(1, mine.cross_attention_residual)
            for norm, residual in zip(block.norms, residuals, strict=True):
                put(norm, residual.norm)
            feedforward(block, mine.feedforward)
    else:
        for block, mine in zip(theirs.blocks, ours.decoder, strict=True):
            put(block.norm1, mine.attention_residual.norm)
            attention(block.attention, mine.attention)
            put(block.norm2, mine.feedforward_residual.norm)
            feedforward(block, mine.feedforward)
        put(theirs.norm, ours.decoder_norm)
        put(theirs.head, ours.head)
        if size.kind == "decoder":
            put(theirs.places, ours.positions)
    assert sum(counted) == sum(p.numel() for p in theirs.parameters())
    inputs = [torch.from_numpy(np.array(ids)) for ids in (data.ids, data.target_ids) if ids is not None]
    if data.mask is not None:
        inputs.append(torch.from_numpy(np.array(data.mask.dense(*data.ids.shape, data.ids.shape[1])[:, :1])))
    logits = ours(data.ids, data.target_ids, mask=data.mask, target_mask=data.target_mask).logits.numpy()
    np.testing.assert_allclose(theirs(*inputs).detach().numpy(), logits, atol=1e-4 * np.abs(logits).max())


def test_rows_come_from_a_process_of_their_own():
    (row,) = rows(None, threads=1, seconds=0.01, sizes=[SMALL])
    assert row.ours.median > 0
    assert row.theirs is None
    assert row.ratio is None
    assert 0 < row.after[0]["loss"] < 5
    assert row.after[0]["peak"] is None or row.after[0]["peak"] >= row.after[0]["before"] > 10


def test_attention_on_both_sides():
    case = attention.Case(1, 2, 5, 3, causal=True, window=2, backward=True)
    assert case.flops() == 2 * 2 * (1 + 2 + 2 + 2 + 2) * 3 * 7
    (row,) = attention.rows(None, 1, 0.001, [case])
    assert row.ours.median > 0
    assert row.ratio is None


@pytest.mark.torch
@pytest.mark.parametrize("change", [{}, {"causal": True}, {"causal": True, "window": 2}, {"causal": True, "H_kv": 2}])
def test_attention_is_the_same_on_both_sides(change):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from minitx.bench import attention_minitx, attention_torch

    case = attention.Case(2, 4, 7, 3, backward=True)._replace(**change)

    def gradients(side, read):
        run = side.build(case, 1)
        run()
        cells = dict(zip(run.__code__.co_freevars, run.__closure__, strict=True))
        return [read(cells[name].cell_contents.grad) for name in ("q", "k", "v")]

    ours, theirs = gradients(attention_minitx, np.asarray), gradients(attention_torch, lambda g: g.numpy())
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_products_on_both_sides():
    cases = [matmul.Case(3, 5, 7), matmul.Case(3, 5, 7, True, True), matmul.Case(3, 5, 7, gelu=True)]
    for case in cases:
        results = []
        for side in (matmul_minitx, matmul_numpy):
            run = side.build(case, 1)
            run()
            cells = dict(zip(run.__code__.co_freevars, run.__closure__, strict=True))
            results.append(cells["c"].cell_contents)
        np.testing.assert_allclose(*results, atol=1e-5)
    (row,) = matmul.rows(1, 0.001, cases[:1])
    assert row.ratio > 0


def test_a_share_is_of_the_fastest_product():
    """1 GFLOP in 10 ms is 100 GFLOP/s, half of 200."""
    timing = summary([0.01])
    line = tables.side_by_side("x", timing, summary([0.02]), 10**9, most=200.0)
    assert " 100.0 GFLOP/s  50% " in line
    assert line.endswith(" 50.0  25%   ratio 2.00")
    assert "%" not in tables.side_by_side("x", timing, None, 10**9)


def test_growth_counts_a_token():
    row = growth.Row("length T", SMALL, summary([0.001]))
    assert row.nanoseconds == 1e6 / 10
    assert row.flops == SMALL.flops() / 10
    for series in growth.SERIES.values():
        assert len(set(series)) == len(series)


def test_overheads_and_chain():
    lines = overhead_lines(overheads(rounds=1))
    assert any(line.startswith("linear") for line in lines)
    assert gradient_of_a_chain(1000)() == 1


def test_the_threads_of_the_environment(monkeypatch):
    monkeypatch.setattr(bench.os, "cpu_count", lambda: 5)
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    for given, meant in (("", 5), ("1", 1), ("3", 3), ("0", 5), ("-1", 5), ("many", 5), ("7", 5)):
        monkeypatch.setenv("MINITX_NUM_THREADS", given)
        assert bench.usual_threads() == meant
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")
    assert bench.usual_threads() == 2


def test_the_command(tmp_path, capsys):
    target = tmp_path / "figures.json"
    assert main(["bench", "import", "--json", str(target)]) == 0
    assert "import minitx" in capsys.readouterr().out
    assert json.loads(target.read_text(encoding="utf-8"))["import"]["minitx"] > 0
    assert main(["bench", "--threads", "0"]) == 2
    assert main(["bench", "--threads", "100000"]) == 2
    assert main(["bench", "--json", "-"]) == 2
    assert main(["bench", "--json", str(tmp_path / "nowhere" / "figures.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main(["bench", "--json", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err


def test_all_parts_one_after_the_other(tmp_path, capsys, monkeypatch):
    """The figures of what is done are there when a later part stops."""
    target = tmp_path / "figures.json"

    def stop(_):
        raise KeyboardInterrupt

    parts = {"first": lambda _: [{"ratio": 2.0}, {"ratio": 8.0}], "second": lambda _: {"rows": [{"ratio": None}]}}
    monkeypatch.setattr(bench, "WHAT", parts)
    assert main(["bench", "--json", str(target)]) == 0
    out = capsys.readouterr().out
    assert out.index("== first") < out.index("== second") < out.index("== all in")
    summary_line = " ".join(out.splitlines()[-1].split())
    assert summary_line == "first 2 rows, ratio, theirs / ours: geometric mean 4.00, worst 2.00"

    monkeypatch.setattr(bench, "WHAT", {"first": parts["second"], "second": stop})
    assert main(["bench", "--json", str(target)]) == 130
    kept = json.loads(target.read_text(encoding="utf-8"))
    assert kept["first"] == {"rows": [{"ratio": None}]}
    assert "second" not in kept


def test_without_pytorch_it_is_our_side_alone(capsys, monkeypatch):
    monkeypatch.setattr(bench.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(bench, "WHAT", {"first": lambda args: [{"ratio": args.against}]})
    assert main(["bench", "first", "--against", "torch"]) == 0
    assert "PyTorch is not installed" in capsys.readouterr().out


def test_batches_are_shifted_once():
    data = batch(SMALL)
    np.testing.assert_array_equal(data.ids[:, 1:], data.targets[:, :-1])
