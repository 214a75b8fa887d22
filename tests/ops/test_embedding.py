import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minitx
from minitx import Tensor
from minitx.ops import embedding


def gradient(ids, weight, dy, **options):
    weight = Tensor(weight, requires_grad=True)
    embedding(ids, weight, **options).backward(dy)
    return weight.grad


@pytest.fixture(params=["definition", "kernel"], autouse=True)
def implementation(request):
    """Everything here holds for both."""
    if request.param == "kernel":
        pytest.importorskip("numba", reason="numba is not installed")
        yield
    else:
        with minitx.reference():
            yield


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 3), max_size=3), st.integers(1, 5), st.integers(0, 7), st.booleans(), st.integers(0, 99))
def test_rows_and_sums_of_rows(shape, V, d, pad, seed):
    rng = np.random.default_rng(seed)
    ids, weight = rng.integers(0, V, shape), rng.standard_normal((V, d))
    dy = rng.standard_normal((*shape, d))
    options = {"padding_idx": V - 1} if pad else {}
    np.testing.assert_array_equal(embedding(ids, weight, **options).numpy(), weight[ids])
    expected = np.zeros((V, d))
    for place in np.ndindex(*shape):
        if not (pad and ids[place] == V - 1):
            expected[ids[place]] += dy[place]
    np.testing.assert_allclose(gradient(ids, weight, dy, **options), expected, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64, np.int64])
def test_any_integer_dtype(dtype):
    weight = np.arange(10.0).reshape(5, 2)
    ids = np.array([4, 0, 4], dtype)
    np.testing.assert_array_equal(embedding(ids, weight).numpy(), weight[[4, 0, 4]])
    np.testing.assert_array_equal(gradient(ids, weight, np.ones((3, 2)))[:, 0], [1, 0, 0, 0, 2])


def test_lists_scalars_and_integer_tensors():
    weight = np.arange(10.0).reshape(5, 2)
    np.testing.assert_array_equal(embedding([[1, 2]], weight).numpy(), weight[[[1, 2]]])
    np.testing.assert_array_equal(embedding(3, weight).numpy(), weight[3])
    np.testing.assert_array_equal(gradient(3, weight, np.ones(2)), np.eye(5)[:, 3:4] * np.ones(2))
    np.testing.assert_array_equal(embedding(Tensor(np.array([1, 2])), weight).numpy(), weight[[1, 2]])
    dweight = gradient([1, 2], weight, np.ones((2, 2)), padding_idx=np.int64(1))
    np.testing.assert_array_equal(dweight[:, 0], [0, 0, 1, 0, 0])


def test_ids_are_copied():
    ids, weight = np.array([0, 1]), Tensor(np.zeros((3, 2)), requires_grad=True)
    y = embedding(ids, weight)
    ids[:] = 2
    y.backward(np.ones((2, 2)))
    np.testing.assert_array_equal(weight.grad[:, 0], [1, 1, 0])


def test_pitfall_06_one_row_ten_thousand_times():
    ids, dy = np.zeros(10_000, int), np.ones((10_000, 3), np.float32)
    for _ in range(3):
        dweight = gradient(ids, np.zeros((2, 3), np.float32), dy)
        assert dweight.dtype == np.float32
        np.testing.assert_array_equal(dweight, [[10_000] * 3, [0] * 3])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([5], r"ids\[0\] is 5, but there are 5 rows, 0 to 4"),
        ([-1], r"ids\[0\] is -1, but there are 5 rows"),
        ([[0, 1], [7, 9]], r"ids\[1, 0\] is 7"),
        (np.array(5), r"embedding: ids is 5"),
        (np.array([2**63], np.uint64), r"ids\[0\] is 9223372036854775808"),
    ],
)
def test_pitfall_07_ids_out_of_range(ids, message):
    with pytest.raises(IndexError, match=message):
        embedding(ids, np.zeros((5, 2)))


def test_pitfall_24_padding_row():
    weight = np.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(embedding([0, 0, 2], weight, 0).numpy(), weight[[0, 0, 2]])
    dweight = gradient([0, 0, 2], weight, np.ones((3, 2)), padding_idx=0)
    np.testing.assert_array_equal(dweight, [[0, 0], [0, 0], [1, 1]])
    dy = np.array([[np.nan, np.inf], [1, 1], [2, 2]])
    np.testing.assert_array_equal(gradient([0, 1, 2], weight, dy, padding_idx=0), [[0, 0], [1, 1], [2, 2]])


@pytest.mark.parametrize("padding_idx", [-1, 3, 1.5, 1.0, True, "1"])
def test_pitfall_24_padding_idx_is_an_id(padding_idx):
    with pytest.raises(ValueError, match=f"padding_idx is an id from 0 to 2, not {padding_idx!r}"):
        embedding([0], np.zeros((3, 2)), padding_idx)


def test_pitfall_35_no_ids():
    assert embedding([], np.zeros((5, 2))).shape == (0, 2)
    assert embedding([[], []], np.zeros((5, 2))).shape == (2, 0, 2)
    ids = np.zeros((0, 3), int)
    assert embedding(ids, np.zeros((5, 2))).shape == (0, 3, 2)
    np.testing.assert_array_equal(gradient(ids, np.ones((5, 2)), np.zeros((0, 3, 2))), np.zeros((5, 2)))


def test_types_and_shapes():
    for ids in ([1.0], [True], np.zeros(0)):
        with pytest.raises(TypeError, match="embedding: ids are integers"):
            embedding(ids, np.zeros((5, 2)))
    with pytest.raises(ValueError, match=r"two axes, \(V, d\), not the shape \(5,\)"):
        embedding([1], np.zeros(5))


def test_agrees_with_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(0)
    ids, weight, dy = rng.integers(0, 5, (2, 13)), rng.standard_normal((5, 3)), rng.standard_normal((2, 13, 3))
    theirs = torch.tensor(weight, requires_grad=True)
    torch.nn.functional.embedding(torch.tensor(ids), theirs, 2).backward(torch.tensor(dy))
    np.testing.assert_allclose(gradient(ids, weight, dy, padding_idx=2), theirs.grad.numpy(), atol=1e-14)
