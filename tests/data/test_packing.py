"""Several documents in one row, none of which notices the others."""
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor, masks
from minitx.data import IGNORED, PAD, Packed, best_fit, cut, next_token, pack
from minitx.models import Transformer, TransformerConfig
from minitx.ops import attention, cross_entropy

V = 13


def rng(seed=0):
    return np.random.default_rng(seed)


def documents(*lengths, seed=0):
    return [rng(seed + i).integers(3, V, n) for i, n in enumerate(lengths)]


def test_pack_by_hand():
    batch = pack([[5, 6, 7], [8, 9]], 6)
    np.testing.assert_array_equal(batch.ids, [[5, 6, 7, 8, 9, PAD]])
    np.testing.assert_array_equal(batch.documents, [[0, 0, 0, 1, 1, -1]])
    np.testing.assert_array_equal(batch.positions, [[0, 1, 2, 0, 1, 0]])
    np.testing.assert_array_equal(batch.targets, [[6, 7, IGNORED, 9, IGNORED, IGNORED]])
    assert isinstance(batch.mask, masks.documents)
    assert batch.tokens == 3
    assert {a.dtype for a in (batch.ids, batch.targets, batch.positions)} == {np.dtype(np.int64)}


def test_the_order_can_be_given():
    batch = pack([[5, 6, 7], [8, 9], [4]], 4, [[2, 0], [1]])
    np.testing.assert_array_equal(batch.ids, [[4, 5, 6, 7], [8, 9, PAD, PAD]])
    np.testing.assert_array_equal(batch.targets, [[IGNORED, 6, 7, IGNORED], [9, IGNORED, IGNORED, IGNORED]])
    with pytest.raises(ValueError, match="row 0 of length 4 has no room for document 0, of 3 ids"):
        pack([[5, 6, 7], [8, 9]], 4, [[1, 0]])


@given(lengths=st.lists(st.integers(0, 9), max_size=12), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=80)
def test_every_document_is_there_once_and_whole(lengths, seed):
    given_ = documents(*lengths, seed=seed)
    batch = pack(given_, 9)
    found = []
    for r in range(len(batch)):
        for k in range(batch.documents[r].max(initial=-1) + 1):
            at = np.flatnonzero(batch.documents[r] == k)
            np.testing.assert_array_equal(at, np.arange(at[0], at[-1] + 1))
            np.testing.assert_array_equal(batch.positions[r, at], np.arange(len(at)))
            ids = batch.ids[r, at]
            np.testing.assert_array_equal(batch.targets[r, at], [*ids[1:], IGNORED])
            found.append(ids.tolist())
    assert sorted(found) == sorted(d.tolist() for d in given_ if len(d))
    assert (batch.targets[batch.documents == -1] == IGNORED).all()
    assert batch.tokens == sum(max(n - 1, 0) for n in lengths)
    assert batch.positions.max(initial=0) < 9


def model(**changes):
    base = {"layers": 2, "d_model": 12, "heads": 3, "d_ff": 20, "vocab_size": V, "max_length": 16, "dropout": 0.0}
    return Transformer(TransformerConfig.gpt2(**base | changes), rng=rng()).astype(np.float64)


def test_pitfall_10_documents_do_not_touch_each_other():
    a, b = documents(3, 2)
    net, batch = model(), pack([a, b], 7)
    logits = net(batch.ids, mask=batch.mask, positions=batch.positions).logits.numpy()
    for ids, place in ((a, slice(0, 3)), (b, slice(3, 5))):
        alone = net(ids[None]).logits.numpy()
        np.testing.assert_allclose(logits[:, place], alone, rtol=1e-12, atol=1e-12)
    changed = batch.ids.copy()
    changed[0, :3] = (changed[0, :3] + 1) % V
    after = net(changed, mask=batch.mask, positions=batch.positions).logits.numpy()
    np.testing.assert_array_equal(after[:, 3:5], logits[:, 3:5])
    assert (after[:, :3] != logits[:, :3]).all()


