from __future__ import annotations

import numpy as np
import pytest
from drawn import generators, quick, shapes
from hypothesis import given

from minitx import Tensor, ops
from minitx.gradcheck import gradcheck

NUMPY = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: x**-0.5}


@pytest.mark.parametrize("name", NUMPY)
@given(shapes, generators)
@quick
def test_value_and_gradient(name, shape, rng):
    x = np.asarray(rng.uniform(0.3, 3.0, shape))
    op = getattr(ops, name)
    np.testing.assert_allclose(op(x).numpy(), NUMPY[name](x), rtol=1e-15)
    gradcheck(op, x)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extremes(dtype):
    def slope(op, x):
        t = Tensor(np.array(x, dtype), requires_grad=True)
        op(t).backward(np.ones(t.shape, dtype))
        assert t.grad.dtype == dtype
        return t.grad

    with np.errstate(all="ignore"):
        assert ops.log(Tensor(dtype(0))).item() == -np.inf
        assert np.isnan(ops.log(Tensor(dtype(-1))).item())
        assert slope(ops.sqrt, 0.0) == np.inf
        assert slope(ops.exp, -np.inf) == 0
        assert ops.rsqrt(Tensor(dtype(0))).item() == np.inf
        assert slope(ops.rsqrt, np.inf) == 0
    tiny = 1e-20
    np.testing.assert_allclose(slope(ops.rsqrt, tiny), -0.5 * tiny**-1.5, rtol=1e-6)
    np.testing.assert_allclose(slope(ops.rsqrt, 1e20), -0.5 * 1e20**-1.5, rtol=1e-6)
    np.testing.assert_allclose(slope(ops.log, 1e30), 1e-30, rtol=1e-6)
