"""Ops that do several steps in one kernel: equal to their parts at sizes of many blocks, whatever the threads."""
import numpy as np
import pytest

pytest.importorskip("numba", reason="numba is not installed")

from equal import on_threads
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor, masks, ops, reference
from minitx.accumulate import owned
from minitx.tensor import wrap

DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])
FFN = [(2, 150, 65), (300, 65), (300,), (65, 300), (65,)]
THROUGH = [*FFN, (2, 150, 65)]  # with a residual
GATED = [(2, 150, 65), (300, 65), (300,), (300, 65), (300,), (65, 300), (65,)]
DEEP = [(1, 70, 270), (150, 270), (150,), (150, 270), (150,), (270, 150), (270,)]  # two chunks of the sum
OUTPUT = [(2, 5, 150, 13), (67, 65), (67,), (2, 150, 67)]
HEADS = [(3, 70, 65), (60, 65), (60,), (20, 65), (20,), (28, 65), (28,)]


def through(*arrays, activation):
    return ops.feed_forward(*arrays[:-1], activation, arrays[-1])


# Without a bias of the keys: its gradient is a sum whose terms cancel (audit/cases/fused.py has one, beside a cap).
def itself(x, query, query_bias, key, *rest, **options):
    return ops.multi_head_attention(x, None, query, query_bias, key, None, *rest, mask=masks.causal(), **options)


def another(x, memory, query, query_bias, key, *rest, **options):
    return ops.multi_head_attention(x, memory, query, query_bias, key, None, *rest, **options)


# three query heads for a key head, and a residual; and a memory that is wider than x, and longer
ITSELF = [*HEADS[:4], *HEADS[5:], (65, 84), (65,), HEADS[0]]
ANOTHER = [(2, 37, 33), (2, 150, 41), (60, 33), (60,), (60, 41), (52, 41), (52,), (33, 52), (33,)]

RUNS = [
    *[(ops.feed_forward, FFN, {"activation": a}) for a in ("relu", "gelu", "gelu_tanh", "silu")],
    *[(ops.gated_feed_forward, GATED, {"activation": a}) for a in ("glu", "geglu", "geglu_tanh", "swiglu")],
    (ops.gated_feed_forward, DEEP, {"activation": "geglu"}),
    (ops.self_attention_projections, HEADS, {"heads": 6, "kv_heads": 2}),
    (ops.key_value_projections, [HEADS[0], *HEADS[3:]], {"kv_heads": 2}),
    (through, THROUGH, {"activation": "gelu"}),
    (ops.output_projection, OUTPUT, {}),
    (ops.output_projection, OUTPUT[:3], {}),
    (itself, ITSELF, {"heads": 6, "kv_heads": 2}),
    (another, ANOTHER, {"heads": 4, "kv_heads": 4}),
]
NAMES = [f"{op.__name__}-{next(iter(options.values()), len(shapes))}-{shapes[0][-1]}" for op, shapes, options in RUNS]
runs = pytest.mark.parametrize(("op", "shapes", "options"), RUNS, ids=NAMES)


def drawn(shapes, dtype):
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(s) / np.sqrt(s[-1])).astype(dtype) for s in shapes]


def everything(op, arrays, options):
    """Values and all gradients, under a random cotangent."""
    inputs = [Tensor(a, requires_grad=True) for a in arrays]
    outputs = op(*inputs, **options)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    rng = np.random.default_rng(1)
    total = sum((y * rng.standard_normal(y.shape)).sum() for y in outputs)
    total.backward()
    return [y.numpy() for y in outputs] + [x.grad for x in inputs]


@runs
@DTYPES
def test_kernel_equals_its_parts(op, shapes, options, dtype):
    arrays = drawn(shapes, dtype)
    got = everything(op, arrays, options)
    with reference():
        expected = everything(op, [a.astype(np.float64) for a in arrays], options)
    limit = 4 * np.finfo(dtype).eps * np.sqrt(300)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == dtype
        assert np.abs(a - b).max() <= limit * np.abs(b).max()