def test_pitfall_10_loss_and_gradient_stay_inside():
    """The mean over 2 + 1 targets; the loss of b has no gradient in the embeddings of a."""
    a, b = np.array([3, 4, 5]), np.array([6, 7])
    net, batch = model(tie_embeddings=False), pack([a, b], 5)
    logits = net(batch.ids, mask=batch.mask, positions=batch.positions).logits
    loss = cross_entropy(logits, batch.targets)
    alone = [next_token(ids[None]) for ids in (a, b)]
    sums = [cross_entropy(net(d.ids).logits, d.targets, reduction="sum").item() for d in alone]
    assert batch.tokens == 3
    assert loss.item() == pytest.approx(sum(sums) / 3, rel=1e-12)
    of_b = np.where(batch.documents == 1, batch.targets, IGNORED)
    cross_entropy(logits, of_b).backward()
    table = net.embedding.weight.grad
    np.testing.assert_array_equal(table[[3, 4, 5]], 0)
    assert (table[6] != 0).all()


def test_resetting_positions_alone_is_not_enough():
    a, b = documents(3, 2)
    net, batch = model(), pack([a, b], 5)
    alone = net(b[None]).logits.numpy()
    leaking = net(batch.ids, positions=batch.positions).logits.numpy()[:, 3:]
    assert np.abs(leaking - alone).max() > 1e-3


def test_with_a_sliding_window():
    q, k, v = (Tensor(rng(i).standard_normal((1, 1, 5, 3))) for i in range(3))
    batch = pack(documents(3, 2), 5)
    mask = masks.causal() & batch.mask & masks.window(2)
    y = attention(q, k, v, mask=mask).numpy()
    for place in (slice(0, 3), slice(3, 5)):
        alone = attention(*(t[:, :, place] for t in (q, k, v)), mask=masks.causal() & masks.window(2)).numpy()
        np.testing.assert_allclose(y[:, :, place], alone, rtol=1e-12)


def test_split_keeps_everything():
    batch = pack(documents(3, 5, 4, 2, 5), 6)
    parts = batch.split(2)
    assert all(isinstance(part, Packed) for part in parts)
    for name in ("ids", "targets", "positions", "documents"):
        np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in parts]), getattr(batch, name))
    assert sum(part.tokens for part in parts) == batch.tokens


# ---------------------------------------------------------------------- which documents share a row


@given(lengths=st.lists(st.integers(0, 20), max_size=40))
@settings(deadline=None)
def test_best_fit_is_a_packing(lengths):
    rows = best_fit(lengths, 20)
    assert sorted(i for row in rows for i in row) == [i for i, n in enumerate(lengths) if n]
    sums = [sum(lengths[i] for i in row) for row in rows]
    assert all(0 < s <= 20 for s in sums)
    assert sum(s <= 10 for s in sums) <= 1  # two half-empty rows would have been one


def test_best_fit_by_hand():
    assert best_fit([3, 5, 2, 4, 1], 6) == [[1, 4], [3, 2], [0]]
    assert best_fit([], 6) == []
    with pytest.raises(ValueError, match=r"document 1 has 7 ids, and a row 6 places; cut\(document, 6\)"):
        best_fit([1, 7], 6)


def test_many_documents_do_not_take_long():
    lengths = rng().integers(1, 2049, 20_000).tolist()
    rows = best_fit(lengths, 2048)
    assert sum(lengths) / (2048 * len(rows)) > 0.99


@given(n=st.integers(0, 30), length=st.integers(2, 9))
def test_cut_predicts_every_id_once(n, length):
    document = np.arange(n)
    pieces = cut(document, length)
    assert all(len(piece) <= length for piece in pieces)
    assert [i for piece in pieces for i in piece[1:].tolist()] == list(range(1, n))


def test_refused():
    with pytest.raises(ValueError, match="at least 2 ids"):
        cut([1, 2, 3], 1)
    with pytest.raises(ValueError, match="document 1 is float64"):
        pack([[1], [0.5]], 4)
    with pytest.raises(ValueError, match="document 0 is int64"):
        pack([[[1]]], 4)
