"""A step as a list of instructions: what the model's ops compute, and only where nobody has a hand in them."""
import copy
import gc
import os
import weakref

import numpy as np
import pytest
from cache_drawn import V, batches, fields, model
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minitx
from minitx.generation import program
from minitx.generation.program import Program, Unsupported
from minitx.generation.session import Session
from minitx.kernels import parallel, pool
from minitx.nn import FeedForward, LayerNorm, Linear
from minitx.ops import attention


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, V, shape)


def two_sessions(m, x, lengths, source=None):
    sessions = [Session(m) if source is None else Session.from_source(m, source) for _ in range(2)]
    for session in sessions:
        session.prefill(x, lengths)
    return sessions


@given(st.data())
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_a_step_is_what_the_ops_compute(data):
    drawn = data.draw(fields()) | {"logit_scale": data.draw(st.sampled_from([None, 0.5]))}
    m = model(**drawn, logit_softcap=data.draw(st.sampled_from([None, 3.0])))
    x, lengths, _ = data.draw(batches(longest=9))
    fast, slow = two_sessions(m, x, lengths, ids(len(x), 5, seed=2) if drawn["architecture"] != "decoder" else None)
    for t in range(4):
        new = ids(len(x), seed=t)
        got = fast.step(new)
        with minitx.reference():
            expected = slow.step(new)
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-10)
    assert (fast._program is not None) == (not drawn["experts"] and not drawn["qk_norm"])
    assert slow._program is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("position", ["learned", "rotary", "relative", "none"])
@pytest.mark.parametrize(("activation", "norm"), [("relu", "layer"), ("gelu", "layer"), ("swiglu", "rms")])
def test_the_bits_are_those_of_the_whole_pass(dtype, position, activation, norm):
    fields = {"kv_heads": 2, "max_length": 100, "d_model": 24, "d_ff": 40}
    m = model(dtype, position=position, activation=activation, norm=norm, **fields)
    x = ids(2, 100)
    session = Session(m)
    session.prefill(x[:, :60])
    whole = m(x).logits.numpy()
    for t in range(60, 100):
        np.testing.assert_array_equal(session.step(x[:, t]), whole[:, t])
    assert session._program is not None


def test_rows_come_and_go():
    m = model(position="rotary")
    x = ids(3, 8)
    session = Session(m, block=2)
    session.prefill(x[:, :4], [4, 2, 3])
    texts = [list(x[0, :4]), list(x[1, :2]), list(x[2, :3])]
    for rows in ([0, 1, 2], [2, 1, 0], [1, 1], [1], [0, 0, 0]):
        session.keep(rows)
        texts = [list(texts[r]) for r in rows]
        new = ids(len(rows), seed=len(texts[0]))
        logits = session.step(new)
        assert session._program.rows == len(rows)
        for text, token, row in zip(texts, new, logits):
            text.append(token)
            np.testing.assert_allclose(row, m([text]).logits.numpy()[0, -1], rtol=1e-10, atol=1e-10)


def test_weights_that_have_changed_are_laid_out_anew():
    m, x = model(), ids(1, 3)
    for _ in range(2):
        session = Session(m)
        session.prefill(x)
        np.testing.assert_allclose(session.step([1])[0], m([[*x[0], 1]]).logits.numpy()[0, -1], rtol=1e-10)
        m.decoder[0].feedforward.up.weight.data *= 1.5


def test_who_replaces_or_watches_an_op_is_asked():
    m, x = model(), ids(1, 3)
    session = Session(m)
    session.prefill(x)
    calls = []

    def mine(*args, **options):
        calls.append(1)
        return attention.definition(*args, **options)

    with attention.using(mine):
        session.step([1])
    assert len(calls) == 2  # layers
    with minitx.trace() as trace:
        session.step([1])
    assert "attention" in str(trace)
    assert session._program is None
    session.step([1])
    assert session._program is not None


def test_what_is_not_the_models_own_is_not_guessed():
    class Louder(FeedForward):
        def forward(self, x):
            return super().forward(x) * 2.0

    x = ids(1, 3)
    for change in ("subclass", "patched"):
        m = model(activation="relu")
        if change == "subclass":
            m.decoder[0].feedforward = Louder(8, 32, rng=np.random.default_rng(0)).astype(np.float64)
        else:
            old = m.decoder[0].feedforward.forward
            m.decoder[0].feedforward.forward = lambda x, old=old: old(x) * 2.0
        m.eval()
        session = Session(m)
        session.prefill(x)
        np.testing.assert_allclose(session.step([1])[0], m([[*x[0], 1]]).logits.numpy()[0, -1], rtol=1e-10)
        assert session._program is None


