"""copy, reverse, sort and add: right answers, and not one held-out question in training."""
import time

import numpy as np
import pytest

from minitx.data import BOS, EOS, IGNORED, PAD
from minitx.tasks import get_task
from minitx.tasks.addition import is_held_out

NAMES = ["copy", "reverse", "sort"]


def texts(task, batch):
    """The batch as (source, target) strings, after a look at its form."""
    out = []
    for ids, target_ids, targets, length in zip(batch.ids, batch.target_ids, batch.targets, batch.mask.lengths):
        assert ids[length - 1] == EOS
        assert (ids[length:] == PAD).all()
        counted = targets != IGNORED
        m = int(counted.sum())
        assert counted[:m].all()
        assert targets[m - 1] == EOS
        assert target_ids[0] == BOS
        np.testing.assert_array_equal(target_ids[1:m], targets[: m - 1])
        assert (target_ids[m:] == PAD).all()
        out.append((task.tokenizer.decode(ids), task.tokenizer.decode(targets[:m])))
    return out


def right(name, source):
    if name == "add":
        a, b = source.split("+")
        assert str(int(a)) == a
        assert str(int(b)) == b
        return str(int(a) + int(b))
    symbols = source.split()
    return " ".join({"copy": symbols, "reverse": symbols[::-1], "sort": sorted(symbols)}[name])


@pytest.mark.parametrize("name", [*NAMES, "add"])
def test_targets_are_right_and_the_two_sets_do_not_meet(name):
    task = get_task(name)
    trained = set()
    rng = np.random.default_rng(3)
    for _ in range(20):
        for source, target in texts(task, task.batch(rng, 211)):
            assert target == right(name, source)
            trained.add(source)
    held = []
    for batch in task.held_out():
        for source, target in texts(task, batch):
            assert target == right(name, source)
            held.append(source)
    assert len(held) == len(set(held)) == 1000
    assert not trained & set(held)
    if name == "add":
        assert not {"+".join(s.split("+")[::-1]) for s in trained} & set(held)
    else:
        digits = [np.array([int(c) for c in s.split()]) for s in held]
        assert all(task.is_held_out(d) for d in digits)
        assert not any(task.is_held_out(np.array([int(c) for c in s.split()])) for s in trained)


@pytest.mark.parametrize("name", NAMES)
def test_every_length_is_trained_on_and_asked_for(name):
    task = get_task(name)
    lengths = np.concatenate([task.batch(np.random.default_rng(i), 500).mask.lengths for i in range(4)]) - 1
    counts = np.bincount(lengths, minlength=13)[1:]
    assert counts.shape == (12,)
    assert counts.min() > 110  # 2,000 / 12 = 167 expected
    asked = np.bincount([len(e.source) for e in task.examples()])
    assert asked.tolist() == [0, 1, 10] + [99] * 9 + [98]


def test_all_that_is_not_held_out_is_trained_on():
    """Length 1: nine of ten; length 2: ninety of a hundred, each equally often."""
    task = get_task("copy", longest=2)
    rng = np.random.default_rng(7)
    seen = {}
    for _ in range(20):
        for source, _ in texts(task, task.batch(rng, 1000)):
            seen[source] = seen.get(source, 0) + 1
    assert sum(len(s.split()) == 1 for s in seen) == 9
    assert sum(len(s.split()) == 2 for s in seen) == 90
    pairs = [n for s, n in seen.items() if len(s.split()) == 2]
    assert min(pairs) > 60  # 10,000 / 90 = 111 expected
    assert max(pairs) < 170
    assert len(task.examples()) == 11


def test_a_tenth_of_the_sums_of_every_width():
    n = np.arange(1000)
    pairs = np.stack([np.repeat(n, 1000), np.tile(n, 1000)], 1)
    held = is_held_out(pairs)
    np.testing.assert_array_equal(held, is_held_out(pairs[:, ::-1]))
    widths = np.char.str_len(pairs.astype(str))
    for a in (1, 2, 3):
        for b in (1, 2, 3):
            share = held[(widths == [a, b]).all(1)].mean()
            assert 0.08 < share < 0.12, (a, b, share)


def test_sums_of_every_width_are_trained_on():
    task = get_task("add")
    sources = [s for s, _ in texts(task, task.batch(np.random.default_rng(3), 900))]
    widths = [tuple(len(part) for part in s.split("+")) for s in sources]
    counts = [widths.count((a, b)) for a in (1, 2, 3) for b in (1, 2, 3)]
    assert min(counts) > 60  # 100 expected
    assert any(s.startswith("0+") for s in sources)


@pytest.mark.parametrize("name", [*NAMES, "add"])
def test_a_batch_is_a_function_of_the_generator(name):
    task, again = get_task(name), get_task(name)
    rng, other = np.random.default_rng(5), np.random.default_rng(5)
    task.batch(rng, 13)
    state = rng.bit_generator.state
    a = task.batch(rng, 13)
    other.bit_generator.state = state
    b = again.batch(other, 13)
    for field in ("ids", "targets", "target_ids"):
        np.testing.assert_array_equal(getattr(a, field), getattr(b, field))


@pytest.mark.parametrize("name", [*NAMES, "add"])
def test_the_questions_are_always_the_same(name):
    a, b = get_task(name), get_task(name)
    a.batch(np.random.default_rng(5), 13)
    for size in (None, 57):
        for x, y in zip(a.held_out(size), b.held_out(size)):
            np.testing.assert_array_equal(x.ids, y.ids)
    assert sum(map(len, a.held_out(57))) == 57


@pytest.mark.parametrize("name", [*NAMES, "add"])
def test_making_a_batch_costs_well_below_a_training_step(name):
    task = get_task(name)
    rng = np.random.default_rng(3)
    task.batch(rng, 64)
    times = []
    for _ in range(50):
        start = time.perf_counter()
        task.batch(rng, 64)
        times.append(time.perf_counter() - start)
    assert min(times) < 1e-3


@pytest.mark.parametrize(
    ("name", "options"), [("copy", {"longest": 1}), ("reverse", {"longest": 18}), ("add", {"digits": 1})]
)
def test_other_sizes(name, options):
    task = get_task(name, **options)
    for source, target in texts(task, task.batch(np.random.default_rng(3), 50)):
        assert target == right(name, source)
    assert dict(task.options) == options
    assert task.held_out()
    longest = max(len(e.source) for e in task.examples())
    assert task.positions >= longest + 1
