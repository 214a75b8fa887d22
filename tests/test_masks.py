"""Masks: each one against a loop over (row, query, key) that states its rule, and every combination as intervals."""
import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import Tensor
from minitx.masks import (
    allowed,
    as_mask,
    boolean,
    causal,
    documents,
    full,
    padding,
    query_positions,
    spans,
    visible_keys,
    window,
)


def by_rule(rule, B, T_q, T_k, query_offset=None):
    """rule(b, p, j): may the query at position p of row b see key j?"""
    offset = np.broadcast_to(T_k - T_q if query_offset is None else query_offset, (B,))
    out = np.zeros((B, T_q, T_k), bool)
    for b, i, j in np.ndindex(out.shape):
        out[b, i, j] = rule(b, i + offset[b], j)
    return out


def same(mask, rule, B=2, T_q=3, T_k=5, query_offset=None):
    expected = by_rule(rule, B, T_q, T_k, query_offset)
    got = np.broadcast_to(mask.dense(B, T_q, T_k, query_offset), expected.shape)
    np.testing.assert_array_equal(got, expected)


def test_full():
    same(full(), lambda b, p, j: True)


@pytest.mark.parametrize("offset", [None, 0, 2, -1, [0, 4]])
@pytest.mark.parametrize(("T_q", "T_k"), [(3, 5), (5, 3), (5, 5), (1, 7)])
def test_causal_and_window(T_q, T_k, offset):
    same(causal(), lambda b, p, j: j <= p, 2, T_q, T_k, offset)
    same(window(3), lambda b, p, j: p - 3 < j <= p, 2, T_q, T_k, offset)


def test_padding_left_and_right():
    same(padding([3, 5]), lambda b, p, j: j < [3, 5][b])
    same(padding([3, 0], side="left"), lambda b, p, j: j >= 5 - [3, 0][b])


def test_documents():
    ids = [[4, 4, 1, 1, 1], [0, 2, 2, 2, 7]]
    same(documents(ids), lambda b, p, j: ids[b][p] == ids[b][j], T_q=5)
    same(documents(ids[0]), lambda b, p, j: ids[0][p] == ids[0][j], T_q=5)
    same(documents(ids) & causal(), lambda b, p, j: ids[b][p] == ids[b][j] and j <= p, T_q=2, query_offset=[1, 3])
    same(documents(ids[0]) & causal(), lambda b, p, j: ids[0][p] == ids[0][j] and j <= p, T_q=2, query_offset=[1, 3])


@st.composite
def combinations(draw):
    """A combination of masks, the rule that says the same, and B, T_q, T_k, query_offset."""
    B, T_k = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    T_q = draw(st.integers(0, T_k))
    among = st.integers(0, T_k - T_q)  # documents want every query among the keys
    offset = draw(st.one_of(st.none(), among, st.lists(among, min_size=B, max_size=B).map(np.array)))
    lengths = draw(st.lists(st.integers(0, T_k), min_size=B, max_size=B))
    steps = draw(st.lists(st.lists(st.booleans(), min_size=T_k, max_size=T_k), min_size=B, max_size=B))
    ids = np.cumsum(steps, axis=1)
    w = draw(st.integers(1, 8))
    choices = {
        "full": (full(), lambda b, p, j: True),
        "causal": (causal(), lambda b, p, j: j <= p),
        "window": (window(w), lambda b, p, j: p - w < j <= p),
        "right": (padding(lengths), lambda b, p, j: j < lengths[b]),
        "left": (padding(lengths, "left"), lambda b, p, j: j >= T_k - lengths[b]),
        "documents": (documents(ids), lambda b, p, j: ids[b, p] == ids[b, j]),
    }
    names = draw(st.lists(st.sampled_from(list(choices)), min_size=1, max_size=5))
    mask, _ = choices[names[0]]
    for name in names[1:]:
        mask = mask & choices[name][0]
    return mask, lambda b, p, j: all(choices[n][1](b, p, j) for n in names), B, T_q, T_k, offset


