"""Positions: the table of the paper, odd widths, and the end of a learned table."""
import numpy as np
import pytest

from minitx import nn
from minitx.tensor import Tensor


def test_pitfall_37_odd_widths():
    np.testing.assert_allclose(
        nn.sinusoidal(1, 5), [0.841470985, 0.540302306, 0.025116223, 0.999684538, 0.000630957], atol=1e-9
    )
    np.testing.assert_allclose(nn.sinusoidal(3, 1), [0.141120008], atol=1e-9)
    np.testing.assert_array_equal(nn.sinusoidal(0, 5), [0, 1, 0, 1, 0])


def test_a_shift_turns_every_pair_by_an_angle_that_does_not_depend_on_the_position():
    table = nn.sinusoidal(np.arange(50), 8)
    pairs = table[:, 0::2] + 1j * table[:, 1::2]  # sin + i cos = i e^{-iθ}: a shift multiplies by e^{-iΔ}
    turns = pairs[7:] / pairs[:-7]
    np.testing.assert_allclose(turns, np.broadcast_to(turns[0], turns.shape), atol=1e-12)


def test_positions_are_integers():
    with pytest.raises(TypeError, match="positions are integers"):
        nn.sinusoidal(np.arange(3.0), 4)
    with pytest.raises(IndexError, match="position -1"):
        nn.SinusoidalPositions(4)(Tensor(np.zeros((1, 1, 4))), np.array([-1]))


@pytest.mark.parametrize("layer", [
    nn.SinusoidalPositions(4), nn.LearnedPositions(9, 4, rng=np.random.default_rng(0)).astype(np.float64),
    nn.NoPositions(),
], ids=lambda layer: type(layer).__name__)  # fmt: skip
def test_there_is_one_position_per_token(layer):
    x = Tensor(np.zeros((1, 3, 4)))
    for shape in [(3,), (1, 3)]:
        assert layer(x, np.zeros(shape, int)).shape == x.shape
    for shape in [(1,), (2,), (), (2, 3), (3, 1), (1, 1)]:  # some of them NumPy would broadcast
        with pytest.raises(ValueError, match="one position per token"):
            layer(x, np.zeros(shape, int))
    with pytest.raises(TypeError, match="positions are integers"):
        layer(x, np.zeros(3))


def test_the_table_grows_and_keeps_its_values():
    layer, x = nn.SinusoidalPositions(6), Tensor(np.zeros((1, 3, 6)))
    first = layer(x, np.arange(3)).numpy()
    far = layer(x, np.array([1000, 1, 2])).numpy()
    np.testing.assert_array_equal(far[0, 1:], first[0, 1:])
    np.testing.assert_array_equal(far[0, 0], nn.sinusoidal(1000, 6))


def test_a_position_far_out_needs_no_table_up_to_it():
    layer, far = nn.SinusoidalPositions(6), np.array([10**12, 3])
    y = layer(Tensor(np.zeros((1, 2, 6))), far).numpy()
    np.testing.assert_array_equal(y[0], nn.sinusoidal(far, 6))
    assert len(layer._table) == 0


def test_pitfall_07_learned_positions_past_the_table():
    layer = nn.LearnedPositions(5, 4, rng=np.random.default_rng(0))
    with pytest.raises(IndexError, match=r"learned 5 positions .*position 5 arrived"):
        layer(Tensor(np.zeros((1, 6, 4), np.float32)), np.arange(6))
    x = Tensor(np.zeros((2, 3, 4), np.float32))
    rows = layer(x, np.array([[0, 1, 2], [2, 3, 4]])).numpy()
    np.testing.assert_array_equal(rows[1, 0], layer.weight.data[2])


def test_float32_stays_float32():
    x = Tensor(np.zeros((1, 3, 4), np.float32))
    assert nn.SinusoidalPositions(4)(x, np.arange(3)).dtype == np.float32
