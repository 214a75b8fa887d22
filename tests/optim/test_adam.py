"""Adam and AdamW: values by hand, what is decayed and what is skipped, bit-equal resuming."""

import json

import numpy as np
import pytest

from minitx import Tensor, nn
from minitx.models.config import TransformerConfig
from minitx.models.transformer import Transformer
from minitx.ops import embedding
from minitx.optim import Adam, AdamW


def leaf(value, dtype=np.float64):
    return Tensor(np.array(value, dtype), requires_grad=True)


def run(optimizer, p, gradients):
    for g in gradients:
        p.grad = g
        optimizer.step()


def test_the_first_step_is_lr_in_size_whatever_the_scale():
    p = leaf([0.0, 0.0, 0.0])
    run(Adam([p], lr=0.01), p, [np.array([1e-3, -1.0, 1e6])])
    np.testing.assert_allclose(p.numpy(), [-0.01, 0.01, -0.01], rtol=2e-5)


def test_against_the_published_algorithm_written_out():
    rng = np.random.default_rng(1)
    gradients = rng.normal(size=(7, 5))
    value, m, v = rng.normal(size=5), np.zeros(5), np.zeros(5)
    p = leaf(value)
    run(Adam([p], lr=0.1, betas=(0.7, 0.8), eps=1e-3), p, gradients)
    for t, g in enumerate(gradients, 1):
        m = 0.7 * m + 0.3 * g
        v = 0.8 * v + 0.2 * g**2
        value = value - 0.1 * (m / (1 - 0.7**t)) / (np.sqrt(v / (1 - 0.8**t)) + 1e-3)
    np.testing.assert_allclose(p.numpy(), value, rtol=1e-13)


def test_pitfall_18_decoupled_decay_is_not_an_l2_penalty():
    for kind, value in [(AdamW, 0.890000002), (Adam, 0.9000000016667)]:
        p = leaf([1.0])
        run(kind([p], lr=0.1, weight_decay=0.1), p, [np.array([0.5])])
        np.testing.assert_allclose(p.numpy(), [value], rtol=1e-11)


def test_pitfall_18_moments_contain_no_decay():
    p = leaf([1.0])
    optimizer = AdamW([p], lr=0.1, weight_decay=0.1)
    run(optimizer, p, [np.zeros(1)])
    np.testing.assert_array_equal([optimizer.state["0"]["m"], optimizer.state["0"]["v"]], np.zeros((2, 1)))


def test_pitfall_18_decay_is_of_the_value_before_the_step():
    p = leaf([1.0])
    run(AdamW([p], lr=0.5, weight_decay=0.5, eps=1e-300), p, [np.array([1.0])])
    np.testing.assert_allclose(p.numpy(), [1 - 0.25 - 0.5], rtol=1e-14)  # after the step: (1 - 0.5) (1 - 0.25)


def test_pitfall_11_none_is_skipped_and_zero_is_decayed():
    p = leaf([1.0])
    optimizer = AdamW([p], lr=0.1, weight_decay=0.1)
    run(optimizer, p, [None])
    assert p.item() == 1.0
    assert optimizer.state == {}
    run(optimizer, p, [np.zeros(1)])
    assert p.item() == 0.99
    assert optimizer.state["0"]["step"] == 1


def test_a_skipped_parameter_does_not_age():
    """t of the bias correction counts the steps of this very parameter."""
    p = leaf([0.0])
    optimizer = Adam([p], lr=0.01)
    run(optimizer, p, [None, None, np.array([5.0])])
    np.testing.assert_allclose(p.numpy(), [-0.01], rtol=1e-6)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_and_shape_are_kept(dtype, shape):
    rng = np.random.default_rng(0)
    p = leaf(rng.normal(size=shape), dtype)
    optimizer = AdamW([p], lr=0.1, weight_decay=0.1)
    run(optimizer, p, [np.asarray(rng.normal(size=shape)).astype(dtype) for _ in range(3)])
    for array in (p, optimizer.state["0"]["m"], optimizer.state["0"]["v"]):
        assert (array.dtype, array.shape) == (dtype, shape)


