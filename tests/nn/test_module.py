"""Module: what it finds, what it saves, how it prints."""
import copy
import gc
import pickle
from collections import deque

import numpy as np
import pytest

from minitx import nn
from minitx.tensor import Tensor


class Block(nn.Module):
    def __init__(self, rng):
        self.first = nn.Linear(2, 3, rng=rng)
        self.items = [nn.Linear(3, 3, rng=rng), {"inner": nn.Linear(3, 5, bias=False, rng=rng)}]
        self.table = {"gain": nn.Parameter(np.ones(3), decay=False)}
        self.constant = Tensor(np.ones(3))
        self.count = 7


@pytest.fixture
def block():
    return Block(np.random.default_rng(0))


def test_parameters_are_found_in_attributes_lists_and_dicts(block):
    assert [name for name, _ in block.named_parameters()] == [
        "table.gain", "first.weight", "first.bias", "items.0.weight", "items.0.bias", "items.1.inner.weight",
    ]  # fmt: skip
    assert block.num_parameters() == 3 + 6 + 3 + 9 + 3 + 15


def test_a_misspelt_attribute_raises(block):
    with pytest.raises(AttributeError, match="frist"):
        block.frist  # noqa: B018


def test_a_tied_parameter_appears_once_under_its_first_name(block):
    block.second = nn.Linear(3, 5, bias=False, rng=np.random.default_rng(1))
    block.second.weight = block.items[1]["inner"].weight
    names = [name for name, _ in block.named_parameters()]
    assert names.count("items.1.inner.weight") == 1
    assert "second.weight" not in names
    state = block.state_dict()
    state["items.1.inner.weight"] = np.full((5, 3), 2.0, np.float32)
    block.load_state_dict(state)
    assert block.second.weight is block.items[1]["inner"].weight
    assert (block.second.weight.data == 2).all()


def test_a_module_used_twice_is_walked_once(block):
    block.again = block.first
    assert len(list(block.parameters())) == 6


def test_state_dict_is_a_copy(block):
    state = block.state_dict()
    state["first.weight"][:] = 9
    assert not (block.first.weight.data == 9).any()


def test_load_checks_everything_before_it_writes(block):
    before = block.state_dict()
    state = {name: value + 1 for name, value in before.items()}
    for bad, error, words in [
        ({k: v for k, v in state.items() if k != "first.bias"}, KeyError, "first.bias"),
        (state | {"first.wieght": np.ones(1)}, KeyError, "did you mean 'first.weight'"),
        (state | {"items.0.weight": np.ones((3, 4))}, ValueError, r"\(3, 3\), the state \(3, 4\)"),
        (state | {"items.0.weight": [[1.0]]}, ValueError, r"\(3, 3\), the state \(1, 1\)"),
        (state | {"items.0.weight": np.ones((3, 3), complex)}, TypeError, "weight: .* real numbers, not complex"),
        (state | {"items.0.weight": np.ones((3, 3), bool)}, TypeError, "real numbers, not bool"),
        (state | {"items.0.weight": "x"}, TypeError, "real numbers, not <U1"),
        (state | {"items.0.weight": None}, TypeError, "real numbers, not object"),
        (state | {3: np.ones(1)}, KeyError, "the state has 3"),
        (list(state), TypeError, "a state is a dict"),
    ]:
        with pytest.raises(error, match=words):
            block.load_state_dict(bad)
        for name, value in block.state_dict().items():
            np.testing.assert_array_equal(value, before[name])


def test_train_and_eval_reach_every_module(block):
    block.eval()
    assert not any(m.training for _, m in block.modules())
    block.train()
    assert all(m.training for _, m in block.modules())


def test_astype_casts_values_and_keeps_identity_and_flags(block):
    weight, gain = block.first.weight, block.table["gain"]
    block.astype(np.float64)
    assert block.first.weight is weight
    assert weight.dtype == np.float64
    assert weight.requires_grad
    assert not gain.decay


def test_zero_grad(block):
    block.first.weight.grad = np.ones((3, 2), np.float32)
    block.zero_grad()
    assert block.first.weight.grad is None


def test_repr_shows_the_tree_with_counts(block):
    lines = repr(block).splitlines()
    assert lines[0] == "Block  [39]"
    assert "  first: Linear 2 -> 3  [9]" in lines
    assert "  items.1.inner: Linear 3 -> 5, no bias  [15]" in lines


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent_and_keep_ties(block, clone):
    block.second = nn.Linear(3, 5, bias=False, rng=np.random.default_rng(1))
    block.second.weight = block.items[1]["inner"].weight
    other = clone(block)
    assert other.second.weight is other.items[1]["inner"].weight
    assert other.second.weight is not block.second.weight
    assert not other.table["gain"].decay
    other.first.weight.data += 1
    assert not (other.first.weight.data == block.first.weight.data).any()


