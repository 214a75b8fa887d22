"""The KV cache: what is read in pieces, in batches, after going back or changing rows, equals reading it all alone."""
import numpy as np
import pytest
from cache_drawn import V, batches, cuts, fields, model, poison, poison_behind, row
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minitx
from minitx.generation.cache import KVCache
from minitx.generation.session import Session, incremental
from minitx.masks import padding, spans
from minitx.models.cost import cache_elements

EXACT = {"rtol": 1e-10, "atol": 1e-10}
slow_to_draw = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, V, shape)


def full(m, ids, source=None):
    """Logits (T, V) of one row, computed at once and without a cache."""
    return (m(ids) if source is None else m(source, ids)).logits.numpy()[0]


# ---------------------------------------------------------------------- incremental = full


@given(st.data())
@settings(slow_to_draw, max_examples=60)
def test_in_pieces_and_in_batches_equals_alone_and_at_once(data):
    """Every architecture, position method, window, number of heads, side of padding, chunking and block."""
    m = model(**data.draw(fields()))
    x, lengths, side = data.draw(batches())
    chunks = data.draw(cuts(x.shape[1]))
    options = {"block": data.draw(st.sampled_from([1, 2, 3, 64])), "lengths": lengths, "side": side}
    has_source = m.config.architecture == "encoder-decoder"
    s = ids(len(x), 5, seed=3)
    s_lengths = np.array([data.draw(st.integers(1, 5)) for _ in x])
    if has_source:
        options |= {"source": s, "source_lengths": s_lengths}
    got = incremental(m, x, chunks, **options)
    with poison():
        poisoned = incremental(m, x, chunks, **options)
    np.testing.assert_array_equal(poisoned, got)  # bit for bit
    for b, n in enumerate(lengths):
        alone = full(m, row(x, lengths, side, b), row(s, s_lengths, side, b) if has_source else None)
        np.testing.assert_allclose(got[b, :n], alone, **EXACT)
        assert not got[b, n:].any()


@given(st.data())
@settings(slow_to_draw, max_examples=15)
def test_the_definitions_do_the_same(data):
    m = model(**data.draw(fields()))
    x, lengths, side = data.draw(batches(longest=7))
    s = ids(len(x), 4, seed=3) if m.config.architecture == "encoder-decoder" else None
    with minitx.reference(), poison():
        got = incremental(m, x, data.draw(cuts(x.shape[1])), lengths=lengths, side=side, block=2, source=s)
        for b, n in enumerate(lengths):
            alone = full(m, row(x, lengths, side, b), None if s is None else s[b : b + 1])
            np.testing.assert_allclose(got[b, :n], alone, **EXACT)


