"""SGD, and what all optimizers share: names, groups, skipping, decay flags, saved state."""

import numpy as np
import pytest

from minitx import Tensor
from minitx.optim import SGD, AdamW, Optimizer


class Weight(Tensor):
    """Like nn.Parameter: a Tensor with a decay flag."""

    __slots__ = ("decay",)

    def __init__(self, data, decay=True):
        super().__init__(data, requires_grad=True)
        self.decay = decay


class Net:
    """Anything with named_parameters() is a Module to an optimizer."""

    def __init__(self, **parameters):
        self.parameters = parameters

    def named_parameters(self):
        return iter(self.parameters.items())


def leaf(value, dtype=np.float64):
    return Tensor(np.array(value, dtype), requires_grad=True)


def test_a_plain_step():
    p = leaf([1.0, 2.0])
    p.grad = np.array([10.0, -10.0])
    SGD([p], lr=0.1).step()
    np.testing.assert_array_equal(p.numpy(), [0.0, 3.0])


def test_momentum_and_decay_by_hand():
    p = leaf([1.0])
    optimizer = SGD([p], lr=0.5, momentum=0.5, weight_decay=0.1)
    p.grad = np.array([0.9])
    optimizer.step()  # b = 0.9 + 0.1 * 1 = 1, p = 1 - 0.5
    np.testing.assert_allclose(p.numpy(), [0.5], rtol=1e-15)
    p.grad = np.array([0.2])
    optimizer.step()  # b = 0.5 * 1 + 0.2 + 0.1 * 0.5 = 0.75
    np.testing.assert_allclose(p.numpy(), [0.5 - 0.375], rtol=1e-15)


def test_a_constant_gradient_is_followed_faster_by_one_over_one_minus_momentum():
    p = leaf([0.0])
    optimizer = SGD([p], lr=1.0, momentum=0.9)
    for _ in range(400):
        p.grad = np.array([1.0])
        before = p.item()
        optimizer.step()
    np.testing.assert_allclose(before - p.item(), 10.0)


@pytest.mark.parametrize(("second", "value"), [(np.zeros(1), -1.9), (None, -1.0)])
def test_pitfall_11_none_is_skipped_and_zero_is_applied(second, value):
    p = leaf([0.0])
    optimizer = SGD([p], lr=1.0, momentum=0.9)
    p.grad = np.ones(1)
    optimizer.step()
    p.grad = second
    optimizer.step()
    np.testing.assert_allclose(p.numpy(), [value], rtol=1e-15)


def test_pitfall_11_zero_grad_gives_both():
    for set_to_none, value in [(True, -1.0), (False, -1.9)]:
        p = leaf([0.0])
        optimizer = SGD([p], lr=1.0, momentum=0.9)
        p.grad = np.ones(1)
        optimizer.step()
        held = p.grad
        optimizer.zero_grad(set_to_none=set_to_none)
        optimizer.step()
        np.testing.assert_allclose(p.numpy(), [value], rtol=1e-15)
        np.testing.assert_array_equal(held, [1.0])  # whoever kept the old gradient still has it


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_and_shape_are_kept(dtype, shape):
    rng = np.random.default_rng(0)
    p = leaf(rng.normal(size=shape), dtype)
    optimizer = SGD([p], lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        p.grad = np.asarray(rng.normal(size=shape)).astype(dtype)
        optimizer.step()
    b = optimizer.state["0"]["b"]
    assert (p.dtype, p.shape, b.dtype, b.shape) == (dtype, shape, dtype, shape)


def test_the_gradient_is_not_kept_or_changed():
    p, g = leaf([1.0, 2.0]), np.array([3.0, 4.0])
    optimizer = SGD([p], lr=0.1, momentum=0.9)
    p.grad = g
    optimizer.step()
    optimizer.step()
    np.testing.assert_array_equal(g, [3.0, 4.0])
    assert not np.shares_memory(g, optimizer.state["0"]["b"])


def test_a_graph_made_before_the_step_refuses():
    p = leaf([2.0])
    loss = p * p
    loss.backward(np.ones(1), retain_graph=True)
    SGD([p], lr=0.1).step()
    with pytest.raises(RuntimeError, match="changed in place"):
        loss.backward(np.ones(1))


# ---------------------------------------------------------------------- names and groups


def names(optimizer: Optimizer) -> list[str]:
    return [name for name, _ in optimizer.named_parameters()]


def test_names_of_a_module_of_pairs_and_of_bare_tensors():
    a, b = leaf([1.0]), leaf([2.0])
    assert names(SGD(Net(query=a, key=b), lr=1)) == ["query", "key"]
    assert names(SGD([("x", a), ("y", b)], lr=1)) == ["x", "y"]
    assert names(SGD({"x": a, "y": b}, lr=1)) == ["x", "y"]
    assert names(SGD([a, b], lr=1)) == ["0", "1"]
    assert names(SGD((p for p in (a, b)), lr=1)) == ["0", "1"]
    assert names(SGD([{"params": [a]}, {"params": [b]}], lr=1)) == ["0", "1"]


def test_pitfall_12_a_tied_parameter_is_stepped_once():
    a = leaf([1.0])
    a.grad = np.array([1.0])
    optimizer = SGD([("embedding", a), ("head", a)], lr=0.25)
    optimizer.step()
    assert names(optimizer) == ["embedding"]
    assert a.item() == 0.75


def test_groups_override_options_and_decay_flags_win():
    body, head, gain, bare = Weight([1.0]), Weight([1.0]), Weight([1.0], decay=False), leaf([1.0], np.float32)
    optimizer = AdamW(
        [
            {"params": Net(body=body, gain=gain)},
            {"params": [("head", head)], "lr": 0.5, "weight_decay": 0.5},
            {"params": [("bare", bare)], "betas": (0.5, 0.5)},
        ],
        lr=0.1,
        weight_decay=0.1,
    )
    for _, p in optimizer.named_parameters():
        p.grad = np.zeros(1, np.float32)  # then only decay moves
    optimizer.step()
    np.testing.assert_allclose([p.item() for p in (body, gain, head, bare)], [0.99, 1.0, 0.75, 0.99], rtol=1e-7)
    assert [g["lr"] for g in optimizer.groups] == [0.1, 0.5, 0.1]
    assert [g["betas"] for g in optimizer.groups] == [(0.9, 0.999), (0.9, 0.999), (0.5, 0.5)]


def test_lr_is_read_and_set():
    optimizer = SGD([{"params": [leaf([1.0])]}, {"params": [leaf([1.0])], "lr": 2.0}], lr=1.0)
    assert optimizer.lr == 1.0
    optimizer.lr = 0.5
    assert [(g["lr"], g["base_lr"]) for g in optimizer.groups] == [(0.5, 0.5)] * 2


def test_bad_parameters_are_refused_with_a_reason():
    a, b = leaf([1.0]), leaf([2.0])
    with pytest.raises(TypeError, match="set has no order"):
        SGD({a, b}, lr=1)
    with pytest.raises(TypeError, match=r"\[p\], not p"):
        SGD(a, lr=1)
    with pytest.raises(TypeError, match="ndarray"):
        SGD([a.numpy()], lr=1)
    with pytest.raises(ValueError, match="only leaves"):
        SGD([a + b], lr=1)
    with pytest.raises(ValueError, match="no parameters"):
        SGD([], lr=1)
    with pytest.raises(ValueError, match="two groups, 0 and 1"):
        SGD([{"params": [a]}, {"params": [b, a]}], lr=1)
    with pytest.raises(ValueError, match="two parameters are called x"):
        SGD([("x", a), ("x", b)], lr=1)
    with pytest.raises(TypeError, match="no option 'learning_rate'"):
        SGD([{"params": [a], "learning_rate": 1}], lr=1)
    with pytest.raises(TypeError, match='dict with "params"'):
        SGD([{"params": [a]}, {"lr": 1}], lr=1)


@pytest.mark.parametrize(
    "options", [{"lr": -1.0}, {"lr": float("nan")}, {"lr": 1.0, "momentum": 1.0}, {"lr": 1.0, "weight_decay": -0.1}]
)
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match="not"):
        SGD([leaf([1.0])], **options)


