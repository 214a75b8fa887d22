"""Traces, graphs and anomalies: what they say, of which line, and that they leave nothing behind."""

import inspect
import re
import weakref

import numpy as np
import pytest

import minitx
from minitx import Tensor, no_grad, ops, settings
from minitx.models.config import TransformerConfig
from minitx.models.transformer import Transformer
from minitx.nn import Linear, Module
from minitx.tracing import detect_anomaly, graph, trace


def leaf(value, dtype=np.float64):
    return Tensor(np.array(value, dtype), requires_grad=True)


def here() -> int:
    """The line that calls this."""
    return inspect.currentframe().f_back.f_lineno


def small_model(rng):
    config = TransformerConfig(
        architecture="decoder", layers=1, d_model=4, heads=2, vocab_size=7, max_length=5, dropout=0.0,
        norm_placement="pre", position="learned", tie_embeddings=False, scale_embeddings=False,
    )  # fmt: skip
    return Transformer(config, rng=rng)


class Net(Module):
    """A layer of the user's own."""

    def __init__(self, rng):
        self.inner = [Linear(3, 5, rng=rng)]

    def forward(self, x):
        return ops.exp(self.inner[0](x))


# ---------------------------------------------------------------------- trace


def test_a_trace_lists_every_op_with_sizes_and_lines():
    x, w = leaf([[3.0, -4.0]]), leaf([[1.0, 1.0], [0.0, 2.0], [2.0, 0.0]])
    with trace() as t:
        h = ops.linear(x, w); number = here()  # noqa: E702
        y = ops.relu(h) * 2.0
        y.sum().backward()
    assert [s.name for s in t.steps] == ["linear", "relu", "mul", "sum"]
    assert [s.arguments for s in t.steps] == [["x (1, 2)", "weight (3, 2)"], ["x #1"], ["x #2", "y 2"], ["x #3"]]
    assert [s.results[0].shape for s in t.steps] == [(1, 3), (1, 3), (1, 3), ()]
    h_rms = np.sqrt((1 + 64 + 36) / 3)
    np.testing.assert_allclose([s.results[0].rms for s in t.steps], [h_rms, np.sqrt(12), np.sqrt(48), 12])
    np.testing.assert_allclose([s.results[0].gradient_rms for s in t.steps], [np.sqrt(4 / 3), 2, 1, 1])
    assert [s.place.user.number for s in t.steps] == [number, number + 1, number + 1, number + 2]
    text = str(t)
    assert f"test_tracing.py:{number}  h = ops.linear(x, w)" in text
    assert re.search(r"2 +relu +x #1 +\(1, 3\) +3\.46 +2$", text, re.MULTILINE)


def test_the_numbers_themselves():
    x, w = leaf([[3.0, -4.0]]), leaf([[0.125, 1.0]])
    with trace(values=True) as t:
        (ops.linear(x, w) * ops.linear(x, w)).sum().backward()
    text = str(t)
    assert text == t.numbers() != t.table()
    value = 3 * 0.125 - 4  # y = (x wᵀ)², dw = 2 (x wᵀ) x
    assert f"[[{value}]]   d: [[{value}]]" in text.replace(" ]]", "]]")
    assert "[[0.125 1.   ]]   d: [[-21.75  29.  ]]" in text  # summed over both uses, listed once
    assert text.count("weight (1, 2)\n") == 1


def test_large_arrays_are_not_kept():
    x = leaf(np.ones((100, 7)))
    with trace() as t:
        (x + 1.0).sum().backward()
    assert t.steps[0].results[0].value is None
    assert t.steps[0].results[0].gradient is None
    assert t.steps[0].results[0].gradient_rms == 1
    assert "700 numbers, too many" in t.numbers()


def test_layers_are_called_by_their_names_in_the_model():
    model = small_model(np.random.default_rng(0))
    with trace() as t:
        ops.cross_entropy(model(np.array([[1, 2, 3]])).logits, np.array([[2, 3, -100]])).backward()
    by_name = {s.place.module: s for s in t.steps}
    assert by_name["decoder.0.attention.query"].name == "linear"
    assert str(by_name["decoder.0.attention.query"].place.layer).startswith("nn/linear.py:")
    assert by_name["embedding"].results[0].shape == (1, 3, 4)
    assert t.steps[-1].place.module == ""
    assert all(s.results[0].gradient_rms is not None for s in t.steps)
    assert max(map(len, str(t).splitlines())) < 150


def test_layers_of_the_users_own():
    net = Net(np.random.default_rng(0)).astype(np.float64)
    with trace() as t:
        net(Tensor(np.ones((2, 3))))
    assert [s.place.module for s in t.steps] == ["inner.0", "Net"]
    assert {s.place.user.source for s in t.steps} == {"return ops.exp(self.inner[0](x))"}


