"""Keys and values in eight bits: how far off they are, alone and together with everything that keys go through."""
import numpy as np
import pytest
from cache_drawn import V, batches, cuts, fields, model, poison
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from minitx.generation.cache_slots import Int8Slots
from minitx.generation.session import Session, incremental
from minitx.models.cost import Cost


@given(arrays(np.float32, (2, 3, 4, 5), elements=st.floats(-2, 2, width=32)), st.sampled_from([1, 1e-30, 1e38]))
@settings(deadline=None)
def test_each_number_is_off_by_at_most_half_a_step(x, size):
    """A step is 1/127 of the largest number of the same head and token, whatever other tokens hold."""
    x = x * np.float32(size)
    slots = Int8Slots(2, 3, 5, np.float32)
    slots.room(4)
    slots.write(x, np.zeros(2, np.int64), None)
    read = slots.read(4)
    assert read.dtype == np.float32
    largest = np.abs(x).max(-1, keepdims=True)
    assert (np.abs(read - x) <= largest / 254 * (1 + 1e-5) + 1e-37).all()  # (below, floats have steps of their own)
    one = Int8Slots(2, 3, 5, np.float32)
    one.room(1)
    one.write(x[:, :, 2:3], np.zeros(2, np.int64), None)
    np.testing.assert_array_equal(one.read(1), read[:, :, 2:3])


@given(st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_with_groups_windows_and_scalings_together(data):
    """All logits together move by less than 10 % of their size (usually 0.4 %), and do not depend on the pieces.

    Keys are stored after they have turned and been scaled; a window forgets numbers and scales together.
    """
    m = model(head_dim=8, **data.draw(fields(architectures=("decoder",))) | {"experts": 0})  # (a choice can flip)
    x, lengths, side = data.draw(batches())
    options = {"lengths": lengths, "side": side, "block": data.draw(st.sampled_from([1, 2, 64]))}
    exact = incremental(m, x, [x.shape[1]], **options)
    whole = incremental(m, x, [x.shape[1]], cache_dtype="int8", **options)
    with poison():
        pieces = incremental(m, x, data.draw(cuts(x.shape[1])), cache_dtype="int8", **options)
    np.testing.assert_allclose(pieces, whole, rtol=1e-10, atol=1e-10)
    assert np.linalg.norm(whole - exact) < 0.1 * np.linalg.norm(exact)


def test_the_source_too():
    m = model(architecture="encoder-decoder", position="sinusoidal")
    source, x = np.random.default_rng(0).integers(0, V, (2, 3, 5))
    exact, stored = (incremental(m, x, source=source, cache_dtype=kind) for kind in (None, "int8"))
    difference = np.abs(stored - exact).max() / np.abs(exact).max()
    assert 0 < difference < 0.05


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bytes(dtype):
    """A byte a number, as the cost table says; the scales are apart, 4 bytes a head and token of keys and of values."""
    m = model(dtype, head_dim=16, kv_heads=2)
    session = Session(m, cache_dtype="int8", block=10)
    session.prefill(np.zeros((1, 10), np.int64))
    assert session.nbytes == Cost(m.config, 1, 10, "int8").memory["KV cache"] == 2 * 2 * 2 * 16 * 10
    assert session.allocated == session.nbytes + 2 * 2 * 2 * 10 * 4


def test_nan_and_infinity_are_seen_in_their_own_token_alone():
    x = np.ones((1, 1, 3, 4), np.float32)
    x[0, 0, 0, 1], x[0, 0, 1, 2] = np.nan, np.inf
    slots = Int8Slots(1, 1, 4, np.float32)
    slots.room(3)
    slots.write(x, np.zeros(1, np.int64), None)  # without a warning
    read = slots.read(3)[0, 0]
    assert np.isnan(read[:2]).all()
    np.testing.assert_allclose(read[2], 1)