def test_a_gradient_of_another_shape_is_refused():
    p = Tensor(np.ones((3, 2)), requires_grad=True)
    with pytest.raises(ValueError, match=r"the shape of the Tensor: \(3, 2\), not \(2,\)"):
        p.grad = np.ones(2)  # would broadcast


# ---------------------------------------------------------------------- saved state


def trained(parameters, **options):
    optimizer = SGD(parameters, lr=0.1, momentum=0.9, **options)
    for i, (_, p) in enumerate(optimizer.named_parameters()):
        p.grad = np.full(p.shape, i + 1.0)
    optimizer.step()
    return optimizer


def test_pitfall_23_state_follows_names_and_not_order():
    first = trained(Net(query=leaf([0.0]), key=leaf([0.0])))
    second = SGD(Net(key=leaf([0.0]), query=leaf([0.0])), lr=0.1, momentum=0.9)
    second.load_state_dict(first.state_dict())
    assert second.state["query"]["b"] == [1.0]
    assert second.state["key"]["b"] == [2.0]


def test_a_saved_state_is_a_copy_both_ways():
    optimizer = trained([leaf([0.0])])
    saved = optimizer.state_dict()
    optimizer.step()
    np.testing.assert_array_equal(saved["state"]["0"]["b"], [1.0])
    optimizer.load_state_dict(saved)
    optimizer.step()
    np.testing.assert_array_equal(saved["state"]["0"]["b"], [1.0])


def test_pitfall_23_what_does_not_fit_is_refused_and_nothing_changes():
    good = trained(Net(a=leaf([0.0]), b=leaf([0.0])))
    saved = good.state_dict()

    def refuses(optimizer, error, words, state=saved):
        before = str(optimizer.state_dict())
        with pytest.raises(error, match=words):
            optimizer.load_state_dict(state)
        assert str(optimizer.state_dict()) == before

    refuses(trained(Net(a=leaf([0.0]), b=leaf([0.0]), c=leaf([0.0]))), KeyError, "nothing of c")
    refuses(trained(Net(a=leaf([0.0]))), KeyError, "has b")
    refuses(trained(Net(a=leaf([0.0]), b=leaf([0.0, 0.0]))), ValueError, r"b of b.*\(2,\).*\(1,\)")
    refuses(trained(Net(a=leaf([0.0]), b=leaf([0.0], np.float32))), ValueError, "float32.*float64")
    refuses(trained([{"params": Net(a=leaf([0.0]))}, {"params": Net(b=leaf([0.0]))}]), ValueError, "other groups")
    refuses(AdamW(Net(a=leaf([0.0]), b=leaf([0.0])), lr=1), ValueError, "SGD.*AdamW")
    refuses(good, KeyError, "nesterov", {**saved, "groups": [{**saved["groups"][0], "nesterov": True}]})
    refuses(good, ValueError, "lr is finite", {**saved, "groups": [{**saved["groups"][0], "lr": -1.0}]})