@pytest.mark.parametrize("chunk", [1, 7, 64, 70])
@pytest.mark.parametrize("window", [None, 5, 64, 100])
def test_the_kernels_give_the_bits_of_the_whole_pass(chunk, window):
    """Also where a window forgets: whole blocks of 64, so that a key keeps its place among the kernel's blocks."""
    m = model(np.float32, position="rotary", kv_heads=2, window=window, max_length=300)
    x = ids(2, 210)
    chunks = [chunk] * (210 // chunk) + [210 % chunk] * (210 % chunk > 0)
    np.testing.assert_array_equal(incremental(m, x, chunks), m(x).logits.numpy())


def test_pitfall_32_right_padded_prompts():
    """The next token follows the last real one, at its own position, and the padding is never attended to."""
    m = model(position="learned")
    x = ids(2, 4)
    session = Session(m)
    first = session.prefill(x, [2, 4])
    np.testing.assert_allclose(first[0], full(m, x[:1, :2])[-1], **EXACT)
    said = first.argmax(-1)
    again = session.step(said)
    np.testing.assert_allclose(again[0], full(m, np.append(x[0, :2], said[0])[None])[-1], **EXACT)
    np.testing.assert_array_equal(session.lengths, [3, 5])


@pytest.mark.parametrize("chunks", [[7], [1] * 7, [3, 4], [2, 5], [6, 1], [4, 1, 2]])
def test_pitfall_03_a_window_forgets_exactly(chunks):
    """T = 7 and W = 3, whatever the pieces, one longer than the window among them; T = W and T = W + 1 on the way."""
    m = model(position="none", window=3)
    x = ids(2, 7)
    for block in (1, 2):
        with poison():
            got = incremental(m, x, chunks, block=block)
        np.testing.assert_allclose(got, m(x).logits.numpy(), **EXACT)


def test_the_padding_may_be_said_in_several_ways():
    m = model(position="alibi")
    x = ids(2, 5)
    expected = Session(m).prefill(x, [5, 3], side="left")
    real = np.array([[True] * 5, [False] * 2 + [True] * 3])
    for mask in (padding([5, 3], "left"), real):
        np.testing.assert_array_equal(Session(m).prefill(x, mask=mask), expected)
    right = np.array([x[0], np.append(x[1, 2:], [9, 9])])
    np.testing.assert_array_equal(Session(m).prefill(right, [5, 3]), expected)  # one and the same cache


def test_prompts_read_in_pieces_when_some_have_ended():
    m = model(position="rotary")
    x, lengths = ids(2, 6), np.array([6, 2])
    session = Session(m)
    for start in (0, 2, 4):
        logits = session.prefill(x[:, start : start + 2], np.clip(lengths - start, 0, 2))
    np.testing.assert_allclose(logits, Session(m).prefill(x, lengths), **EXACT)


def test_a_model_in_training_mode_is_read_without_dropout_and_left_as_it_was():
    m = model(dropout=0.5).train()
    x = ids(1, 3)
    logits = Session(m).prefill(x)
    assert m.training
    assert m.decoder[0].attention.training
    np.testing.assert_allclose(logits, full(m.eval(), x)[-1:], **EXACT)


# ---------------------------------------------------------------------- encoder-decoder


def test_the_source_is_read_once():
    m = model(architecture="encoder-decoder", position="relative", kv_heads=2)
    source, x = ids(2, 5, seed=1), ids(2, 4)
    memory = m.encode(source, mask=padding([5, 3]))
    sessions = [
        Session(m, memory=memory, memory_mask=padding([5, 3])),
        Session.from_source(m, source, [5, 3]),
        Session.from_source(m, np.array([source[0], np.roll(source[1], 2)]), [5, 3], side="left"),
    ]
    called = []
    for block in m.decoder:
        block.cross_attention.key.forward = lambda x: called.append(x)
    expected = [full(m_, x[b : b + 1], source[b : b + 1, :n])[-1] for m_, b, n in ((fresh(m), 0, 5), (fresh(m), 1, 3))]
    for session in sessions:
        np.testing.assert_allclose(session.prefill(x), expected, **EXACT)
    assert not called


def fresh(m):
    """The same model again, its layers untouched."""
    other = model(**{k: getattr(m.config, k) for k in ("architecture", "position", "kv_heads")})
    other.load_state_dict(m.state_dict())
    return other


def test_who_calls_the_model_with_a_cache_gives_no_mask():
    m = model()
    cache = KVCache(m, 2)
    cache.begin(3)
    with pytest.raises(ValueError, match=r"a cache knows which tokens are padding, .* takes no mask: causal & padding"):
        m(ids(2, 3), mask=padding([3, 2]), cache=cache)
    whole = m(ids(2, 3), cache=cache).logits.numpy()
    cache.commit()
    np.testing.assert_allclose(whole, m(ids(2, 3)).logits.numpy(), **EXACT)
    np.testing.assert_array_equal(cache.lengths, [3, 3])


def test_masks_by_their_intervals():
    mask = spans(np.array([[0, 1], [2, 0]]), np.array([[1, 3], [2, 2]]))
    expected = [[[1, 0, 0], [0, 1, 1]], [[0, 0, 0], [1, 1, 0]]]
    np.testing.assert_array_equal(mask.dense(2, 2, 3), np.array(expected, bool))
    with pytest.raises(ValueError, match=r"spans\(2, 2\) is for as many rows and queries, and here are 2 and 3"):
        mask.intervals(2, 3, 3)


# ---------------------------------------------------------------------- other rows, and back


@given(st.data())
@settings(slow_to_draw, max_examples=30)
def test_rows_change_places_fork_stop_and_go_back(data):
    """A session, and beside it the texts that its rows should have: after every act the logits are the texts'."""
    m = model(**data.draw(fields()))
    x, lengths, side = data.draw(batches(longest=6))
    has_source = m.config.architecture == "encoder-decoder"
    sources = ids(len(x), 4, seed=5)
    texts = [list(row(x, lengths, side, b)[0]) for b in range(len(x))]
    of = list(range(len(x)))  # the source of each row
    with poison():
        options = {"block": data.draw(st.sampled_from([1, 2, 64]))}
        session = Session.from_source(m, sources, **options) if has_source else Session(m, **options)
        session.prefill(x, lengths, side=side)
        for _ in range(data.draw(st.integers(1, 5))):
            act = data.draw(st.sampled_from(["step", "step", "rows", "back", "prefill"]))
            if act == "rows":
                rows = np.array(data.draw(st.lists(st.integers(0, len(texts) - 1), min_size=1, max_size=4)))
                session.reorder(rows)
                texts, of = [list(texts[r]) for r in rows], [of[r] for r in rows]
                continue
            if act == "back" and m.config.window is None:
                keep = np.array([data.draw(st.integers(1, len(text))) for text in texts])
                session.truncate(keep)
                texts = [text[:n] for text, n in zip(texts, keep)]
                continue
            poison_behind(session.cache)
            n = data.draw(st.integers(1, 4)) if act == "prefill" else 1
            new = ids(len(texts), n, seed=data.draw(st.integers(0, 5)))
            logits = session.prefill(new) if act == "prefill" else session.step(new[:, 0])
            texts = [text + list(more) for text, more in zip(texts, new)]
            for b, text in enumerate(texts):
                alone = full(m, np.array([text]), sources[of[b] : of[b] + 1] if has_source else None)
                np.testing.assert_allclose(logits[b], alone[-1], **EXACT)
    np.testing.assert_array_equal(session.lengths, [len(text) for text in texts])


def test_a_window_goes_back_as_far_as_it_remembers():
    m = model(window=4, position="rotary")
    session = Session(m, block=2)
    x = ids(1, 20)
    for n in range(20):
        session.prefill(x[:, n : n + 1])
    first = session.cache.tracks[4].first[0]
    assert 0 < first <= 17
    with pytest.raises(ValueError, match=rf"cannot go back to 10 tokens: with a window of 4 .* before {first} are"):
        session.truncate([10])
    session.truncate(first + 3)
    np.testing.assert_allclose(session.step(x[:, first + 3])[0], full(m, x[:, : first + 4])[-1], **EXACT)


def test_finished_rows_take_no_memory():
    session = Session(model(position="none"))
    session.prefill(ids(4, 5))
    before = session.nbytes, session.allocated
    session.keep([2, 0])
    assert (session.nbytes, session.allocated) == (before[0] // 2, before[1] // 2)


def test_what_raises_leaves_the_cache_as_it_was():
    m = model(position="learned", max_length=6)
    session, x = Session(m), ids(2, 6)
    session.prefill(x, [6, 3])
    with pytest.raises(IndexError, match="position 6 arrived"):
        session.step([1, 1])
    np.testing.assert_array_equal(session.lengths, [6, 3])
    session.keep([1])  # the row that failed goes, and the other goes on
    np.testing.assert_allclose(session.step([4])[0], full(m, np.append(x[1, :3], 4)[None])[-1], **EXACT)


# ---------------------------------------------------------------------- bytes


@given(st.data())
@settings(slow_to_draw, max_examples=20)
def test_bytes_are_those_of_the_cost_table(data):
    m = model(np.float32, **data.draw(fields()))
    B, T, S = 2, data.draw(st.integers(1, 12)), 3
    storage, size = data.draw(st.sampled_from([(None, 4), ("int8", 1)]))
    block = data.draw(st.sampled_from([1, 2, 64]))
    options = {"cache_dtype": storage, "block": block}
    has_source = m.config.architecture == "encoder-decoder"
    session = Session.from_source(m, ids(B, S), **options) if has_source else Session(m, **options)
    for t in range(T):
        session.prefill(ids(B, 1, seed=t))
    assert session.nbytes == size * cache_elements(m.config, B, T, S)
    assert session.nbytes <= session.allocated


@pytest.mark.parametrize("chunk", [1, 5, 100, 300])
def test_a_window_bounds_the_memory(chunk):
    m, window = model(np.float32, window=20, position="rotary", max_length=400), 20
    session = Session(m, block=8)
    for start in range(0, 300, chunk):
        session.prefill(ids(1, chunk, seed=start))
    per_slot = 2 * 4 * 2 * 4 * 2  # layers, bytes, keys and values, heads, width
    assert session.nbytes == per_slot * window
    assert session.allocated <= per_slot * (window + 2 * 8)


def test_gqa_and_layers_that_alternate():
    m = model(np.float32, window=4, window_every=2, kv_heads=1, position="none")
    session = Session(m)
    session.prefill(ids(1, 10))
    assert session.nbytes == 4 * 2 * 2 * (10 + 4)  # bytes, keys and values, width; one layer sees all, one four
    assert set(session.cache.tracks) == {None, 4}


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (lambda s: s.step([1]), "this session has 2 rows, and ids for 1 arrived"),
        (lambda s: s.step([[1], [1]]), r"integers of shape \(B,\), not int64 of shape \(2, 1\)"),
        (lambda s: s.step([0.5, 1.0]), "these are integers"),
        (lambda s: s.keep([0, 2]), r"rows are among 0 ... 1, and \[0, 2\] arrived"),
        (lambda s: s.keep(np.array([True, False])), "these are integers"),
        (lambda s: s.truncate([9, 1]), "truncate goes back: row 0 has 3 tokens, and cannot keep 9"),
        (lambda s: s.truncate([1, -1]), "row 1 has 3 tokens, and cannot keep -1"),
        (lambda s: s.prefill(ids(2, 3), [1]), "lengths are 2 integers"),
        (lambda s: s.prefill(ids(2, 3), [4, 1]), "row 0 has 3 places, so its length is between 0 and 3, not 4"),
        (lambda s: s.prefill(ids(2, 3), [1, 1], side="top"), "side says where the padding stands"),
        (lambda s: s.prefill(ids(2, 3), mask=np.array([[True, False, True]] * 2)), "padding stands on one side"),
        (lambda s: s.prefill(ids(2, 3), mask=np.ones((2, 3))), "the mask says which tokens are real"),
        (lambda s: s.prefill(ids(2, 3), [1, 1], mask=padding([1, 1])), "what is real is said once"),
    ],
)
def test_bad_input(act, words):
    session = Session(model())
    session.prefill(ids(2, 3))
    with pytest.raises((ValueError, IndexError), match=words):
        act(session)
    np.testing.assert_array_equal(session.lengths, [3, 3])