def test_without_gradients():
    x = leaf([1.0, 2.0])
    with trace() as t:
        with no_grad():
            ops.exp(x)
        y = ops.exp(x).sum()
    y.backward()  # outside: not seen
    assert [s.results[0].gradient_rms for s in t.steps] == [None] * 3
    assert re.search(r"1 +exp +x \(2,\) +\(2,\) +5\.57 +-$", str(t), re.MULTILINE)


def test_several_outputs_many_inputs_views_and_nothing():
    x = leaf(np.arange(6.0))
    with trace() as t:
        a, b = ops.split(x, 2)
        c = ops.concatenate([a.detach(), b])
        c.backward(np.ones(6))
    split, concatenate = t.steps
    assert [r.label for r in split.results] == ["#1.0", "#1.1"]
    assert concatenate.arguments[:2] == ["xs (3,)", "xs #1.1"]  # what was detached comes in from outside
    np.testing.assert_array_equal([r.gradient_rms for r in split.results], [0, 1])
    assert "#" in str(t)
    with trace() as empty:
        pass
    assert "no op ran" in str(empty)


def test_a_graph_from_before_is_no_obstacle():
    x = leaf([1.0, 2.0])
    y = ops.exp(x)
    with trace() as t:
        (y * y).sum().backward()
    assert [s.name for s in t.steps] == ["mul", "sum"]
    assert x.grad is not None


def test_not_finite_sizes_are_shown_without_warnings():
    with trace() as t, np.errstate(all="ignore"):
        ops.log(leaf([0.0, 1.0, -1.0]))
        ops.mul(leaf([1e300]), leaf([1e-300]))
    assert [s.results[0].rms for s in t.steps][1] == 1
    assert "nan" in str(t)
    assert "-inf" in t.numbers()


# ---------------------------------------------------------------------- graph


def test_a_graph_as_text():
    x, b = leaf([[1.0, 2.0, 3.0]]), leaf(np.ones((5, 3)))
    y = ops.relu(ops.linear(x, b)) + 1.0
    expected = """\
digraph {
  rankdir=BT; node [fontname=monospace]; edge [fontname=monospace, fontsize=10];
  leaf0 [shape=ellipse, label="x\\n(1, 3)", style=filled, fillcolor="#dbe9f6"];
  leaf1 [shape=ellipse, label="leaf\\n(5, 3)", style=filled, fillcolor="#dbe9f6"];
  op0 [shape=box, label="linear\\n(1, 5)"];
  op1 [shape=box, label="relu\\n(1, 5)"];
  op2 [shape=box, label="add\\n(1, 5)", penwidth=2];
  leaf0 -> op0 [label="x"];
  leaf1 -> op0 [label="weight"];
  op0 -> op1;
  op1 -> op2 [label="x"];
}
"""
    assert graph(y, {"x": x}) == expected


def test_a_graph_names_parameters_and_draws_each_use():
    model = small_model(np.random.default_rng(0))
    logits = model(np.array([[1, 2]])).logits
    text = graph(logits, model)
    for name, _ in model.named_parameters():
        assert text.count(f'"{name}\\n') == 1
    x = leaf([2.0])
    text = graph(ops.mul(x, x) + ops.split(x * np.ones(2), 2)[1])
    assert len(re.findall(r"leaf0 -> ", text)) == 3
    assert "output 1" in text
    assert graph(x).count("->") == 0


def test_names_are_quoted_and_constants_are_plain():
    x, c = leaf([1.0]), Tensor(np.ones(1))
    text = graph(ops.add(x, c), [('a "b" \\', x)])
    assert r'label="a \"b\" \\\n(1,)"' in text
    assert re.search(r'label="constant\\n\(1,\)"\];', text)


def test_a_long_chain_and_a_freed_graph():
    x = leaf([1.0])
    y = x
    for _ in range(5000):
        y = ops.neg(y)
    assert graph(y).count("->") == 5000
    y.backward()
    with pytest.raises(RuntimeError, match="freed the graph at neg"):
        graph(y)


# ---------------------------------------------------------------------- anomalies


def fault(compute) -> str:
    with pytest.raises(FloatingPointError) as caught, detect_anomaly():
        compute()
    assert settings.current.get().observer is None
    return str(caught.value)


def test_the_op_that_makes_a_nan_is_named_with_shapes_and_line():
    x = leaf([[1.0, 4.0, 9.0], [1.0, -2.0, 3.0]])

    def compute():
        y = x * 2.0
        compute.number = here() + 1
        z = ops.sqrt(y)
        return z + 1.0

    message = fault(compute)
    assert message.startswith("sqrt made NaN: 1 of 6 values, the first at [1, 1]\n")
    assert "sqrt(x (2, 3)) -> (2, 3); values -4 ... 18" in message
    assert f"called at test_tracing.py:{compute.number}  z = ops.sqrt(y)" in message


