import numpy as np
import pytest
from drawn import generators, quick, shapes
from hypothesis import given

from minitx import Tensor
from minitx.gradcheck import gradcheck
from minitx.ops import geglu, gelu, glu, reglu, relu, sigmoid, silu, swiglu

PAIRS = [(glu, sigmoid), (reglu, relu), (geglu, gelu), (swiglu, silu)]
gates = pytest.mark.parametrize(("gate", "activation"), PAIRS, ids=[g.name for g, _ in PAIRS])


def pull(f, gate, up, dy):
    leaves = [Tensor(a, requires_grad=True) for a in (gate, up)]
    y = f(*leaves)
    y.backward(dy)
    return y.numpy(), *(t.grad for t in leaves)


@gates
@quick
@given(rng=generators, shape=shapes)
def test_a_gate_is_its_activation_times_up(gate, activation, rng, shape):
    g, u, dy = (rng.standard_normal(shape) for _ in range(3))
    for a, b in zip(pull(gate, g, u, dy), pull(lambda g, u: activation(g) * u, g, u, dy)):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@gates
def test_gradients(gate, activation):
    rng = np.random.default_rng(0)
    gradcheck(gate, rng.standard_normal((3, 5)), rng.standard_normal((3, 5)))


def test_the_two_geglus_differ():
    g, u = np.ones(1), np.ones(1)
    assert geglu(g, u).item() == pytest.approx(0.8413447460685429, rel=1e-12)
    assert geglu(g, u, approximate="tanh").item() == pytest.approx(0.8411919906082768, rel=1e-12)
    gradcheck(geglu, np.array([0.3, -2.0]), np.array([1.5, 0.7]), approximate="tanh")
    with pytest.raises(ValueError, match="approximate is"):
        geglu(g, u, approximate="fast")


@gates
def test_gate_and_up_are_not_exchangeable(gate, activation):
    rng = np.random.default_rng(0)
    g, u = rng.standard_normal((2, 5)), rng.standard_normal((2, 5))
    assert np.abs(gate(g, u).numpy() - gate(u, g).numpy()).max() > 0.1


@gates
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_out(gate, activation, dtype):
    g = Tensor(np.array([-1e20, -100, 100, 1e15], dtype), requires_grad=True)
    u = Tensor(np.full(4, 2, dtype), requires_grad=True)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        y = gate(g, u)
        y.backward(np.ones(4, dtype))
    shut_or_open = [0, 0, 2, 2] if gate is glu else [0, 0, 200, 2e15]
    np.testing.assert_allclose(y.numpy(), shut_or_open, rtol=1e-6, atol=1e-20)
    assert np.isfinite(g.grad).all()
    assert np.isfinite(u.grad).all()


@gates
def test_shapes_must_agree(gate, activation):
    with pytest.raises(ValueError, match=rf"{gate.name}: gate and up are two projections of one shape"):
        gate(np.ones((2, 3)), np.ones(3))
