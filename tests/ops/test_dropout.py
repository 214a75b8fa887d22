import numpy as np
import pytest

from minitx import Tensor
from minitx.kernels.hash import draw_key, hashed, keep
from minitx.ops import attention, dropout


def run(x, dy, *args, **options):
    x = Tensor(x, requires_grad=True)
    y = dropout(x, *args, **options)
    y.backward(dy)
    return y.numpy(), x.grad


def generator(seed=0):
    return np.random.default_rng(seed)


def test_pitfall_33_mode_and_scale():
    x = np.random.default_rng(1).standard_normal((5, 7))
    np.testing.assert_array_equal(dropout(x, 0.5, generator(), training=False).numpy(), x)  # bit for bit
    np.testing.assert_array_equal(dropout(x, 0.0, generator()).numpy(), x)
    ones = np.ones((50, 70))
    y, dx = run(ones, ones, 0.5, generator())
    assert set(np.unique(y)) == {0.0, 2.0}
    np.testing.assert_array_equal(dx, y)
    with np.errstate(all="raise"):
        y, dx = run(ones, ones, 1.0, generator())
    np.testing.assert_array_equal(y, 0)
    np.testing.assert_array_equal(dx, 0)


def test_pitfall_33_attention_without_dropout_is_attention_in_evaluation():
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 3, 5, 7))
    np.testing.assert_array_equal(attention(q, k, v, dropout=0.0).numpy(), attention(q, k, v).numpy())


def test_backward_uses_the_mask_of_forward():
    rng = np.random.default_rng(2)
    x, dy = rng.standard_normal((2, 31, 17))
    y, dx = run(x, dy, 0.3, generator())
    m = keep(draw_key(generator()), x.shape, 0.3) / 0.7
    np.testing.assert_allclose(y, m * x)
    np.testing.assert_allclose(dx, m * dy)


@pytest.mark.parametrize(("p", "training"), [(0.0, True), (1.0, True), (0.5, False)])
def test_nothing_is_drawn_where_chance_has_no_say(p, training):
    rng = generator()
    before = rng.bit_generator.state
    dropout(np.ones(3), p, rng, training=training)
    assert rng.bit_generator.state == before
    dropout(np.ones(3), p, None, training=training)


def test_one_key_whatever_the_size():
    rngs = generator(), generator()
    dropout(np.ones(3), 0.5, rngs[0])
    dropout(np.ones((30, 30)), 0.5, rngs[1])
    assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


def test_float32_stays():
    y, dx = run(np.ones((3, 5), np.float32), np.ones((3, 5), np.float32), 0.3, generator())
    assert y.dtype == dx.dtype == np.float32


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan"), 50])
def test_p_is_a_probability(p):
    for training in (True, False):
        with pytest.raises(ValueError, match="dropout: p is between 0 and 1"):
            dropout(np.ones(3), p, generator(), training=training)


@pytest.mark.parametrize("rng", [None, 0, np.random])
def test_rng_is_a_generator(rng):
    with pytest.raises(TypeError, match=r"default_rng\(0\)"):
        dropout(np.ones(3), 0.5, rng)


def test_pitfall_35_empty():
    y, dx = run(np.zeros((0, 3)), np.zeros((0, 3)), 0.5, generator())
    assert y.shape == dx.shape == (0, 3)


# ---------------------------------------------------------------------- the hash


def test_hash_is_splitmix64():
    """The first numbers of splitmix64 from the seeds 0 and 1234567, as published with the algorithm."""
    assert hashed(0, 0, 3).tolist() == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert hashed(1234567, 0, 2).tolist() == [6457827717110365317, 3203168211198807973]


def test_hash_of_a_part_is_the_part_of_the_hash():
    key = 2**64 - 5  # the counter wraps
    whole = hashed(key, 0, 100_000)
    for start, stop in ((0, 7), (7, 20_000), (99_999, 100_000), (5, 5)):
        np.testing.assert_array_equal(hashed(key, start, stop), whole[start:stop])
    kept = keep(key, (250, 400), 0.25)
    np.testing.assert_array_equal(kept.ravel(), whole >= np.uint64(2**62))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropped_share_and_independence(p):
    """Shares, and correlations between neighbours, rows and keys: within four standard deviations of chance."""
    n = 1 << 18
    deviation = 4 / np.sqrt(n)
    a, b = (keep(draw_key(generator(seed)), (512, 512), p).astype(float) for seed in (0, 1))
    assert abs(a.mean() - (1 - p)) < deviation * np.sqrt(p * (1 - p))
    a, b = ((m - (1 - p)) / np.sqrt(p * (1 - p)) for m in (a, b))
    for first, second in ((a, b), (a[:, 1:], a[:, :-1]), (a[1:], a[:-1]), (a[2:], a[:-2])):
        assert abs((first * second).mean()) < deviation


def test_keys_differ():
    rng = generator()
    keys = [draw_key(rng) for _ in range(100)]
    assert len(set(keys)) == 100
    assert all(0 <= key < 2**64 for key in keys)
    assert max(keys) > 2**63