@settings(deadline=None)
@given(combinations())
def test_every_combination_is_one_interval_per_query(drawn):
    mask, rule, B, T_q, T_k, offset = drawn
    same(mask, rule, B, T_q, T_k, offset)
    lo, hi = mask.intervals(B, T_q, T_k, offset)
    assert lo.dtype == hi.dtype == np.int64
    assert lo.shape in ((B, T_q), (1, T_q))
    assert hi.shape in ((B, T_q), (1, T_q))
    assert ((lo >= 0) & (lo <= hi) & (hi <= T_k)).all()
    j = np.arange(T_k)
    spanned = (lo[:, :, None] <= j) & (j < hi[:, :, None])
    np.testing.assert_array_equal(np.broadcast_to(spanned, (B, T_q, T_k)), by_rule(rule, B, T_q, T_k, offset))


def test_no_batch_axis_where_nothing_depends_on_the_row():
    assert causal().dense(7, 3, 5).shape == (1, 3, 5)
    assert (causal() & padding([1, 2])).dense(2, 3, 5).shape == (2, 3, 5)
    assert causal().intervals(7, 3, 5, query_offset=np.arange(7))[0].shape == (7, 3)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_no_queries_no_keys(shape):
    for mask in (full() & causal() & window(2), padding([0, 0]), causal() & np.ones((1, *shape), bool)):
        assert mask.dense(2, *shape).shape[1:] == shape
    assert documents(np.zeros(0, int)).dense(1, 0, 0).shape == (1, 0, 0)


# ---------------------------------------------------------------------- boolean arrays


def test_boolean_arrays_take_part():
    rng = np.random.default_rng(0)
    array = rng.random((2, 3, 5)) < 0.5
    expected = array & causal().dense(2, 3, 5)
    for mask in (causal() & array, array & causal(), causal() & boolean(array)):
        np.testing.assert_array_equal(mask.dense(2, 3, 5), expected)
        assert mask.intervals(2, 3, 5) is None


@pytest.mark.parametrize(
    "shape", [(3, 5), (1, 5), (2, 3, 5), (1, 3, 5), (2, 1, 5), (2, 7, 3, 5), (1, 7, 1, 5), (2, 1, 1, 5)]
)
def test_boolean_shapes_mean_what_they_say(shape):
    """Three axes are (batch, query, key) and never (head, query, key)."""
    array = np.random.default_rng(1).random(shape) < 0.5
    got = allowed(array, 2, 7, 3, 5)
    four = array[None, None] if array.ndim == 2 else array[:, None] if array.ndim == 3 else array
    np.testing.assert_array_equal(np.broadcast_to(got, (2, 7, 3, 5)), np.broadcast_to(four, (2, 7, 3, 5)))


@pytest.mark.parametrize("shape", [(5,), (2, 5), (5, 3), (7, 3, 5), (2, 3, 1), (2, 3, 3, 5), (1, 2, 7, 3, 5)])
def test_boolean_shapes_that_cannot_be_meant(shape):
    with pytest.raises(ValueError, match=r"boolean mask is \(T_q, T_k\)|the mask has 3 heads"):
        allowed(np.ones(shape, bool), 2, 7, 3, 5)


def test_one_line_of_keys_per_row_is_named():
    with pytest.raises(ValueError, match=r"write mask\[:, None, :\]"):
        allowed(np.ones((2, 5), bool), 2, 7, 3, 5)


def test_heads_meet_masks_without_heads():
    per_head = np.random.default_rng(2).random((1, 7, 3, 5)) < 0.5
    mask = causal() & padding([3, 5]) & per_head
    expected = per_head & (causal() & padding([3, 5])).dense(2, 3, 5)[:, None]
    np.testing.assert_array_equal(mask.dense(2, 3, 5), expected)


def test_visible_keys():
    seen = visible_keys(allowed(causal() & padding([2, 5]) & window(3), 2, 7, 2, 5))
    np.testing.assert_array_equal(seen, [[False, True, False, False, False], [False, True, True, True, True]])


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float32, np.float64])
def test_pitfall_31_only_booleans_are_masks(dtype):
    with pytest.raises(TypeError, match=r"True = may see.*bias="):
        as_mask(np.ones((3, 5), dtype))


# ---------------------------------------------------------------------- the named faults


