"""Whole training steps, of the models that the benchmark times: the same bits on every number of threads, one pool."""
import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from equal import on_threads

from minitx import ops
from minitx.bench.models import Size, batch
from minitx.kernels.tile import BITS
from minitx.models import Transformer
from minitx.ops import cross_entropy
from minitx.optim import AdamW, clip_grad_norm

KINDS = [
    Size(3, 7, 10, 2, 2, V=11), Size(5, 13, 22, 2, 2, V=13, kind="reverse"), Size(3, 7, 20, 5, 2, V=11, kind="llama"),
]  # fmt: skip
BLAS = ops.linear, ops.matmul, ops.attention, ops.attention_weights  # whose definitions NumPy gives to its BLAS


def steps(size, dtype=np.float32):
    """Loss, gradients and parameters after two steps."""
    model = Transformer(size.config(), rng=np.random.default_rng(0)).astype(dtype)
    optimizer, data, losses = AdamW(model, lr=1e-2), batch(size), []
    for _ in range(2):
        logits = model(data.ids, data.target_ids, mask=data.mask, target_mask=data.target_mask).logits
        losses.append(cross_entropy(logits, data.targets))
        optimizer.zero_grad()
        losses[-1].backward()
        clip_grad_norm(optimizer, 1.0)
        optimizer.step()
    parameters = list(model.parameters())
    return [*(x.numpy() for x in losses), *(p.grad for p in parameters), *(p.numpy() for p in parameters)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", KINDS, ids=str)
def test_the_bits_do_not_depend_on_threads(size, dtype):
    first = on_threads(lambda: steps(size, dtype))
    for a, b in zip(first, on_threads(lambda: steps(size, dtype))):  # nor on when it is done
        np.testing.assert_array_equal(a, b)


@pytest.mark.skipif(not BITS, reason="no vectors: NumPy does the products")
@pytest.mark.parametrize("size", KINDS, ids=str)
def test_no_product_is_left_to_another_pool_of_threads(size, monkeypatch):
    expected = steps(size)

    def refuse(*args, **options):
        raise AssertionError("the definition ran")

    for op in BLAS:
        monkeypatch.setattr(op, "definition", refuse)
    for a, b in zip(expected, steps(size)):
        np.testing.assert_array_equal(a, b)
