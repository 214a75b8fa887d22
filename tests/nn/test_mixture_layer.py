"""The mixture as a layer: its networks token by token, padding outside, losses and usage, a router that collapses."""
import numpy as np
import pytest

from minitx import masks, nn
from minitx.gradcheck import gradcheck_model
from minitx.nn import Aux, FeedForward, GatedFeedForward, MixtureOfExperts, Usage
from minitx.ops import cross_entropy, expert_linear, linear
from minitx.optim import AdamW
from minitx.tensor import Tensor

B, T, D, F, E = 2, 5, 3, 7, 5


def build(seed=0, **options):
    """Random biases and gains everywhere, in float64."""
    rng = np.random.default_rng(seed)
    layer = MixtureOfExperts(D, F, E, rng=rng, **options).astype(np.float64)
    for p in layer.parameters():
        p.data = p.data + 0.3 * rng.standard_normal(p.shape)
    return layer


def x(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape or (B, T, D))


def network(layer, e):
    """Expert e as a dense network of its own."""
    kind = FeedForward if layer.gate is None else GatedFeedForward
    dense = kind(D, F, layer.activation, layer.up.bias is not None, rng=np.random.default_rng(0)).astype(np.float64)
    for name in ("gate", "up", "down"):
        part = getattr(layer, name, None)
        if part is not None:
            getattr(dense, name).weight.data = part.weight.data[e]
            if part.bias is not None:
                getattr(dense, name).bias.data = part.bias.data[e]
    return dense


@pytest.mark.parametrize("k", [1, 2, E])
@pytest.mark.parametrize("activation", ["swiglu", "geglu_tanh", "relu", "gelu"])
@pytest.mark.parametrize("shared", [0, 2])
def test_is_a_weighted_sum_of_dense_networks(k, activation, shared):
    layer = build(k=k, activation=activation, bias=True, shared_experts=shared)
    y = layer(Tensor(x())).numpy()
    networks = [network(layer, e) for e in range(E)]
    for b in range(B):
        for t in range(T):
            h = Tensor(x()[b, t])
            s = layer.router(h).numpy()
            p = np.exp(s) / np.exp(s).sum()
            chosen = sorted(range(E), key=lambda e: -s[e])[:k]
            w = p[chosen] / (p[chosen].sum() if k > 1 else 1)
            expected = sum(w_e * networks[e](h).numpy() for w_e, e in zip(w, chosen))
            if shared:
                expected = expected + layer.shared(h).numpy()
            np.testing.assert_allclose(y[b, t], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [
    {"k": 1}, {"k": 2, "shared_experts": 1}, {"k": 2, "activation": "gelu", "bias": True}, {"k": 3, "activation": "glu"}
])
def test_gradients_through_the_chosen_weights(options):
    layer = build(**options)
    h = Tensor(x())
    cotangent = x(seed=3)

    def loss():
        aux = Aux()
        y = layer(h, mask=masks.padding([5, 3]), aux=aux)
        return (y * cotangent).sum() + aux.losses["balance"] * 0.7 + aux.losses["router_z"] * 0.3

    gradcheck_model(loss, layer)


def test_router_learns_from_the_result_alone():
    for k in (1, 2):
        layer = build(k=k)
        (layer(Tensor(x())) * x(seed=3)).sum().backward()
        assert np.abs(layer.router.weight.grad).max() > 1e-3


@pytest.mark.parametrize("mask", [
    masks.padding([5, 3]), masks.causal() & masks.padding([5, 3]), np.arange(T) < [[5], [3]],
    masks.documents([[0, 0, 1, 1, 1], [0, 0, 0, -1, -1]]), (np.arange(T) < [[5], [3]])[:, None],
])
def test_padding_takes_no_part(mask):
    layer = build(shared_experts=1)
    short, real = x(), np.arange(T) < [[5], [3]]
    aux, aux_alone = Aux(), Aux()
    alone = layer(Tensor(short[real]), aux=aux_alone).numpy()
    short[~real] = np.nan  # poison
    h = Tensor(short, requires_grad=True)
    y = layer(h, mask=mask, aux=aux)
    np.testing.assert_array_equal(y.numpy()[real], alone)
    np.testing.assert_array_equal(y.numpy()[~real], 0)
    for name in ("balance", "router_z"):
        assert aux.losses[name].item() == aux_alone.losses[name].item()
    np.testing.assert_array_equal(aux.usage[""].counts, aux_alone.usage[""].counts)
    (y.sum() + aux.losses["balance"]).backward()
    assert all(np.isfinite(p.grad).all() for p in layer.parameters())
    np.testing.assert_array_equal(h.grad[~real], 0)
    assert np.isfinite(h.grad).all()


def test_what_else_is_in_the_batch_makes_no_difference():
    layer, h = build(), x()
    together = layer(Tensor(h)).numpy()
    for b in range(B):
        for t in range(T):
            np.testing.assert_allclose(layer(Tensor(h[b, t])).numpy(), together[b, t], rtol=1e-12, atol=1e-14)


def test_nothing_is_stored_and_nothing_changes_between_calls():
    layer = build()
    before = set(vars(layer))
    first = layer(Tensor(x()), aux=Aux()).numpy()
    np.testing.assert_array_equal(layer(Tensor(x())).numpy(), first)
    assert set(vars(layer)) == before