def test_who_patches_a_module_later_is_called():
    m, x, calls = model(), ids(1, 3), []
    session = Session(m)
    session.prefill(x)
    session.step([1])
    assert session._program is not None
    old = m.decoder[0].feedforward.forward
    m.decoder[0].feedforward.forward = lambda x: (calls.append(1), old(x))[1]
    session.step([1])
    assert calls == [1]


# ---------------------------------------------------------------------- addresses


def test_a_copy_has_addresses_of_its_own():
    """A copied list of instructions would write into the cache of the session that it was copied from."""
    m, x = model(position="rotary"), ids(2, 5)
    session = Session(m)
    session.prefill(x)
    session.step([1, 2])
    fork = copy.deepcopy(session)
    keys = session.cache[0].keys.x.copy()
    got = fork.step([3, 4])
    np.testing.assert_array_equal(session.cache[0].keys.x[:, :, 6], keys[:, :, 6])  # the slot of the fork's new token
    np.testing.assert_array_equal(session.step([3, 4]), got)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_lengths_of_any_integers_lead_to_the_same_slots(dtype):
    """An unsigned 64-bit length less a signed position is a float64 for NumPy, and no slot."""
    m, x = model(position="rotary"), ids(2, 5)
    session = Session(m)
    session.prefill(x)
    session.truncate(np.array([4, 2], dtype))
    assert session.lengths.dtype == np.int64
    got = session.step([1, 1])
    for b, n in enumerate((4, 2)):
        np.testing.assert_allclose(got[b], m([[*x[b, :n], 1]]).logits.numpy()[0, -1], rtol=1e-10)


def test_weights_in_column_order():
    m, x = model(), ids(1, 3)
    expected = m([[*x[0], 1]]).logits.numpy()[0, -1]
    for p in m.parameters():
        p.data = np.asfortranarray(p.data)
    session = Session(m)
    session.prefill(x)
    np.testing.assert_allclose(session.step([1])[0], expected, rtol=1e-10)
    assert session._program is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda block: setattr(block.feedforward, "down", Linear(32, 7, rng=np.random.default_rng(0))),
        lambda block: setattr(block.feedforward, "down", Linear(300, 8, rng=np.random.default_rng(0))),
        lambda block: setattr(block.attention_residual, "norm", LayerNorm(5)),
        lambda block: block.feedforward.astype(np.float32),
    ],
)
def test_what_does_not_fit_is_left_to_the_ops(change):
    """They say what is wrong; a kernel would read beyond the ends of arrays."""
    m = model(norm_placement="pre", activation="relu")
    session = Session(m)
    session._cache_of(1)  # with the layers that fit
    cache = session.cache
    change(m.decoder[1])
    m.eval()
    with pytest.raises(Unsupported):
        Program(m, cache)


def test_the_bits_do_not_depend_on_threads(monkeypatch):
    """Several threads go through the list together: each instruction finds what the one before has written."""
    for constants, name in ((parallel, "WORTH"), (parallel, "WAKE"), (program, "WORTH")):
        monkeypatch.setattr(constants, name, 0)
    before, m, logits = parallel.get_threads(), model(norm_placement="pre"), []
    try:
        for threads in sorted({1, min(2, pool.MOST)}):
            parallel.set_threads(threads)
            session = Session(m)
            session.prefill(ids(3, 5))
            steps = []
            for i in range(200):
                if i % 8 == 0:
                    session.truncate(np.full(3, 5))
                steps.append(session.step([i % V, 1, 2]))
            logits.append(steps)
    finally:
        parallel.set_threads(before)
    for each in logits[1:]:
        np.testing.assert_array_equal(each, logits[0])


def test_a_forked_child_goes_on(monkeypatch):
    """The threads of its parent are not there in the child."""
    if not hasattr(os, "fork") or pool.MOST < 2:
        pytest.skip("no fork, or one core only")
    before = parallel.get_threads()
    for constants, name in ((parallel, "WORTH"), (parallel, "WAKE"), (program, "WORTH")):
        monkeypatch.setattr(constants, name, 0)
    parallel.set_threads(2)
    try:
        session = Session(model())
        session.prefill(ids(2, 5))
        session.step([1, 2])
        assert pool._threads
        child = os.fork()
        if child == 0:
            try:
                session.step([1, 2])
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        parallel.set_threads(before)


def test_a_model_that_is_gone_leaves_nothing():
    m, x = model(), ids(1, 3)
    m.mine = m.decode  # which knows the model
    session = Session(m)
    session.prefill(x)
    session.step([1])
    seen = weakref.ref(m)
    del m, session
    gc.collect()
    assert seen() is None
