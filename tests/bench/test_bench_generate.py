"""The bench of generation compares like with like; what it measures is nobody's assertion."""
import json

import numpy as np
import pytest

from minitx.bench import generation_tables, side_generate_minitx, sides
from minitx.bench.generate import STEPS, Shape, Work, rows
from minitx.bench.recurrent import Recurrent
from minitx.bench.remembering import learned, recurrent_step, remembered
from minitx.cli import main
from minitx.generation import generate
from minitx.models import Transformer

SMALL = Shape(2, 8, 4, 2, 1, 11, 7 + STEPS)


def inside(run, name):
    """What a function has closed over."""
    return dict(zip(run.__code__.co_freevars, run.__closure__, strict=True))[name].cell_contents


@pytest.mark.parametrize("what", ["prefill", "cached", "uncached"])
def test_our_side(what):
    run = side_generate_minitx.build(Work(SMALL, 7, what), 1)
    used, allocated = run()
    assert run() == (used, allocated)  # it goes back to where it was
    tokens = {"prefill": 7, "cached": 7 + STEPS, "uncached": 0}[what]
    assert used == 2 * 2 * 2 * 2 * 4 * tokens  # rows, keys and values, heads, width, bytes
    assert allocated >= used


@pytest.mark.torch
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_both_sides_are_the_same_model_with_the_same_cache(kv_heads):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from minitx.bench import side_generate_torch

    shape = SMALL._replace(kv_heads=kv_heads)
    ours, theirs = (side.build(Work(shape, 7, "cached"), 1) for side in (side_generate_minitx, side_generate_torch))
    assert ours()[0] == theirs()[0]
    model = inside(theirs, "model")
    mine = Transformer(shape.config(), rng=np.random.default_rng(0))
    assert sum(p.numel() for p in model.parameters()) == sum(p.size for p in mine.parameters())
    # Their step behind a cache is what they say on the whole text.
    prompt = torch.from_numpy(np.array(Work(shape, 7, "cached").prompt()))
    with torch.inference_mode():
        model.length = 0
        model(prompt[:, :6])
        step = model(prompt[:, 6:])
        model.length = 0
        torch.testing.assert_close(step, model(prompt))


def test_rows_come_from_a_process_of_their_own(monkeypatch):
    monkeypatch.setattr(sides, "TURN", 1e-4)
    (row,) = rows(SMALL, (7,), None, threads=1, seconds=0.001)
    assert set(row.step) == {"cached", "uncached"}
    assert row.ratio is None
    assert row.bytes[1] >= row.bytes[0] > 0
    assert json.loads(json.dumps(row.to_dict()))["context"] == 7
    assert "T    7" in generation_tables.line(row)


@pytest.mark.slow
def test_the_command(monkeypatch, tmp_path, capsys):
    small = SMALL._replace(B=1)
    monkeypatch.setattr(sides, "TURN", 1e-4)
    monkeypatch.setattr(generation_tables, "CONTEXTS", (5, 7))
    monkeypatch.setattr(generation_tables, "ONE", small)
    monkeypatch.setattr(generation_tables, "SHARED", [])
    monkeypatch.setattr(generation_tables, "TRAINED", [(SMALL, 3)])
    monkeypatch.setattr(generation_tables, "learned", lambda shape: learned(SMALL, (3,), 1))
    target = tmp_path / "figures.json"
    assert main(["bench", "generate", "--seconds", "0.001", "--threads", "1", "--json", str(target)]) == 0
    out = capsys.readouterr().out
    assert "uncached" in out
    assert "one after the other" in out
    assert len(json.loads(target.read_text(encoding="utf-8"))["generate"]["rows"]) == 3


# ---------------------------------------------------------------------- the recurrent network


def test_a_recurrent_network_goes_on_from_its_states():
    network = Recurrent(11, 6, 2, rng=np.random.default_rng(0)).astype(np.float64)
    ids = np.random.default_rng(1).integers(0, 11, (3, 7))
    whole, last = network(ids)
    first, states = network(ids[:, :4])
    rest, after = network(ids[:, 4:], states)
    np.testing.assert_allclose(np.concatenate([first.data, rest.data], axis=1), whole.data, rtol=1e-12)
    for a, b in zip(after, last):
        assert a.shape == (3, 1, 6)
        np.testing.assert_allclose(a.data, b.data, rtol=1e-12)


def test_the_state_does_not_grow_and_the_cache_does():
    found = remembered(SMALL, (10, 20))
    assert [f.state for f in found] == [8 * 4] * 2
    assert [f.cache for f in found] == [2 * 2 * 2 * 4 * T for T in (10, 20)]
    model = Transformer(SMALL._replace(longest=20).config(), rng=np.random.default_rng(0))
    said = generate(model, [[1] * 10], max_new=11, eos=None)
    assert said.timings.cache_bytes == found[1].cache  # the formula is what there is
    assert recurrent_step(SMALL, 3).median > 0
