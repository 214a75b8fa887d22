"""A cache is of one model: with other weights, another configuration or type of numbers it is refused by name."""
import numpy as np
import pytest
from cache_drawn import V, model

from minitx.generation.cache_identity import ModelIdentity
from minitx.generation.session import Session, incremental
from minitx.optim import SGD

SCALING = {"type": "linear", "factor": 2.0}


def begun(m):
    session = Session(m)
    session.prefill([[1, 2, 3]])
    return session


def test_another_session_goes_on_with_a_cache():
    m = model(position="rotary")
    cache = begun(m).cache
    other = Session(m, cache=cache)
    np.testing.assert_allclose(other.step([4])[0], m([[1, 2, 3, 4]]).logits.numpy()[0, -1], rtol=1e-10)
    with pytest.raises(ValueError, match="this cache stores the model's own numbers, not int8"):
        Session(m, cache=cache, cache_dtype="int8")
    equal = model(position="rotary")  # another object with the same weights
    np.testing.assert_allclose(Session(equal, cache=cache).step([5])[0], m([[1, 2, 3, 4, 5]]).logits.numpy()[0, -1])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dtype": np.float32}, "its dtype is 'float64', and here it is 'float32'"),
        ({"rope_scaling": None}, "its rope_scaling is {'type': 'linear', 'factor': 2.0}, and here it is None"),
        ({"rope_scaling": {"type": "linear", "factor": 3.0}}, "and here it is {'type': 'linear', 'factor': 3.0}"),
        ({"rope_base": 500.0}, "its rope_base is 10000.0, and here it is 500.0"),
        ({"position": "alibi", "rope_scaling": None}, "its position is 'rotary', and here it is 'alibi'"),
        ({"kv_heads": 2}, "its kv_heads is 4, and here it is 2"),
        ({"window": 5}, "its window is None, and here it is 5"),
        ({"seed": 1}, "the same configuration and other weights"),
    ],
)
def test_another_model_is_refused_by_name(fields, words):
    cache = begun(model(position="rotary", rope_scaling=SCALING)).cache
    with pytest.raises(ValueError, match=words):
        Session(model(**{"position": "rotary", "rope_scaling": SCALING} | fields), cache=cache)


def test_what_does_not_change_the_meaning_is_no_difference():
    cache = begun(model(position="rotary")).cache
    Session(model(position="rotary", dropout=0.3, attention_kernel="tiled"), cache=cache)


def test_weights_that_an_optimizer_has_changed():
    m = model()
    session, other = begun(m), begun(model(seed=5))
    loss = m([[1, 2]]).logits.sum()
    loss.backward()
    SGD(m.parameters(), lr=0.1).step()
    with pytest.raises(ValueError, match=r"weights of the model have changed since this cache was begun \(by an opt"):
        session.step([1])
    with pytest.raises(ValueError, match="have changed since"):
        Session(m, cache=session.cache)
    begun(m).step([1])  # a new one
    other.step([1])
    m.decoder[0].attention.key.weight.data *= 2.0
    with pytest.raises(ValueError, match="have changed since"):
        session.step([1])


def test_loading_other_weights():
    m = model()
    session = begun(m)
    m.load_state_dict(model(seed=7).state_dict())
    with pytest.raises(ValueError, match="have changed since"):
        session.step([1])


def test_fingerprints():
    m = model(position="rotary")
    first = ModelIdentity(m).fingerprint
    assert ModelIdentity(m).fingerprint == ModelIdentity(model(position="rotary")).fingerprint == first
    others = [model(position="rotary", seed=1), model(np.float32, position="rotary"), model(position="alibi")]
    m.head.weight.data += 1e-9
    assert len({first, ModelIdentity(m).fingerprint, *(ModelIdentity(other).fingerprint for other in others)}) == 5


def test_one_layer_shared_by_two_models_is_not_the_whole_model():
    a, b = model(), model(seed=3)
    b.embedding.weight = a.embedding.weight
    assert ModelIdentity(a).fingerprint != ModelIdentity(b).fingerprint


def test_pitfall_26_dynamic_scaling_is_refused_where_cached_keys_would_be_wrong():
    scaling = {"type": "dynamic", "factor": 2.0, "original_length": 4}
    m = model(position="rotary", rope_scaling=scaling)
    x = np.random.default_rng(0).integers(0, V, (1, 5))
    np.testing.assert_allclose(incremental(m, x[:, :4]), m(x[:, :4]).logits.numpy(), rtol=1e-10, atol=1e-10)
    session = Session(m)
    session.prefill(x[:, :4])
    with pytest.raises(ValueError, match="dynamic scaling turns all keys anew at every length past 4"):
        session.step(x[:, 4])
    assert session.lengths == [4]
    fixed = model(position="rotary", rope_scaling=scaling | {"length": 8})
    np.testing.assert_allclose(incremental(fixed, x), fixed(x).logits.numpy(), rtol=1e-10, atol=1e-10)


def test_with_an_equal_model_it_is_that_ones_weights_that_must_not_change():
    first, equal = model(), model()
    session = Session(equal, cache=begun(first).cache)
    first.decoder[0].feedforward.up.weight.data *= 1.5  # no business of the session
    session.step([4])
    equal.decoder[0].feedforward.up.weight.data *= 1.5
    with pytest.raises(ValueError, match="the weights of the model have changed"):
        session.step([4])


def test_a_layer_that_is_replaced_is_a_change_of_weights():
    for replace in (
        lambda m: setattr(m.decoder[0], "feedforward", model(seed=5).decoder[0].feedforward),
        lambda m: m.decoder.__setitem__(1, model(seed=5).decoder[1]),
        lambda m: setattr(m.decoder[0].feedforward, "up", model(seed=5).decoder[0].feedforward.up),
    ):
        m = model()
        session = begun(m)
        session.step([4])
        replace(m)
        with pytest.raises(ValueError, match="or with a layer that was replaced"):
            session.step([4])
        with pytest.raises(ValueError, match="or with a layer that was replaced"):
            session.prefill([[4]])