def test_pitfall_03_window_counts_the_query_itself():
    np.testing.assert_array_equal(
        window(2).dense(1, 4, 4)[0], [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    )


@settings(deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=4), st.integers(1, 4))
def test_pitfall_03_chunks_of_any_size_see_what_the_whole_sees(sizes, w):
    T = sum(sizes)
    whole = window(w).dense(1, T, T)[0]
    done = 0
    for size in sizes:
        part = window(w).dense(1, size, done + size)[0]
        np.testing.assert_array_equal(part, whole[done : done + size, : done + size])
        done += size


def test_pitfall_04_causal_bottom_right():
    np.testing.assert_array_equal(causal().dense(1, 2, 5)[0], [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    np.testing.assert_array_equal(causal().dense(1, 5, 2)[0], [[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]])


def test_pitfall_10_documents_do_not_meet():
    mask = (documents([0, 0, 0, 1, 1]) & causal()).dense(1, 5, 5)[0]
    assert not mask[3:, :3].any()
    assert not mask[:3, 3:].any()
    np.testing.assert_array_equal(mask[3:, 3:], causal().dense(1, 2, 2)[0])


# ---------------------------------------------------------------------- objects


def test_repr():
    assert repr(causal() & padding([3, 5])) == "causal & padding([3, 5])"
    assert repr(full() & (window(4) & padding([1], side="left"))) == "full & window(4) & padding([1], side='left')"
    assert repr(documents([0, 0, 1]) & np.ones((3, 3), bool)) == "documents([0, 0, 1]) & boolean(3, 3)"
    assert repr(padding(np.arange(3, 35))) == "padding((32,) numbers from 3 to 34)"


def test_masks_do_not_change_when_their_source_does():
    lengths, array, ids = np.array([3, 5]), np.ones((3, 5), bool), np.array([0, 0, 1, 1, 1])
    masks = padding(lengths), boolean(array), documents(ids)
    before = [m.dense(2, 3, 5).copy() for m in masks]
    lengths[:], array[:], ids[:] = 1, False, 0
    for mask, dense in zip(masks, before):
        np.testing.assert_array_equal(mask.dense(2, 3, 5), dense)
    with pytest.raises(ValueError, match="read-only"):
        masks[0].lengths[0] = 1


def test_masks_can_be_copied():
    mask = causal() & padding([3, 5]) & window(2) & np.ones((3, 5), bool)
    for other in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert repr(other) == repr(mask)
        np.testing.assert_array_equal(other.dense(2, 3, 5), mask.dense(2, 3, 5))


# ---------------------------------------------------------------------- errors: the rule, what arrived, the fix


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None])
def test_window_size(size):
    with pytest.raises(ValueError, match="counts the query itself, so at least 1"):
        window(size)


def test_padding_errors():
    with pytest.raises(TypeError, match=r"padding: lengths are integers of shape \(B,\), not float64 of shape \(2,\)"):
        padding([1.0, 2.0])
    with pytest.raises(TypeError, match=r"of shape \(\)"):
        padding(3)
    with pytest.raises(TypeError, match="bool"):
        padding([True, False])
    with pytest.raises(ValueError, match=r"lengths\[1\] is -2"):
        padding([1, -2])
    with pytest.raises(ValueError, match="not 'middle'"):
        padding([1], side="middle")
    with pytest.raises(ValueError, match=r"lengths\[1\] is 6, and there are only 5 keys"):
        padding([3, 6]).dense(2, 3, 5)
    with pytest.raises(ValueError, match=r"padding\(\[3, 5\]\) is for a batch of 2, and this batch is 7"):
        (causal() & padding([3, 5])).intervals(7, 3, 5)


def test_documents_errors():
    with pytest.raises(ValueError, match="document 4 of row 1 is in several pieces"):
        documents([[1, 1, 1], [4, 0, 4]])
    with pytest.raises(ValueError, match="one id per key, and there are 5 keys"):
        documents([0, 0, 1]).dense(1, 3, 5)
    with pytest.raises(ValueError, match="position 5 is not among the 5 keys"):
        documents([0, 0, 1, 1, 1]).dense(1, 3, 5, query_offset=3)
    with pytest.raises(ValueError, match="position -2 is not among the 3 keys"):
        documents([0, 0, 1]).dense(1, 5, 3)
    with pytest.raises(ValueError, match="for a batch of 2"):
        documents([[0, 0, 1], [0, 1, 1]]).dense(3, 3, 3)
    with pytest.raises(TypeError, match="documents: ids are integers"):
        documents([0.0, 1.0])