def test_bad_beginnings():
    m = model()
    with pytest.raises(ValueError, match="prompt 1 is empty: there is no token to go on from; begin with BOS"):
        (session := Session(m)).prefill(ids(2, 3), [2, 0])
    session.prefill(ids(1, 3))  # nothing was begun
    with pytest.raises(ValueError, match="prefill comes before step"):
        Session(m).step([1])
    with pytest.raises(ValueError, match="an encoder reads whole sequences"):
        Session(model(architecture="encoder", head="none"))
    with pytest.raises(ValueError, match="asks a language-model head for the next token; this is 'none'"):
        Session(model(head="none"))
    with pytest.raises(ValueError, match="linear attention sums its keys up"):
        Session(model(attention_kernel="linear"))
    with pytest.raises(ValueError, match=r"an encoder-decoder needs its sources: Session.from_source"):
        Session(model(architecture="encoder-decoder"))
    with pytest.raises(ValueError, match=r'own numbers \(None\) or "int8", not \'fp8\''):
        Session(m, cache_dtype="fp8").prefill(ids(1, 2))
    with pytest.raises(ValueError, match="block, by how many slots a cache grows"):
        Session(m, block=0).prefill(ids(1, 2))
    with pytest.raises(ValueError, match="chunks are whole numbers that sum to the 4 tokens"):
        incremental(m, ids(1, 4), [3, 2])


def test_no_rows_are_left():
    session = Session(model())
    session.prefill(ids(2, 3))
    session.keep([])
    assert session.step(np.zeros(0, np.int64)).shape == (0, V)
    assert session.nbytes == 0


def test_a_row_that_has_ended_keeps_its_latest_logits():
    m, x = model(), ids(2, 7)
    session = Session(m)
    session.prefill(x[:, :2])[:] = 0  # whoever writes into the logits does so into his own
    np.testing.assert_allclose(session.prefill(x[:, 2:3], [1, 0])[1], full(m, x[1:, :2])[-1], **EXACT)
    session.step(x[:, 3])
    session.all_logits(x[:, 4:6])
    seen = [*x[1, :2], *x[1, 3:6]]
    np.testing.assert_allclose(session.prefill(x[:, 6:], [1, 0])[1], full(m, np.array([seen]))[-1], **EXACT)