SIZES = st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 255, 256, 257, 300]))
LAYOUTS = {
    "C": lambda a: a,
    "Fortran": np.asfortranarray,
    "reversed": lambda a: a[::-1].copy()[::-1],
    "sliced": lambda a: np.repeat(a, 2, -1)[..., ::2],
}
DRAWN = {
    "feed_forward": lambda n, h, o: [(h, n), (h,), (o, h), (o,)],
    "gated_feed_forward": lambda n, h, o: [(h, n), (h,), (h, n), (h,), (o, h), (o,)],
    "self_attention_projections": lambda n, h, o: [(2 * h, n), (2 * h,), (h, n), (h,), (h, n), (h,)],
    "output_projection": lambda n, h, o: [(o, h * n), (o,)],
}


@given(
    st.sampled_from(sorted(DRAWN)), st.sampled_from(["relu", "gelu", "gelu_tanh", "silu"]), st.booleans(),
    st.sampled_from([np.float32, np.float64]), st.tuples(st.integers(1, 3), SIZES), SIZES, st.integers(1, 40), SIZES,
    st.lists(st.sampled_from(sorted(LAYOUTS)), min_size=8, max_size=8), st.integers(0, 9),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_shape_in_any_layout(name, activation, biased, dtype, leading, n, h, o, layouts, seed):
    """Values and gradients; each array lies in memory in an order of its own."""
    shapes = DRAWN[name](n, h, o)
    if not biased:
        shapes = [None if len(shape) == 1 else shape for shape in shapes]
    shapes.insert(0, (leading[0], h, leading[1], n) if name == "output_projection" else (*leading, n))
    if seed % 2 and name != "self_attention_projections":
        shapes.append((*leading, o))  # a residual
    rng = np.random.default_rng(seed)
    arrays = [None if s is None else (rng.standard_normal(s) / np.sqrt(s[-1])).astype(dtype) for s in shapes]

    def run(dtype):
        leaves = [None if a is None else wrap(LAYOUTS[l](a.astype(dtype))) for a, l in zip(arrays, layouts * 2)]
        for leaf in leaves:
            if leaf is not None:
                leaf.requires_grad = True
        if name == "feed_forward":
            outputs = ops.feed_forward(*leaves[:5], activation, *leaves[5:])
        elif name == "gated_feed_forward":
            gate = {"relu": "glu", "gelu": "geglu", "gelu_tanh": "geglu_tanh", "silu": "swiglu"}[activation]
            outputs = ops.gated_feed_forward(*leaves[:7], gate, *leaves[7:])
        elif name == "output_projection":
            outputs = ops.output_projection(*leaves)
        else:
            outputs = ops.self_attention_projections(*leaves, heads=2 * h, kv_heads=h)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        rng = np.random.default_rng(seed)
        sum((y * rng.standard_normal(y.shape)).sum() for y in outputs).backward()
        return [y.numpy() for y in outputs] + [leaf.grad for leaf in leaves if leaf is not None]

    got = run(dtype)
    with reference():
        expected = run(np.float64)
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == dtype
        # (at least 1: a result may be a single sum whose terms cancel)
        assert np.abs(a - b).max() <= 4 * np.finfo(dtype).eps * np.sqrt(300) * max(np.abs(b).max(), 1)


@runs
def test_the_same_bits_on_one_thread_and_on_all(op, shapes, options):
    arrays = drawn(shapes, np.float32)
    on_threads(lambda: everything(op, arrays, options))


@runs
def test_only_what_is_asked_for(op, shapes, options):
    """Frozen weights get no gradient, and the others the same as before."""
    arrays = drawn(shapes, np.float64)
    whole = everything(op, arrays, options)[-len(arrays) :]
    for wanted in range(len(arrays)):
        inputs = [Tensor(a, requires_grad=i == wanted) for i, a in enumerate(arrays)]
        y = op(*inputs, **options)
        rng = np.random.default_rng(1)
        total = sum((part * rng.standard_normal(part.shape)).sum() for part in (y if isinstance(y, tuple) else (y,)))
        total.backward()
        np.testing.assert_allclose(inputs[wanted].grad, whole[wanted], rtol=0, atol=1e-13)
        assert all(x.grad is None for i, x in enumerate(inputs) if i != wanted)


@pytest.mark.parametrize(
    ("op", "shapes", "options"),
    [
        *[run for run in RUNS if run[0] is not ops.output_projection],  # (whose gradient lies as the heads do)
        (ops.linear, [(2, 150, 65), (67, 65), (67,)], {}),
        (ops.matmul, [(2, 150, 65), (65, 67)], {}),
        (ops.matmul, [(2, 150, 65), (2, 65, 67)], {}),
    ],
)
def test_the_gradient_of_x_may_be_added_to(op, shapes, options):
    """It is an array of its own, not a view of one: a second gradient of x is then added in place, by all threads."""
    outputs = op(*[Tensor(a, requires_grad=True) for a in drawn(shapes, np.float32)], **options)
    several = isinstance(outputs, tuple)
    node = outputs[0].node if several else outputs.node
    dys = tuple(np.ones_like(y.data) for y in outputs) if several else np.ones_like(outputs.data)
    dx = node.backward(dys, node.need)[0]
    assert dx.shape == shapes[0]
    assert owned(dx)


@pytest.mark.parametrize("shape", [(65,), (1, 150, 65), (2, 1, 1)])
def test_a_residual_that_broadcasts_is_added_by_the_parts(shape):
    arrays = drawn(FFN, np.float64)
    residual = Tensor(np.random.default_rng(2).standard_normal(shape), requires_grad=True)
    y = ops.feed_forward(*arrays, "relu", residual)
    np.testing.assert_allclose(y.numpy(), residual.numpy() + ops.feed_forward(*arrays, "relu").numpy(), atol=1e-14)
    dy = np.random.default_rng(3).standard_normal(y.shape)
    y.backward(dy)
    assert residual.grad.shape == shape
    along = tuple(i for i, n in enumerate((1,) * (3 - len(shape)) + shape) if n == 1)
    np.testing.assert_allclose(residual.grad, dy.sum(along).reshape(shape), atol=1e-12)


def test_a_residual_in_another_order_in_memory():
    arrays = drawn(FFN, np.float32)
    residual = np.random.default_rng(2).standard_normal((65, 150, 2)).astype(np.float32).T
    y = ops.feed_forward(*arrays, "relu", residual).numpy()
    np.testing.assert_array_equal(y, residual + ops.feed_forward(*arrays, "relu").numpy())


def test_relu_keeps_nan_and_what_is_behind_it():
    """Its slope is seen in h, where NaN is not above 0."""
    x = Tensor(np.array([[np.nan], [2.0], [-2.0]]), requires_grad=True)
    one = np.ones((1, 1))
    y = ops.feed_forward(x, one, None, one, None)
    np.testing.assert_array_equal(y.numpy(), [[np.nan], [2.0], [0.0]])
    y.backward(np.ones((3, 1)))
    np.testing.assert_array_equal(x.grad, [[0.0], [1.0], [0.0]])


def test_relu_stops_an_infinite_gradient():
    x, up, down = np.array([[1.0]]), np.array([[-1.0]]), np.array([[1.0]])
    inputs = [Tensor(a, requires_grad=True) for a in (x, up, down)]
    y = ops.feed_forward(inputs[0], inputs[1], None, inputs[2], None)
    y.backward(np.array([[np.inf]]))
    assert inputs[0].grad == 0
    assert inputs[1].grad == 0


@pytest.mark.parametrize("name", ["reglu", "sigmoid"])
def test_what_the_kernel_leaves_to_the_parts(name):
    arrays = drawn(GATED, np.float64)
    if name == "reglu":
        y = ops.gated_feed_forward(*arrays, activation=name).numpy()
        gate, up = (ops.linear(arrays[0], arrays[i], arrays[i + 1]) for i in (1, 3))
        np.testing.assert_allclose(y, ops.linear(ops.relu(gate) * up, *arrays[5:]).numpy(), rtol=1e-12)
    else:
        with pytest.raises(KeyError):
            ops.gated_feed_forward(*arrays, activation=name)