def test_aux_names_say_where():
    layer, aux = build(), Aux()
    for i in range(2):
        layer(Tensor(x()), aux=aux.at("decoder").at(f"{i}"))
    assert list(aux.losses) == [
        "decoder.0.balance", "decoder.0.router_z", "decoder.1.balance", "decoder.1.router_z",
    ]  # fmt: skip
    assert list(aux.usage) == ["decoder.0", "decoder.1"]


def test_usage():
    even, idle = Usage(np.array([5, 5, 5, 5])), Usage(np.array([0, 20, 0, 0]))
    np.testing.assert_array_equal(even.load, 0.25)
    assert even.entropy == pytest.approx(np.log(4))
    assert idle.entropy == 0
    np.testing.assert_array_equal(idle.unused, [0, 2, 3])
    np.testing.assert_array_equal((even + idle).counts, [5, 25, 5, 5])
    assert str(idle) == "load 0% 100% 0% 0%, entropy 0.000 of 1.386, 3 unused"
    nothing = Usage(np.zeros(3, int))
    assert nothing.entropy == 0
    np.testing.assert_array_equal(nothing.load, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_and_no_tokens(dtype):
    layer = MixtureOfExperts(D, F, E, shared_experts=1, rng=np.random.default_rng(0)).astype(dtype)
    for n in (T, 0):
        aux = Aux()
        h = Tensor(np.ones((B, n, D), dtype), requires_grad=True)
        y = layer(h, aux=aux)
        assert y.shape == (B, n, D)
        (y.sum() + aux.losses["balance"] + aux.losses["router_z"]).backward()
        assert {y.dtype, h.grad.dtype, *(p.grad.dtype for p in layer.parameters())} == {np.dtype(dtype)}
        layer.zero_grad()
    nothing = layer(Tensor(np.full((B, T, D), np.nan, dtype)), mask=masks.padding([0, 0]))
    np.testing.assert_array_equal(nothing.numpy(), 0)


def test_parameters_and_decay():
    layer = MixtureOfExperts(D, F, E, activation="gelu", bias=True, rng=np.random.default_rng(0))
    assert {name: p.shape for name, p in layer.named_parameters()} == {
        "router.weight": (E, D), "up.weight": (E, F, D), "up.bias": (E, F),
        "down.weight": (E, D, F), "down.bias": (E, D),
    }  # fmt: skip
    assert [name for name, p in layer.named_parameters() if not p.decay] == ["up.bias", "down.bias"]
    assert "2 of 5 experts, gelu" in repr(layer)


@pytest.mark.parametrize(("options", "message"), [
    ({"k": 6}, "k = 6, and there are 5 experts"),
    ({"k": 0}, "k = 0"),
    ({"shared_experts": -1}, "at least 0"),
    ({"activation": "swish"}, "activation is one of relu, .*swiglu, not 'swish'"),
])
def test_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        MixtureOfExperts(D, F, E, rng=np.random.default_rng(0), **options)


def test_masks_that_do_not_fit_are_refused():
    layer, h = build(), Tensor(x())
    with pytest.raises(TypeError, match="boolean"):
        layer(h, mask=np.ones((B, T)))
    with pytest.raises(ValueError, match="batch"):
        layer(h, mask=masks.padding([1, 2, 3]))
    with pytest.raises(ValueError, match="T_q 5, T_k 5"):
        layer(h, mask=np.ones((B, T + 1), bool))


def collapse(balance, steps=150):
    """Train a classifier whose router starts out in favour of expert 0; the shares of the experts at the end."""
    rng = np.random.default_rng(0)
    layer = nn.MixtureOfExperts(8, 16, 4, k=1, rng=rng)
    head = nn.Linear(8, 5, rng=rng)
    h = rng.standard_normal((256, 8)).astype(np.float32)
    h[:, 0] = 2.0  # what a bias would be: the router can prefer an expert whatever the token
    favour = np.zeros((4, 8), np.float32)
    favour[0, 0] = 2
    layer.router.weight.data += favour
    targets = rng.integers(0, 5, 256)
    optimizer = AdamW([*layer.parameters(), *head.parameters()], 1e-2)
    for _ in range(steps):
        aux = Aux()
        loss = cross_entropy(head(layer(Tensor(h), aux=aux)), targets) + aux.losses["balance"] * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return aux.usage[""].load


def test_the_balance_loss_evens_the_load():
    without, with_it = collapse(0.0), collapse(0.3)
    assert without.max() > 0.8
    assert with_it.max() < 0.45


def test_bit_for_bit_the_same_alone_and_among_others():
    """Where the kernels run: what else goes to a token's expert does not touch a bit of its result."""
    if expert_linear.kernel is None or linear.kernel is None:
        pytest.skip("there are no kernels here")
    rng = np.random.default_rng(0)
    layer = MixtureOfExperts(24, 40, 4, shared_experts=1, rng=rng)
    h = rng.standard_normal((3, 37, 24)).astype(np.float32)
    together = layer(Tensor(h)).numpy()
    for b, t in [(0, 0), (1, 5), (2, 36)]:
        np.testing.assert_array_equal(layer(Tensor(h[b : b + 1, t : t + 1])).numpy()[0, 0], together[b, t])