def test_which_parameters_decay():
    rng = np.random.default_rng(0)
    assert nn.Linear(2, 3, rng=rng).weight.decay
    assert not nn.Linear(2, 3, rng=rng).bias.decay
    assert not nn.Embedding(2, 3, rng=rng).weight.decay
    assert not nn.LayerNorm(3).weight.decay
    assert not nn.LearnedPositions(2, 3, rng=rng).weight.decay


def test_load_takes_lists_and_tensors(block):
    state = block.state_dict()
    state["table.gain"], state["first.bias"] = [1, 2, 3], Tensor([4.0, 5.0, 6.0])
    block.load_state_dict(state)
    assert block.table["gain"].numpy().tolist() == [1, 2, 3]
    assert block.first.bias.numpy().tolist() == [4, 5, 6]
    assert block.table["gain"].dtype == np.float64
    assert block.first.bias.dtype == np.float32


@pytest.mark.parametrize("dtype", [int, np.float16, complex, bool, None])
def test_astype_to_anything_but_the_two_floats_is_refused(block, dtype):
    before = block.state_dict()
    with pytest.raises(TypeError, match="parameters are float32 or float64, not"):
        block.astype(dtype)
    with pytest.raises(TypeError, match="float32 or float64"):
        block.first.weight.cast(dtype)
    for name, value in block.state_dict().items():
        np.testing.assert_array_equal(value, before[name], strict=True)


def test_astype_keeps_hooks_and_refuses_older_graphs(block):
    weight, seen = block.first.weight, []
    weight.register_hook(lambda g: seen.append(g.dtype))
    block.first.bias.requires_grad = False
    y = block.first(Tensor(np.ones((5, 2), np.float32)))
    weight.grad = np.ones((3, 2), np.float32)
    block.astype(np.float64)
    assert weight.grad is None
    assert not block.first.bias.requires_grad
    with pytest.raises((RuntimeError, TypeError)):
        y.backward(np.ones((5, 3)))
    block.first(Tensor(np.ones((5, 2)))).backward(np.ones((5, 3)))
    assert seen == [np.float64]


class Special(nn.Parameter):
    pass


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_copies_of_a_parameter_keep_its_class(clone):
    p = Special(np.ones(3), decay=False)
    p.grad = np.full(3, 2.0)
    other = clone(p)
    assert type(other) is Special
    assert not other.decay
    assert other.requires_grad
    assert (other.grad == 2).all()


# ---------------------------------------------------------------------- parameters do not vanish


@pytest.mark.parametrize("value", [np.zeros((3, 2)), Tensor(np.zeros((3, 2))), 0.0, [0.0]])
def test_a_parameter_is_not_replaced_by_something_else(block, value):
    with pytest.raises(TypeError, match=r"Linear.weight is a Parameter and would be lost: .* \.weight\.data = "):
        block.first.weight = value
    with pytest.raises(TypeError, match="would be lost"):
        block.first.weight -= 0.1
    block.first.weight.data -= 0.1
    assert len(list(block.parameters())) == 6


def test_a_parameter_may_be_replaced_or_taken_away(block):
    block.first.weight = nn.Parameter(np.ones((3, 2)))
    block.first.bias = None
    del block.items[0].bias
    assert len(list(block.parameters())) == 4


def test_a_tensor_that_would_be_trained_is_a_parameter(block):
    with pytest.raises(TypeError, match=r"Block.gate: .* nn.Parameter\(data\)"):
        block.gate = Tensor(np.ones(3), requires_grad=True)


def test_parameters_of_the_class_are_refused():
    with pytest.raises(TypeError, match=r"Wrong\.weight would be one for all objects"):

        class Wrong(nn.Module):
            weight = nn.Parameter(np.ones(3))


@pytest.mark.parametrize("kind", [set, frozenset, deque])
def test_parameters_in_a_set_are_refused(block, kind):
    block.more = {"inside": [kind([nn.Parameter(np.ones(3))])]}
    with pytest.raises(TypeError, match=f"more.inside.0: parameters in a {kind.__name__} are not found"):
        list(block.parameters())
    block.more = kind([1, 2])
    assert len(list(block.parameters())) == 6


def test_two_parameters_of_one_name_are_refused(block):
    block.table = {1: nn.Parameter(np.ones(2)), "1": nn.Parameter(np.ones(2))}
    with pytest.raises(ValueError, match=r"two parameters are called 'table\.1'"):
        block.state_dict()
    block.table["1"] = block.table[1]  # tied: one parameter
    assert "table.1" in block.state_dict()
    setattr(block, "first.weight", nn.Parameter(np.ones(2)))
    with pytest.raises(ValueError, match=r"two parameters are called 'first\.weight'"):
        block.state_dict()


def test_a_child_that_knows_its_parent(block):
    block.first.parent = block
    assert "    parent: Block (see above)" in repr(block).splitlines()
    assert len(block.state_dict()) == 6


def test_walking_leaves_no_cycle_behind(block):
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            block.state_dict()
            block.zero_grad()
            repr(block)
            list(block.modules())
        assert gc.collect() == 0
    finally:
        gc.enable()