@pytest.mark.parametrize("offset", [1.5, [1, 2, 3], [[1, 2]], "1", True])
def test_query_offset_errors(offset):
    with pytest.raises(ValueError, match="query_offset, the position of the first query"):
        query_positions(2, 3, 5, offset)


@pytest.mark.parametrize("offset", [-9, 9, [0, 9], 10**6])
@pytest.mark.parametrize("mask", [causal(), window(2), full(), None])
def test_a_query_offset_far_outside_is_refused(mask, offset):
    with pytest.raises(ValueError, match="is far outside of 5 keys"):
        allowed(mask, 2, 1, 3, 5, offset)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8])
def test_a_query_offset_of_any_integer_type(dtype):
    np.testing.assert_array_equal(query_positions(2, 3, 5, np.array([1, 2], dtype)), [[1, 2, 3], [2, 3, 4]])


def test_query_offset_is_checked_without_a_mask():
    with pytest.raises(ValueError, match="query_offset, the position"):
        allowed(None, 2, 1, 3, 5, "x")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: as_mask(causal), r"the class causal: write causal\(\)"),
        (lambda: causal() & full, r"write full\(\)"),
        (lambda: padding & causal(), r"write padding\(\)"),
        (lambda: as_mask("causal"), r"'causal' is no mask; .* causal\(\)"),
        (lambda: causal() & None, "None is no mask"),
        (lambda: as_mask([causal(), window(2)]), "several masks are combined with &"),
    ],
)
def test_what_is_no_mask(make, words):
    with pytest.raises(TypeError, match=words):
        make()


def test_heads_of_two_boolean_masks():
    two, three, one = (boolean(np.ones((2, heads, 3, 5), bool)) for heads in (2, 3, 1))
    with pytest.raises(ValueError, match="the masks have 2 and 3 heads"):
        (two & one & three).dense(2, 3, 5)
    assert (two & one).dense(2, 3, 5).shape == (2, 2, 3, 5)


@pytest.mark.parametrize(
    ("mask", "name"),
    [(window(2), "size"), (padding([1]), "lengths"), (padding([1]), "rows"), (documents([0, 1]), "ids"),
     (boolean(np.ones((2, 2), bool)), "array"), (causal() & full(), "parts")],
)  # fmt: skip
def test_a_mask_does_not_change(mask, name):
    with pytest.raises(AttributeError, match=f"a mask does not change: .* the {name} of"):
        setattr(mask, name, 5)
    with pytest.raises(AttributeError):
        mask.other = 5
    for clone in (copy.copy(mask), copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert repr(clone) == repr(mask)


def test_arrays_of_a_mask_are_read_only():
    for a in (documents([0, 1]).start, documents([0, 1]).end, padding([1]).lengths):
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 0


def test_integer_and_boolean_tensors():
    def tensor(values):
        return Tensor(np.array(values))

    same_as = [
        (padding(tensor([1, 3])), padding([1, 3]), None),
        (documents(tensor([0, 0, 1])), documents([0, 0, 1]), None),
        (as_mask(tensor([[True, False, True]])), boolean([[True, False, True]]), None),
        (causal(), causal(), tensor([0, 1])),
    ]
    for a, b, offset in same_as:
        plain = None if offset is None else offset.numpy()
        np.testing.assert_array_equal(a.dense(2, 3, 3, offset), b.dense(2, 3, 3, plain))
    with pytest.raises(TypeError, match="lengths are integers"):
        padding(Tensor([1.0, 2.0]))
    assert padding([]).lengths.shape == (0,)


def test_spans_are_what_they_say_and_stay_inside():
    lo, hi = np.array([[0, 1]]), np.array([[2, 3]])
    np.testing.assert_array_equal(spans(lo, hi).dense(1, 2, 3)[0], [[True, True, False], [False, True, True]])
    for low, high in ((lo - 1, hi), (lo, hi + 1)):
        with pytest.raises(ValueError, match="bounds are 0 to 3"):
            spans(low, high).intervals(1, 2, 3)
    with pytest.raises(ValueError, match="as many rows and queries"):
        spans(lo, hi).intervals(1, 3, 3)
