"""Module: what it finds, what it saves, how it prints."""
import copy
import pickle

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
