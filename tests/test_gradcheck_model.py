"""The check of a whole model: directions through all parameters, samples of each, and nothing is left changed."""
from __future__ import annotations

import numpy as np
import pytest

import minitx
from minitx import Tensor, op
from minitx.gradcheck import GradientError, gradcheck_model
from minitx.ops import dropout

rng = np.random.default_rng(7)
X = rng.standard_normal((3, 5))


@op
def relu(x):
    return np.maximum(x, 0), lambda dy: dy * (x > 0)


def network(seed=0, tied=False):
    generator = np.random.default_rng(seed)
    w = {n: Tensor(generator.standard_normal(s), True) for n, s in {"in": (7, 5), "out": (3, 7), "b": (7,)}.items()}

    def loss():
        h = relu(minitx.ops.linear(Tensor(X), w["in"], w["b"]))
        return (minitx.ops.linear(h, w["out"]) ** 2).mean()

    return w, loss


def test_model():
    w, loss = network()
    report = gradcheck_model(loss, w, samples=6)
    assert [row.name for row in report.rows] == ["direction 1", "direction 2", "direction 3", "in", "out", "b"]
    assert [row.entries for row in report.rows] == [1, 1, 1, 6, 6, 6]
    assert report.error < 1e-6
    unnamed = gradcheck_model(loss, w.values())
    assert [row.name for row in unnamed.rows][3:] == ["parameter 0", "parameter 1", "parameter 2"]
    assert gradcheck_model(loss, list(w.items())) == gradcheck_model(loss, w)


def test_model_is_afterwards_what_it_was():
    w, loss = network()
    with w["b"].writing() as value:
        value[0] = -0.0
    loss().backward()
    before = {n: (p.data.tobytes(), p.grad.copy()) for n, p in w.items()}
    gradcheck_model(loss, w)
    with relu.using(lambda x: (np.maximum(x, 0), lambda dy: dy)), pytest.raises(GradientError):
        gradcheck_model(loss, w)
    for n, p in w.items():
        assert p.data.tobytes() == before[n][0]
        np.testing.assert_array_equal(p.grad, before[n][1])


def test_model_with_a_wrong_op():
    w, loss = network()
    with relu.using(lambda x: (np.maximum(x, 0), lambda dy: dy)), pytest.raises(GradientError) as caught:
        gradcheck_model(loss, w)
    guilty = {row.name for row in caught.value.report.rows if row.error > 1e-6}
    assert {"direction 1", "in", "b"} <= guilty
    assert "out" not in guilty


def test_model_refusals():
    w, loss = network()
    with pytest.raises(TypeError, match="float32"):
        gradcheck_model(loss, {**w, "extra": Tensor([1.0], True)})
    generator = np.random.default_rng(0)
    with pytest.raises(ValueError, match="two answers"):
        gradcheck_model(lambda: dropout(w["b"] * 1, 0.5, generator).sum(), w)


def test_directions_see_what_samples_miss():
    table = Tensor(rng.standard_normal((11, 3)), True)

    @op
    def rows(x):
        return x * 2, lambda dy: 2 * dy * (np.arange(11) != 5)[:, None]

    with pytest.raises(GradientError) as caught:
        gradcheck_model(lambda: (rows(table) ** 2).sum(), {"table": table}, samples=1)
    assert caught.value.report.rows[0].error > 1e-3


def test_model_refusals_of_parameters_and_losses():
    w, loss = network()
    frozen = Tensor(np.ones(3))
    for parameters, error, words in (
        ([], ValueError, "there are no parameters to check"),
        ({**w, "frozen": frozen}, ValueError, "frozen is no leaf with requires_grad=True"),
        ([np.ones(3)], TypeError, "parameter 0 is a ndarray: parameters are a Module, Tensors or"),
        ({"w": Tensor([1.0], True)}, TypeError, r"w is float32.*model.astype\(np.float64\) first"),
    ):
        with pytest.raises(error, match=words):
            gradcheck_model(loss, parameters)
    for slip, words in (
        (lambda: 1.0, "not a float"),
        (lambda: (loss(), loss()), "not a tuple"),
        (lambda: w["b"] * 2, r"not a Tensor of shape \(7,\)"),
    ):
        with pytest.raises(TypeError, match=f"returns one Tensor with one element, {words}"):
            gradcheck_model(slip, w)


def test_parameters_that_are_not_checked_keep_their_gradients():
    w, loss = network()
    w["out"].grad = before = np.ones((3, 7))
    gradcheck_model(loss, {"in": w["in"]})
    assert w["out"].grad is before
    assert w["b"].grad is None