def test_float32_is_close_to_float64():
    rng = np.random.default_rng(2)
    value, gradients = rng.normal(size=(5, 7)), rng.normal(size=(10, 5, 7))
    p64, p32 = leaf(value), leaf(value, np.float32)
    run(AdamW([p64], lr=0.01), p64, gradients)
    run(AdamW([p32], lr=0.01), p32, gradients.astype(np.float32))
    np.testing.assert_allclose(p32.numpy(), p64.numpy(), rtol=0, atol=2e-6)


def test_pitfall_23_resuming_is_bit_equal():
    """Three steps, save (through JSON, but for the arrays), two more; and the same two from what was saved."""
    rng = np.random.default_rng(3)
    value, gradients = rng.normal(size=(2, 3)), rng.normal(size=(5, 2, 3))
    a = leaf(value, np.float32)
    first = AdamW([("w", a)], lr=0.1, betas=(0.9, 0.98))
    run(first, a, gradients[:3].astype(np.float32))
    saved = first.state_dict()
    b = Tensor(a.numpy(), requires_grad=True)
    run(first, a, gradients[3:].astype(np.float32))

    second = AdamW([("w", b)], lr=5.0)
    second.load_state_dict({**saved, "groups": json.loads(json.dumps(saved["groups"]))})
    assert second.groups[0]["betas"] == (0.9, 0.98)
    run(second, b, gradients[3:].astype(np.float32))
    np.testing.assert_array_equal(b.numpy(), a.numpy())
    assert str(second.state_dict()) == str(first.state_dict())


def test_a_module_says_what_is_decayed():
    """Zero gradients: then only decay moves, and only the matrices of linear layers."""
    config = TransformerConfig(architecture="decoder", layers=1, d_model=4, heads=2, vocab_size=5, position="learned")
    model = Transformer(config, rng=np.random.default_rng(0))
    before = model.state_dict()
    for p in model.parameters():
        p.grad = np.zeros(p.shape, np.float32)
    AdamW(model, lr=0.1, weight_decay=0.5).step()
    for name, p in model.named_parameters():
        matrix = name.endswith("weight") and name.split(".")[-2] in ("query", "key", "value", "out", "up", "down")
        np.testing.assert_allclose(p.numpy(), before[name] * (0.95 if matrix else 1.0), rtol=1e-6, err_msg=name)


def test_pitfall_24_decay_of_a_padding_row():
    """Its gradient is 0, and it stays as it is: tables are not decayed. A bare Tensor is, the padding row with it."""
    layer = nn.Embedding(3, 2, padding_idx=0, rng=np.random.default_rng(0))
    layer.weight.data = np.ones((3, 2), np.float32)
    bare = leaf(np.ones((3, 2)))
    for table, kept in ((layer.weight, 1.0), (bare, 0.99)):
        embedding([0, 0, 2], table, padding_idx=0).sum().backward()
        AdamW(layer if table is layer.weight else [bare], lr=0.1, weight_decay=0.1).step()
        np.testing.assert_allclose(table.numpy()[:2], kept, rtol=1e-6)  # row 1 was not read either
        assert (table.numpy()[2] < 0.95).all()


@pytest.mark.parametrize("options", [{"betas": (0.9, 1.0)}, {"betas": (0.9,)}, {"betas": (-0.1, 0.9)}, {"eps": 0.0}])
def test_bad_options_are_refused(options):
    with pytest.raises(ValueError, match="not"):
        Adam([leaf([1.0])], lr=0.1, **options)


def test_an_eps_that_is_0_in_the_dtype_is_refused():
    """(A gradient of 0 would make NaN of the parameter.)"""
    with pytest.raises(ValueError, match=r"dtype.*not 1e-46"):
        Adam([Tensor([1.0], requires_grad=True)], lr=0.1, eps=1e-46)
    Adam([leaf([1.0])], lr=0.1, eps=1e-46)  # float64


def test_options_that_are_loaded_become_plain_numbers():
    optimizer = Adam([leaf([1.0])], lr=0.1)
    state = optimizer.state_dict()
    state["groups"][0] |= {"lr": np.float32(0.5), "betas": [np.float64(0.5), np.float32(0.25)]}
    optimizer.load_state_dict(state)
    group = optimizer.groups[0]
    assert [type(x) for x in (optimizer.lr, *group["betas"])] == [float] * 3
    assert len(group["params"]) == 1