def test_an_infinity_from_finite_numbers_is_an_anomaly():
    assert fault(lambda: ops.log(leaf([1.0, 0.0]))).startswith("log made infinity: 1 of 2 values, the first at [1]")
    assert fault(lambda: ops.exp(leaf(1000.0))).startswith("exp made infinity: 1 of 1 values\n")
    assert fault(lambda: leaf([1.0], np.float32) * np.float32(1e38) * 100.0).startswith("mul made infinity")


def test_the_backward_that_makes_it_is_named_with_the_line_of_its_forward():
    x = leaf([4.0, 0.0])

    def compute():
        y = ops.sqrt(x); compute.number = here()  # noqa: E702
        y.sum().backward()

    message = fault(compute)
    assert message.startswith("the backward of sqrt made infinity: 1 of 2 values, the first at [1]")
    assert "dy (2,) -> dx (2,); values 1 ... 1" in message
    assert f"called at test_tracing.py:{compute.number}  y = ops.sqrt(x)" in message
    assert x.grad is None


def test_a_backward_of_a_graph_made_outside_is_watched_too():
    y = ops.sqrt(leaf([0.0]))
    message = fault(lambda: y.backward(np.ones(1)))
    assert "a line outside detect_anomaly()" in message


def test_pitfall_13_the_branch_not_taken_is_shown():
    x = leaf([-1.0, -4.0])
    assert fault(lambda: ops.where(x > 0, ops.sqrt(x), x)).startswith("sqrt made NaN")


def test_minus_infinity_as_a_mask_is_none():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    allowed = np.array([[True, False], [False, False]])
    with detect_anomaly():
        s = ops.where(allowed, x, -np.inf)
        ops.softmax(s).backward(np.ones((2, 2)))
        ops.attention(*(leaf(np.ones((1, 1, 2, 3))) for _ in "qkv"), mask=allowed).backward(np.ones((1, 1, 2, 3)))
    assert fault(lambda: ops.where(allowed, x, -np.inf) - Tensor(np.full((2, 2), -np.inf))).startswith("sub made NaN")


def test_a_nan_in_the_data_is_reported_as_such():
    x = leaf([1.0, np.nan])
    assert fault(lambda: ops.exp(x)).startswith("exp met NaN that came in with the data: 1 of 2 values")
    y = ops.exp(leaf([1.0]))
    assert fault(lambda: y.backward(np.array([np.nan]))).startswith("the backward of exp met NaN that came in")


def test_in_a_model_the_layer_is_named():
    model = small_model(np.random.default_rng(0))
    model.decoder[0].feedforward.up.weight.data *= np.inf
    message = fault(lambda: model(np.array([[1, 2]])))
    assert "in decoder.0.feedforward.up, nn/linear.py:" in message


def test_a_whole_step_without_anomaly_passes_also_without_a_tape():
    model = small_model(np.random.default_rng(0))
    with detect_anomaly():
        ops.cross_entropy(model(np.array([[1, 2, 3]])).logits, np.array([[2, 3, -100]])).backward()
        with no_grad():
            model(np.array([[1, 2, 3]]))
    with no_grad():
        assert fault(lambda: ops.log(leaf([-1.0]))).startswith("log made NaN")


def test_watchers_nest_and_each_is_told():
    x = leaf([0.0])
    for outer, inner in (trace, detect_anomaly), (detect_anomaly, trace):
        with pytest.raises(FloatingPointError, match="backward of sqrt"), outer() as a, inner() as b:  # noqa: PT012
            y = ops.sqrt(x + 0.0)
            y.backward(np.ones(1))
        t = a or b
        assert [s.name for s in t.steps] == ["add", "sqrt"]
        assert t.steps[1].results[0].gradient_rms == 1
    with trace() as first, trace() as second:
        ops.exp(x)
    assert len(first.steps) == len(second.steps) == 1
    assert settings.current.get().observer is None


def test_watching_costs_no_memory_once_the_graph_is_gone():
    x, nodes = leaf([1.0]), []
    with detect_anomaly():
        for _ in range(5):
            y = ops.exp(ops.neg(x))
            nodes.append(weakref.ref(y.node))
            y.backward(np.ones(1))
        del y
        assert not any(node() for node in nodes)


def test_at_the_front_door():
    assert (minitx.trace, minitx.graph, minitx.detect_anomaly) == (trace, graph, detect_anomaly)
