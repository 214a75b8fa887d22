"""What optimizers, clipping and schedules refuse, and that a refusal leaves everything as it was."""
import numpy as np
import pytest

from minitx import Tensor, nn
from minitx.optim import SGD, Adam, AdamW, Schedule, clip_grad_norm, constant, noam, warmup_cosine, warmup_linear


def leaf(n=2, dtype=np.float64):
    return Tensor(np.ones(n, dtype), requires_grad=True)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda p: SGD(p, lr=True), TypeError, "lr is a number, not True"),
        (lambda p: SGD(p, lr=None), TypeError, "lr is a number, not None"),
        (lambda p: SGD(p, lr="0.1"), TypeError, "lr is a number, not '0.1'"),
        (lambda p: SGD(p, lr=np.array([0.1])), TypeError, r"lr is a number, not array\(\[0.1\]\)"),
        (lambda p: SGD(p, lr=-1.0), ValueError, "lr is finite and not negative, not -1.0"),
        (lambda p: SGD(p, lr=1.0, weight_decay="a"), TypeError, "weight_decay is a number, not 'a'"),
        (lambda p: SGD(p, lr=1.0, momentum=None), TypeError, "momentum is a number, not None"),
        (lambda p: SGD([{"params": p, "lr": True}], lr=1.0), TypeError, "lr is a number, not True"),
        (lambda p: Adam(p, lr=1.0, betas=0.9), TypeError, r"betas are two numbers, \(0.9, 0.999\), not 0.9"),
        (lambda p: Adam(p, lr=1.0, betas=(0.9, None)), TypeError, "each of betas is a number, not None"),
        (lambda p: Adam(p, lr=1.0, eps=None), TypeError, "eps is a number, not None"),
        (lambda p: clip_grad_norm(p, None), TypeError, "max_norm is a number, not None"),
        (lambda p: clip_grad_norm(p, "1"), TypeError, "max_norm is a number, not '1'"),
        (lambda p: Schedule(SGD(p, lr=1.0), 0.5), TypeError, "a function of the step, .* not 0.5"),
        (lambda p: Schedule(p, constant()), TypeError, "first an optimizer, not a list"),
        (lambda p: Schedule(SGD(p, lr=1.0), lambda t: -1), ValueError, "the factor at step 1 .* not -1"),
        (lambda p: Schedule(SGD(p, lr=1.0), lambda t: float("nan")), ValueError, "the factor at step 1 .* not nan"),
        (lambda p: Schedule(SGD(p, lr=1.0), lambda t: None), TypeError, "the factor at step 1 is a number, not None"),
        (lambda p: noam(4, 10, factor=-1), ValueError, "factor is finite and not negative, not -1"),
        (lambda p: noam(4, None), TypeError, "warmup is a number, not None"),
        (lambda p: noam(0, 10), ValueError, "at least 1, not 0 and 10"),
        (lambda p: constant(-5), ValueError, "warmup is a number of steps, not -5"),
        (lambda p: warmup_linear("10"), TypeError, "total is a number, not '10'"),
        (lambda p: warmup_cosine(10, minimum=None), TypeError, "minimum is a number, not None"),
    ],
)
def test_what_cannot_be(make, error, words):
    with pytest.raises(error, match=words):
        make([leaf()])


@pytest.mark.parametrize("p", [Tensor([1.0]), Tensor(np.array([1]))])
def test_a_tensor_that_never_gets_a_gradient(p):
    with pytest.raises(ValueError, match=rf"parameter w \({p.dtype}\) never gets a gradient"):
        SGD([("w", p)], lr=1.0)


def test_a_frozen_parameter_waits():
    layer = nn.Linear(2, 3, rng=np.random.default_rng(0))
    layer.weight.requires_grad = False
    optimizer, before = SGD(layer, lr=1.0), layer.weight.numpy()
    layer(Tensor(np.ones((1, 2), np.float32))).sum().backward()
    optimizer.step()
    np.testing.assert_array_equal(layer.weight.data, before)
    np.testing.assert_array_equal(layer.bias.data, [-1, -1, -1])


@pytest.mark.parametrize("rate", [-5, None, "1", float("inf"), True])
def test_the_rate_is_checked_when_it_is_set(rate):
    optimizer = SGD([leaf()], lr=0.5)
    with pytest.raises((ValueError, TypeError), match="lr is"):
        optimizer.lr = rate
    assert optimizer.lr == optimizer.groups[0]["base_lr"] == 0.5


def test_numpy_numbers_are_numbers_and_steps_keep_the_dtype():
    p = leaf(dtype=np.float32)
    optimizer = Adam([p], lr=np.float64(0.5), betas=[np.float32(0.5), 0.5], eps=1, weight_decay=0)
    p.grad = np.ones(2, np.float32)
    optimizer.step()
    assert type(optimizer.lr) is float
    assert optimizer.groups[0]["betas"] == (0.5, 0.5)
    assert p.dtype == optimizer.state["0"]["m"].dtype == np.float32


