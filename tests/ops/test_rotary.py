"""Rotary positions: what they promise, the scalings against published values, and what is refused."""
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.ops import attention, rotary
from minitx.ops.rotary import rotary_table
from minitx.ops.rotary_scaling import PARAMETERS, llama3, rotary_frequencies, rotary_scaling

SCALINGS = [
    {"type": "linear", "factor": 4.0},
    {"type": "dynamic", "factor": 4.0, "original_length": 16},
    {"type": "yarn", "factor": 4.0, "original_length": 64},
    {"type": "llama3", "factor": 8.0, "original_length": 32},
]
scalings = pytest.mark.parametrize("scaling", SCALINGS, ids=lambda s: s["type"])


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# ---------------------------------------------------------------------- what it promises


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("scaling", [None, *SCALINGS], ids=lambda s: s["type"] if s else "none")
def test_scores_depend_on_the_distance_alone(interleaved, scaling):
    q, k = draw(1, 1, 1, 8), draw(1, 1, 1, 8, seed=1)
    scaling = {**scaling, "length": 50} if scaling and scaling["type"] == "dynamic" else scaling

    def score(p, s):
        options = {"interleaved": interleaved, "scaling": scaling}
        return (rotary(q, [p], **options).numpy() * rotary(k, [s], **options).numpy()).sum()

    for shift in (1, 10, -3, 31):
        assert score(5 + shift, 2 + shift) == pytest.approx(score(5, 2), rel=1e-12)
    assert abs(score(5, 2) - score(2, 5)) > 1e-3  # and on its sign


def test_keeps_lengths_and_leaves_position_0_alone():
    x = draw(2, 3, 5, 6)
    y = rotary(x, [0, 1, 2, 500, 10**6]).numpy()
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-12)
    np.testing.assert_array_equal(y[:, :, 0], x[:, :, 0])


def test_one_pair_by_hand():
    """Half a turn is at position π of the first pair; no integer, but position 22 = 7π + 0.0089 is near."""
    y = rotary(np.array([[[[1.0, 0.0]]]]), [22]).numpy().ravel()
    np.testing.assert_allclose(y, [math.cos(22), math.sin(22)], rtol=1e-15)
    assert y[0] < -0.99996


def test_the_two_pairings_differ_by_the_order_of_features():
    x = draw(2, 3, 5, 8)
    order = [0, 2, 4, 6, 1, 3, 5, 7]  # neighbours brought into halves
    halves = rotary(x[..., order], range(5)).numpy()
    np.testing.assert_array_equal(rotary(x, range(5), interleaved=True).numpy()[..., order], halves)
    assert np.abs(rotary(x, range(5)).numpy() - rotary(x, range(5), interleaved=True).numpy()).max() > 0.1


def test_the_rest_passes_when_part_of_a_head_turns():
    x = draw(2, 3, 5, 7)
    y = rotary(x, range(5), rotary_dim=4).numpy()
    np.testing.assert_array_equal(y[..., 4:], x[..., 4:])
    np.testing.assert_array_equal(y[..., :4], rotary(x[..., :4], range(5)).numpy())


