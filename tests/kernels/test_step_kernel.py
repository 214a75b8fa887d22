"""The instructions of a decode step: the bits of the kernels that they stand in for, whatever the sizes and threads."""
import numpy as np
import pytest
from equal import close, on_threads, tolerance
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import masks
from minitx.generation.program_weights import address, bits
from minitx.kernels import slopes, step
from minitx.kernels.attention import attention
from minitx.kernels.matmul import product
from minitx.kernels.memory import memory_for
from minitx.kernels.parallel import get_threads
from minitx.ops import gelu, silu

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def run(dtype, worker, tasks, arguments, need=1 << 16):
    threads, dtype = get_threads(), np.dtype(dtype)
    code, arguments = np.array([[worker[dtype], tasks]], np.int64), np.array([arguments], np.int64)
    step.run[dtype](step.go_through[dtype], memory_for(dtype, threads, need), code, arguments, threads)


def linear(x, weight, bias=None, phi=step.NOTHING, how=step.ALONE, other=None):
    (m, k), n = x.shape, len(weight)
    y, laid = np.full((m, n), np.nan, x.dtype), np.empty(step.strips(n, k), x.dtype)
    step.lay_out(weight, laid)
    at = [address(a) if a is not None else 0 for a in (x, laid, bias, y, y if other is None else other)]
    run(x.dtype, step.linear, len(laid), [*at, m, n, k, phi, how])
    return y


@given(m=st.integers(1, 13), k=st.integers(1, 600), n=st.integers(1, 150), seed=st.integers(0, 9), single=st.booleans())
@settings(deadline=None, max_examples=40)
def test_linear_has_the_bits_of_the_product(m, k, n, seed, single):
    rng, dtype = np.random.default_rng(seed), np.float32 if single else np.float64
    x, weight = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(dtype)
    bias = rng.standard_normal(n).astype(dtype) if seed % 2 else None
    (y,) = on_threads(lambda: [linear(x, weight, bias)])
    np.testing.assert_array_equal(y, product(x, weight.T, bias))


@DTYPES
def test_what_happens_to_y(dtype):
    rng = np.random.default_rng(0)
    x, weight, other = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 37), (70, 37), (5, 70)))
    z = linear(x, weight)
    np.testing.assert_array_equal(linear(x, weight, how=step.PLUS, other=other), z + other)
    np.testing.assert_array_equal(linear(x, weight, how=step.TIMES, other=other), z * other)
    np.testing.assert_array_equal(linear(x, weight, phi=step.RELU), np.maximum(z, 0))
    for phi, expected in (
        (step.GELU, gelu(z).numpy()), (step.GELU_TANH, gelu(z, approximate="tanh").numpy()),
        (step.SILU, silu(z).numpy()), (step.SIGMOID, 1 / (1 + np.exp(-z.astype(np.float64)))),
    ):  # fmt: skip
        close(linear(x, weight, phi=phi), expected, tolerance(dtype, 1))
    assert slopes.gelu is step.gelu


def attend(q, k, v, keys, values, slot, lo, hi, scale, cap=0.0, bias=None):
    (B, H, _, d), H_kv, d_v = q.shape, keys.shape[1], values.shape[3]
    o = np.full((B, H, 1, d_v), np.nan, q.dtype)
    steps = [s // a.itemsize for a in (keys, values) for s in a.strides[:2]]
    arguments = [address(a) if a is not None else 0 for a in (q, k, v)] + [address(o), address(keys), address(values)]
    arguments += [*steps, address(slot), address(lo), address(hi), H, H_kv, d, d_v, bits(scale), bits(cap), 0, 0, 0, 0]
    arguments += [0, 0, 0] if bias is None else [address(bias), bias.strides[0] // bias.itemsize, bias.shape[3]]
    run(q.dtype, step.attend, B * H_kv, arguments)
    return o


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_attend_has_the_bits_of_attention(data):
    """Slots outside of what a sequence sees hold NaN. The new key and value are put into their slot."""
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    B, H_kv, group, S = 2, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6)), data.draw(st.integers(1, 200))
    d, d_v = data.draw(st.sampled_from([(16, 16), (7, 5), (32, 64), (24, 3), (64, 40)]))
    q, k, v, keys, values = (
        rng.standard_normal(shape).astype(dtype)
        for shape in ((B, H_kv * group, 1, d), (B, H_kv, 1, d), (B, H_kv, 1, d_v), (B, H_kv, S, d), (B, H_kv, S, d_v))
    )
    hi = np.array([data.draw(st.integers(1, S)) for _ in range(B)])
    lo = np.array([data.draw(st.integers(0, n - 1)) for n in hi])
    cap = data.draw(st.sampled_from([None, 2.0]))
    bias = rng.standard_normal((B, H_kv * group, 1, S)).astype(dtype) if data.draw(st.booleans()) else None
    for b in range(B):
        keys[b, :, : lo[b]] = values[b, :, hi[b] :] = keys[b, :, hi[b] - 1 :] = np.nan
    slot = hi - 1
    got = attend(q, k, v, keys, values, slot, lo, hi, d**-0.5, cap or 0.0, bias)
    np.testing.assert_array_equal(keys[range(B), :, slot], k[:, :, 0])
    np.testing.assert_array_equal(values[range(B), :, slot], v[:, :, 0])
    seen = masks.spans(lo[:, None], hi[:, None])
    expected = attention(q, keys, values, mask=seen, bias=bias, softcap=cap, scale=d**-0.5)[0]
    np.testing.assert_array_equal(got, expected)
    again = on_threads(lambda: [attend(q, None, None, keys, values, slot, lo, hi, d**-0.5, cap or 0.0, bias)])
    np.testing.assert_array_equal(again[0], expected)


def test_a_sequence_that_sees_nothing_gets_zeros():
    x = np.ones((1, 1, 1, 4))
    nothing = np.zeros(1, np.int64)
    np.testing.assert_array_equal(attend(x, None, None, x * np.nan, x * np.nan, nothing, nothing, nothing, 1.0), 0 * x)