@pytest.mark.parametrize("make", [lambda m: SGD(m, lr=0.1, momentum=0.9), lambda m: AdamW(m, lr=0.1)])
def test_a_model_that_was_cast_after_a_step_is_refused(make):
    layer = nn.Linear(2, 3, rng=np.random.default_rng(0))
    optimizer = make(layer)
    for dtype in (np.float32, np.float64):
        layer.astype(dtype)
        for p in layer.parameters():
            p.grad = np.ones(p.shape, dtype)
        before = layer.state_dict()
        if dtype == np.float32:
            optimizer.step()
            continue
        with pytest.raises(TypeError, match=r"weight is float64 now, and . of this optimizer is float32: cast"):
            optimizer.step()
        for name, value in layer.state_dict().items():
            np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("steps", [(1, 1), (1, 2), (0, 1)])
def test_one_parameter_that_was_cast_stops_the_step_of_all(groups, steps):
    """In another group, or stepped more often: nothing has changed, values, moments and counts, and graphs still go."""
    first, second = nn.Parameter(np.ones(3, np.float32)), nn.Parameter(np.ones(5, np.float32))
    pairs = [("a", first), ("b", second)]
    optimizer = AdamW([{"params": [pair]} for pair in pairs] if groups else pairs, lr=0.1)
    for i in range(max(steps)):
        for p, n in zip((first, second), steps):
            p.grad = np.ones(p.shape, np.float32) if i < n else None
        optimizer.step()
    second.cast(np.float64)
    first.grad, second.grad = np.ones(3, np.float32), np.ones(5)
    before, state = [first.numpy(), second.numpy()], optimizer.state_dict()["state"]
    loss = (first * first).sum()
    with pytest.raises(TypeError, match="b is float64 now, and m of this optimizer is float32"):
        optimizer.step()
    for p, value in zip((first, second), before):
        np.testing.assert_array_equal(p.numpy(), value)
    loss.backward()
    assert optimizer.state.keys() == state.keys()
    for name, entry in optimizer.state.items():
        assert entry["step"] == state[name]["step"]
        np.testing.assert_array_equal(entry["m"], state[name]["m"])


def stepped(kind, **options):
    optimizer = kind([("w", leaf()), ("b", leaf(3))], lr=0.1, **options)
    for _, p in optimizer.named_parameters():
        p.grad = np.ones(p.shape)
    optimizer.step()
    return optimizer


def without(entry, key):
    return {k: v for k, v in entry.items() if k != key}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda e: without(e, "v"), KeyError, "state of b has step, m; Adam remembers step, m, v"),
        (lambda e: without(e, "step"), KeyError, "state of b has m, v"),
        (lambda e: e | {"u": e["v"]}, KeyError, "state of b has step, m, v, u"),
        (lambda e: e | {"step": -1}, ValueError, "step of b counts its updates from 1, and cannot be -1"),
        (lambda e: e | {"step": 0}, ValueError, "step of b"),
        (lambda e: e | {"step": 1.5}, ValueError, "step of b"),
        (lambda e: e | {"step": True}, ValueError, "step of b"),
        (lambda e: e | {"m": [0.0, 0.0, 0.0]}, TypeError, "m of b is an array, not"),
        (lambda e: e | {"m": None}, TypeError, "m of b is an array, not None"),
    ],
)
def test_a_damaged_state_is_refused_whole(change, error, words):
    optimizer = stepped(Adam)
    saved, before = optimizer.state_dict(), optimizer.state_dict()
    saved["groups"][0]["lr"] = 7.0
    saved["state"]["w"]["step"] = 5
    saved["state"]["b"] = change(saved["state"]["b"])
    with pytest.raises(error, match=words):
        optimizer.load_state_dict(saved)
    assert optimizer.lr == 0.1
    assert optimizer.state["w"]["step"] == 1
    np.testing.assert_array_equal(optimizer.state["b"]["m"], before["state"]["b"]["m"])


def test_a_state_of_sgd():
    optimizer = stepped(SGD, momentum=0.9)
    saved = optimizer.state_dict()
    for bad in ({"b": 1.0}, {"m": np.ones(2)}):
        with pytest.raises((KeyError, TypeError)):
            optimizer.load_state_dict(saved | {"state": {"w": bad}})
    optimizer.load_state_dict(saved | {"state": {"w": {}}})  # nothing yet to remember
    optimizer.load_state_dict(saved)


@pytest.mark.parametrize("bad", [{"betas": 0.9}, {"lr": "1"}, {"lr": -1.0}])
def test_impossible_options_in_a_state(bad):
    optimizer = stepped(Adam)
    saved = optimizer.state_dict()
    saved["groups"][0] |= bad
    with pytest.raises((ValueError, TypeError), match=next(iter(bad))):
        optimizer.load_state_dict(saved)
    assert optimizer.lr == 0.1