def test_left_padding_and_chunks():
    """Positions belong to tokens, not to places in the batch, and may come in pieces."""
    x = draw(2, 3, 5, 6)
    whole = rotary(x, range(5)).numpy()
    pieces = [rotary(x[:, :, t : t + 1], [t]).numpy() for t in range(5)]
    np.testing.assert_array_equal(np.concatenate(pieces, 2), whole)
    per_row = rotary(x, [[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]).numpy()
    np.testing.assert_array_equal(per_row[0], whole[0])
    np.testing.assert_array_equal(per_row[1:, :, 2:], rotary(x[1:, :, 2:], range(3)).numpy())


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_gradients(data):
    d = data.draw(st.integers(1, 7))
    n = data.draw(st.sampled_from(range(2, d + 1, 2))) if d > 1 else None
    if n is None:
        return
    B, H, T = (data.draw(st.integers(0, 3)) for _ in range(3))
    positions = data.draw(st.sampled_from([np.arange(T), np.arange(B * T).reshape(B, T) * 7]))
    scaling = data.draw(st.sampled_from([None, *SCALINGS]))
    options = {"rotary_dim": n, "interleaved": data.draw(st.booleans()), "scaling": scaling}
    gradcheck(rotary, draw(B, H, T, d), positions, **options)


# ---------------------------------------------------------------------- precision


@pytest.mark.parametrize("top", [100_000, 1_000_000])
def test_pitfall_16_table_is_made_in_float64(top):
    p = np.arange(top - 500, top + 1)
    wide, narrow = rotary_table(p, 64), rotary_table(p, 64, dtype=np.float32)
    for a, b in zip(narrow, wide):
        assert a.dtype == np.float32
        assert np.abs(a - b).max() <= 6e-8
    in_float32 = np.cos(p.astype(np.float32)[:, None] * rotary_frequencies(64)[0].astype(np.float32))  # the fault
    assert np.abs(in_float32 - wide[0]).max() > 1e-3


def test_pitfall_16_positions_stay_integers():
    far = 2**24
    assert np.float32(far + 1) == np.float32(far)
    x = np.ones((1, 1, 2, 2), np.float32)
    y = rotary(Tensor(x), [far, far + 1]).numpy()
    assert y.dtype == np.float32
    assert np.abs(y[0, 0, 0] - y[0, 0, 1]).max() > 0.1
    with pytest.raises(TypeError, match="positions are integers, not float64"):
        rotary(x, [0.0, 1.0])


# ---------------------------------------------------------------------- scalings


@pytest.mark.parametrize(("d", "stretch", "base"), [(4, 2, 40000), (64, 4, 41829.36592890)])
def test_pitfall_26_dynamic_is_a_larger_base(d, stretch, base):
    for factor, length in ((1.0, stretch * 100), (float(stretch), 100 + (stretch - 1) * 100 // stretch)):
        scaling = {"type": "dynamic", "factor": factor, "original_length": 100}
        found, _ = rotary_frequencies(d, scaling=scaling, length=length)
        np.testing.assert_allclose(found, rotary_frequencies(d, base)[0], rtol=1e-9)


def test_pitfall_26_dynamic_remembers_nothing():
    x, scaling = draw(1, 2, 32, 8), {"type": "dynamic", "factor": 2.0, "original_length": 16}
    first = rotary(x[:, :, :4], range(4), scaling=scaling).numpy()
    long = rotary(x, range(32), scaling=scaling).numpy()
    np.testing.assert_array_equal(rotary(x[:, :, :4], range(4), scaling=scaling).numpy(), first)
    np.testing.assert_array_equal(first, rotary(x[:, :, :4], range(4)).numpy())  # up to the original length: as ever
    plain = rotary(x, range(32)).numpy()
    np.testing.assert_array_equal(rotary(x[:, :, :16], range(16), scaling=scaling).numpy(), plain[:, :, :16])
    assert np.abs(long - plain).max() > 0.1
    fixed = rotary(x[:, :, :4], range(4), scaling={**scaling, "length": 32}).numpy()
    np.testing.assert_array_equal(fixed, long[:, :, :4])  # with the final length fixed, chunks equal the whole


def test_pitfall_26_dynamic_rows_do_not_touch_each_other():
    x, scaling = draw(2, 1, 20, 8), {"type": "dynamic", "factor": 2.0, "original_length": 16}
    positions = np.array([np.arange(20), np.arange(20) % 10])
    y = rotary(x, positions, scaling=scaling).numpy()
    np.testing.assert_array_equal(y[1:], rotary(x[1:], positions[1:]).numpy())


def test_pitfall_27_llama3():
    def ratio(wavelength):
        rate = np.array([2 * math.pi / wavelength])
        return float(llama3(rate, 8.0, 8192, 1.0, 4.0)[0] / rate[0])

    assert ratio(2000) == pytest.approx(1, rel=1e-12)
    assert ratio(4096) == pytest.approx(5 / 12, rel=1e-12)
    assert ratio(8193) == pytest.approx(1 / 8, rel=1e-12)
    for border in (2048, 8192):
        assert ratio(border * (1 - 1e-9)) == pytest.approx(ratio(border * (1 + 1e-9)), rel=1e-7)


@scalings
def test_pitfall_27_every_scaling_changes_scores_past_the_limit(scaling):
    x = draw(1, 2, 40, 16)
    plain, scaled = (attention(y, y, x) for y in (rotary(x, range(40)), rotary(x, range(40), scaling=scaling)))
    assert np.abs(plain.numpy() - scaled.numpy())[:, :, 33:].max() > 1e-3


def test_linear_is_a_slower_count():
    x = draw(1, 2, 5, 6)
    slow = rotary(x, [0, 4, 8, 12, 16], scaling={"type": "linear", "factor": 4.0}).numpy()
    np.testing.assert_allclose(slow, rotary(x, [0, 1, 2, 3, 4]).numpy(), atol=1e-14)


def test_yarn():
    """The values that the published code gives for d 16, base 10000, factor 4, original length 64: by its formulas."""
    scaling = {"type": "yarn", "factor": 4.0, "original_length": 64}
    rates, m = rotary_frequencies(16, scaling=scaling)
    plain, _ = rotary_frequencies(16)
    borders = [16 * math.log(64 / (turns * 2 * math.pi)) / (2 * math.log(10000)) for turns in (32, 1)]
    low, high = max(math.floor(borders[0]), 0), min(math.ceil(borders[1]), 15)
    assert (low, high) == (0, 3)
    keep = 1 - np.clip((np.arange(8) - low) / (high - low), 0, 1)
    np.testing.assert_allclose(rates, plain / 4 * (1 - keep) + plain * keep, rtol=1e-14)
    np.testing.assert_allclose(rates / plain, [1, 0.75, 0.5, 0.25, 0.25, 0.25, 0.25, 0.25])
    assert m == 0.1 * math.log(4) + 1
    x = draw(1, 1, 3, 16)
    lengths = np.linalg.norm(rotary(x, range(3), scaling=scaling).numpy(), axis=-1) / np.linalg.norm(x, axis=-1)
    np.testing.assert_allclose(lengths, m, rtol=1e-13)  # so that scores are m² times as large
    assert rotary_frequencies(16, scaling={**scaling, "attention_factor": 1.5})[1] == 1.5
    exact, _ = rotary_frequencies(16, scaling={**scaling, "truncate": False})
    assert np.abs(exact / rates - 1).max() > 0.1


def test_a_factor_of_1_changes_nothing():
    for scaling in SCALINGS:
        rates, m = rotary_frequencies(16, scaling={**scaling, "factor": 1.0}, length=5)
        np.testing.assert_allclose(rates, rotary_frequencies(16)[0], rtol=1e-15)
        assert m == 1


@pytest.mark.parametrize(
    ("scaling", "words"),
    [
        ({"type": "llama"}, "one of linear, dynamic, yarn, llama3, not 'llama'; did you mean 'llama3'"),
        ({"factor": 2.0}, r'a dict with a "type" \(linear, dynamic, yarn, llama3\)'),
        ("linear", 'a dict with a "type"'),
        ({"type": "linear"}, "factor of linear scaling is missing"),
        ({"type": "linear", "factor": 2.0, "original_length": 5}, "no parameter 'original_length', only factor"),
        ({"type": "yarn", "factor": 2.0, "orginal_length": 5}, "did you mean 'original_length'"),
        ({"type": "linear", "factor": 0.5}, "how many times longer texts may be, at least 1, not 0.5"),
        ({"type": "dynamic", "factor": 2.0, "original_length": 5.0}, "counts positions, at least 1, not 5.0"),
        ({"type": "yarn", "factor": 2.0, "original_length": 5, "beta_fast": 1}, "beta_slow < beta_fast"),
        ({"type": "yarn", "factor": 2.0, "original_length": 5, "truncate": 1}, "True or False"),
        (
            {"type": "llama3", "factor": 2.0, "original_length": 5, "low_freq_factor": 4, "high_freq_factor": 4},
            "low_freq_factor < high_freq_factor",
        ),
        ({"type": "llama3", "factor": 2.0, "original_length": 5, "low_freq_factor": 0}, "is a positive number, not 0"),
    ],
)
def test_pitfall_27_what_a_scaling_cannot_say(scaling, words):
    with pytest.raises(ValueError, match=words):
        rotary(draw(1, 1, 2, 4), [0, 1], scaling=scaling)


def test_defaults_are_filled_in():
    assert rotary_scaling(None) is None
    for scaling in SCALINGS:
        assert set(rotary_scaling(scaling)) == {"type", *PARAMETERS[scaling["type"]]}


def test_the_length_must_be_known_for_dynamic():
    with pytest.raises(ValueError, match="dynamic scaling follows the length"):
        rotary_frequencies(4, scaling=SCALINGS[1])


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("shape", "positions", "options", "words"),
    [
        ((1, 1, 2, 5), [0, 1], {}, "features turn in pairs, so rotary_dim is even and at least 2, not 5"),
        ((1, 1, 2, 4), [0, 1], {"rotary_dim": 0}, "at least 2, not 0"),
        ((1, 1, 2, 4), [0, 1], {"rotary_dim": 6}, "rotary_dim 6 is more than the 4 features"),
        ((1, 2, 4), [0, 1], {}, r"split into heads, \(B, H, T, d\)"),
        ((3, 1, 2, 4), [0, 1, 2], {}, r"one position per token, \(2,\) or .*\(3, 2\)"),
        ((3, 1, 2, 4), [[0, 1]], {}, "one position per token"),
        ((1, 1, 2, 4), [0, 1], {"base": 1.0}, "base is above 1"),
    ],
)
def test_bad_input(shape, positions, options, words):
    with pytest.raises(ValueError, match=words):
        rotary(np.ones(shape), positions, **options)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64])
def test_positions_of_any_integer_type(dtype):
    last = min(np.iinfo(dtype).max, 1000)
    scaling = {"type": "dynamic", "factor": 2.0, "original_length": 8}
    x = np.random.default_rng(0).standard_normal((1, 1, 2, 4))
    narrow = rotary(x, np.array([3, last], dtype), scaling=scaling).data
    np.testing.assert_array_equal(narrow, rotary(x, np.array([3, last]), scaling=scaling).data)
