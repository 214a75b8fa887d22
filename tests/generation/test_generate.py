"""`generate`: each row as if it were alone, whatever else is in the batch, and whatever goes wrong there."""
import doctest
import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minitx import masks
from minitx.data import EOS, CharTokenizer
from minitx.generation import Session, Uncached, answer, evaluating, generate, greedy
from minitx.generation.filters import log_softmax
from minitx.generation.prefix import PrefixCache
from minitx.generation.stopping import REASONS
from minitx.models import Transformer, TransformerConfig

V = 13
LETTERS = CharTokenizer("abcdefghij")


def sharp(config, scale):
    """Random weights large enough for the rows of a batch to get different answers, in float64."""
    model = Transformer(config, rng=np.random.default_rng(5)).astype(np.float64)
    rng = np.random.default_rng(11)
    for p in model.parameters():
        if p.ndim == 2:
            p.data = rng.normal(0, scale, p.shape)
    return model


def decoder(**changes):
    values = {"layers": 2, "d_model": 12, "heads": 3, "vocab_size": V, "max_length": 23, "dropout": 0.3}
    return sharp(TransformerConfig.gpt2(**(values | {"tie_embeddings": False} | changes)), 0.5)


def encoder_decoder(**changes):
    values = {"layers": 2, "d_model": 12, "heads": 3, "vocab_size": V, "max_length": 23, "dropout": 0.3}
    return sharp(TransformerConfig(**(values | {"tie_embeddings": False} | changes)), 0.2)


BOTH = pytest.mark.parametrize("make", [decoder, encoder_decoder])
PROMPTS = ["abc", "j", "hgfedcb", "aa", "cab"]
DRAWN = {"temperature": 1.3, "top_k": 9, "top_p": 0.95, "repetition_penalty": 1.1, "seed": 3}


def same(a, b):
    assert a.text == b.text
    assert a.finish == b.finish
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_allclose(a.log_probs, b.log_probs, rtol=1e-9)


# ---------------------------------------------------------------------- what comes out


@BOTH
def test_greedy_is_greedy(make):
    model = make()
    rows = [LETTERS.encode(text) for text in PROMPTS]
    got = generate(model, rows, max_new=7)
    for row, a in zip(rows, got):
        (expected,) = greedy(model, row[None], max_new=7, cache=False)
        np.testing.assert_array_equal(a.ids, expected)
        assert a.text is None
        assert a.finish == ("length" if len(expected) == 7 else "eos")


@BOTH
@pytest.mark.parametrize("options", [{}, DRAWN], ids=["greedy", "drawn"])
def test_log_probabilities_are_the_models_own(make, options):
    model = make()
    for a in generate(model, PROMPTS, LETTERS, max_new=6, **options):
        said = [*a.ids, EOS] if a.finish == "eos" else [*a.ids]
        with evaluating(model):
            if make is decoder:
                logits = model(np.array([[*a.prompt, *said]])).logits.numpy()[0, len(a.prompt) - 1 : -1]
            else:
                logits = model(a.prompt[None], np.array([[1, *said]])).logits.numpy()[0, :-1]
        np.testing.assert_allclose(a.log_probs, log_softmax(logits)[np.arange(len(said)), said], rtol=1e-9)


@BOTH
@pytest.mark.parametrize("options", [{}, DRAWN, {"beam": 3, "length_penalty": 0.7}], ids=["greedy", "drawn", "beam"])
def test_without_a_cache_the_same(make, options):
    model = make()
    for a, b in zip(*(generate(model, PROMPTS, LETTERS, max_new=9, cache=cache, **options) for cache in (True, False))):
        same(a, b)


@BOTH
@pytest.mark.parametrize("options", [{}, DRAWN, {"beam": 3}], ids=["greedy", "drawn", "beam"])
def test_a_row_does_not_depend_on_the_batch(make, options):
    model = make()
    together = generate(model, PROMPTS, LETTERS, max_new=9, **options)
    assert len({a.text for a in together}) >= 4
    for i, prompt in enumerate(PROMPTS):
        same(generate(model, [prompt], LETTERS, max_new=9, numbers=[i], **options)[0], together[i])
    order = [3, 0, 4, 2, 1]
    for size in (1, 2, 64):
        again = generate(model, [PROMPTS[i] for i in order], LETTERS, max_new=9, numbers=order, batch=size, **options)
        for i, a in zip(order, again):
            same(a, together[i])


@BOTH
def test_copies_are_the_same_however_many(make):
    model = make()
    two = generate(model, PROMPTS, LETTERS, max_new=6, copies=2, **DRAWN)
    three = generate(model, PROMPTS, LETTERS, max_new=6, copies=3, **DRAWN)
    one = generate(model, PROMPTS, LETTERS, max_new=6, **DRAWN)
    assert (len(two), len(three)) == (10, 15)
    for i in range(5):
        same(one[i], two[2 * i])
        for k in range(2):
            same(two[2 * i + k], three[3 * i + k])
    assert len({a.text for a in three[:3]}) > 1


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.text("abcdefghij", min_size=1, max_size=9), min_size=1, max_size=5), st.integers(0, 99), st.booleans()
)
def test_any_batch(prompts, seed, cache):
    model = decoder()
    options = {"max_new": 5, "temperature": 1.0, "seed": seed, "cache": cache}
    for i, a in enumerate(generate(model, prompts, LETTERS, **options)):
        same(a, generate(model, [prompts[i]], LETTERS, numbers=[i], **options)[0])


# ---------------------------------------------------------------------- why a row ends


def test_eos_and_several():
    model = decoder()
    free = generate(model, PROMPTS, max_new=9, eos=None, tokenizer=LETTERS)
    said = [i for a in free for i in a.ids]
    ends = sorted(set(said), key=said.count)[-2:]
    for a, b in zip(free, generate(model, PROMPTS, LETTERS, max_new=9, eos=ends)):
        at = next((n for n, i in enumerate(a.ids) if i in ends), None)
        np.testing.assert_array_equal(b.ids, a.ids[:at])
        assert b.finish == ("length" if at is None else "eos")
        assert len(b.log_probs) == len(b.ids) + (at is not None)


def test_stop_sequences_end_a_row_and_leave_the_others():
    model = decoder()
    free = generate(model, PROMPTS, LETTERS, max_new=12, eos=None)
    stop = free[0].text[3:5]
    held = generate(model, PROMPTS, LETTERS, max_new=12, eos=None, stop=stop)
    for a, b in zip(free, held):
        assert b.text == a.text.split(stop)[0]
        assert b.finish == ("stop" if stop in a.text else "length")
    assert held[0].finish == "stop"


def test_positions_are_used_up():
    model = decoder(max_length=9)
    (a,) = generate(model, ["abcde"], LETTERS, max_new=20, eos=None)
    assert (len(a.ids), a.finish) == (5, "positions")  # four are read again, what is said last is not
    np.testing.assert_array_equal(a.ids, greedy(model, LETTERS.encode("abcde")[None], max_new=5, eos=None)[0])
    (b,) = generate(model, ["abcde"], LETTERS, max_new=5, eos=None)
    assert b.finish == "length"
    (c,) = generate(model, ["abcdefghi"], LETTERS, eos=None)
    assert (len(c.ids), c.finish) == (1, "positions")
    (d,) = generate(encoder_decoder(max_length=9), ["abcde"], LETTERS, max_new=20, eos=None)
    assert (len(d.ids), d.finish) == (9, "positions")


@pytest.mark.parametrize("options", [{}, DRAWN, {"cache": False}], ids=["greedy", "drawn", "uncached"])
def test_sliding_beyond_the_positions(options):
    """Rows reach the last position at different times; from then on each sees its latest max_length ids."""
    model = decoder(max_length=7)
    prompts = ["abcdef", "a", "abc", "bacd"]
    got = generate(model, prompts, LETTERS, max_new=11, eos=None, slide=True, **options)
    for i, (prompt, a) in enumerate(zip(prompts, got)):
        assert (len(a.ids), a.finish) == (11, "length")
        text = [*LETTERS.encode(prompt), *a.ids]
        same(generate(model, [prompt], LETTERS, max_new=11, eos=None, slide=True, numbers=[i], **options)[0], a)
        if options is not DRAWN:
            for n in range(len(prompt), len(text)):
                with evaluating(model):
                    logits = model(np.array([text[max(0, n - 7) : n]])).logits.numpy()[0, -1]
                assert logits.argmax() == text[n]
    assert got.timings.recomputed_tokens == sum(10 - (7 - len(prompt)) for prompt in prompts)


def test_rows_that_have_ended_cost_nothing(monkeypatch):
    model = decoder()
    free = generate(model, PROMPTS, max_new=9, eos=None, tokenizer=LETTERS)
    eos = max(range(V), key=lambda i: len({[*a.ids, i].index(i) for a in free}))  # said early by some, late by others
    seen = []
    step = Session.step
    monkeypatch.setattr(Session, "step", lambda self, ids: seen.append(len(ids)) or step(self, ids))
    ends = [len(a.log_probs) for a in generate(model, PROMPTS, LETTERS, max_new=9, eos=eos)]
    assert len(set(ends)) > 2
    assert seen == [sum(end > t for end in ends) for t in range(1, max(ends))]


def test_every_reason_has_words():
    assert set(REASONS) == {"eos", "stop", "length", "positions", "error"}


# ---------------------------------------------------------------------- bad input


@BOTH
def test_a_prompt_that_fails_leaves_the_others_alone(make):
    model = make()
    alone = generate(model, PROMPTS[:2], LETTERS, max_new=5, **DRAWN)
    bad = ["", "xyz", "a" * 24, [], [99], [-1], [[1, 2]], [0.5], None]
    got = generate(model, [*bad[:3], PROMPTS[0], *bad[3:], PROMPTS[1]], LETTERS, max_new=5, **DRAWN,
                   numbers=[10, 11, 12, 0, 13, 14, 15, 16, 17, 18, 1])  # fmt: skip
    same(got[3], alone[0])
    same(got[-1], alone[1])
    reads = "prompt" if make is decoder else "source"
    messages = [
        f"the {reads} is empty", "not among the 10 symbols", "has 24 symbols, and the model has positions for",
        f"the {reads} is empty", "id 99 is outside the vocabulary of 13", "id -1 is outside", "integers (n,)",
        "integers (n,)", "integers (n,)",
    ]  # fmt: skip
    for a, message in zip([*got[:3], *got[4:-1]], messages, strict=True):
        assert a.finish == "error"
        assert message in str(a.error)
        assert len(a.ids) == len(a.log_probs) == 0


@pytest.mark.parametrize("prompt", ["", "xyz", "a" * 24])
def test_a_single_prompt_raises(prompt):
    with pytest.raises(ValueError, match=r"empty|not among|24 symbols"):
        generate(decoder(), prompt, LETTERS, max_new=5)
    with pytest.raises(IndexError, match="id 99"):
        generate(decoder(), [5, 99], max_new=5)


def test_a_single_prompt_is_one_row():
    model = decoder()
    for prompt in ("abc", LETTERS.encode("abc"), [3, 4, 5]):
        (a,) = generate(model, prompt, LETTERS, max_new=5)
        same(a, generate(model, ["abc"], LETTERS, max_new=5)[0])


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"beam": 2}], ids=["greedy", "drawn", "beam"])
@pytest.mark.parametrize(("value", "message"), [(np.nan, "NaN"), (-np.inf, "all -inf"), (np.inf, "infinite")])
def test_logits_that_are_no_numbers_fail_their_row(options, value, message, monkeypatch):
    model = decoder()
    expected = generate(model, ["abc", "j"], LETTERS, max_new=5, eos=None, numbers=[0, 2], **options)
    decode = model.decode

    def damaged(ids, *args, cache=None, **more):
        out = decode(ids, *args, cache=cache, **more)
        logits = out.logits.numpy()
        if not cache.lengths.any():  # the prefill
            logits[1] = value
        return out._replace(logits=type(out.logits)(logits))

    monkeypatch.setattr(model, "decode", damaged)
    got = generate(model, ["abc", "hgfed", "j"], LETTERS, max_new=5, eos=None, **options)
    same(got[0], expected[0])
    same(got[2], expected[1])
    assert got[1].finish == "error"
    assert message in str(got[1].error)


def test_a_row_that_fails_on_the_way_keeps_what_it_has_said():
    model = decoder()

    def short(logits, ids):
        if len(ids) == 7:
            raise ValueError("seven is enough")
        return logits

    got = generate(model, ["abc", "hgfedcba"], LETTERS, max_new=6, eos=None, filters=[short])
    free = generate(model, ["abc", "hgfedcba"], LETTERS, max_new=6, eos=None)
    assert (got[0].finish, str(got[0].error)) == ("error", "seven is enough")
    assert got[0].text == LETTERS.decode(free[0].ids[:4])
    same(got[1], free[1])
    with pytest.raises(ValueError, match="seven is enough"):
        generate(model, "abc", LETTERS, max_new=6, eos=None, filters=[short])


def test_a_mistake_in_a_filter_is_not_hidden():
    with pytest.raises(TypeError):
        generate(decoder(), ["abc"], LETTERS, filters=[lambda z: z])


@pytest.mark.parametrize("options", [{}, {"beam": 2}], ids=["greedy", "beam"])
def test_an_id_that_the_tokenizer_does_not_know_fails_its_row(options):
    model = decoder()
    free = generate(model, PROMPTS, LETTERS, max_new=5, eos=None, **options)
    largest = sorted(max(a.ids) for a in free)
    known = next(n for n in range(4, V) if largest[0] < n <= largest[-1])  # so many ids: some rows fail, some do not
    fewer = CharTokenizer(LETTERS.symbols[: known - 3])
    for a, b in zip(free, generate(model, [LETTERS.encode(p) for p in PROMPTS], fewer, max_new=5, eos=None, **options)):
        if max(a.ids) < known:
            assert b.text == a.text
        else:
            assert "outside the vocabulary" in str(b.error)


def test_prompts_may_come_from_a_generator():
    model = decoder()
    for a, b in zip(generate(model, (p for p in PROMPTS), LETTERS), generate(model, PROMPTS, LETTERS), strict=True):
        same(a, b)
    for wrong in ([0], [0, 1, 2, 3, -1]):
        with pytest.raises(ValueError, match=r"numbers are one for each|a prompt's number"):
            generate(model, PROMPTS, LETTERS, numbers=wrong)


def test_everything_banned():
    got = generate(decoder(), ["abc", "j"], LETTERS, max_new=4, banned=range(V))
    assert all("no id is left to say" in str(a.error) for a in got)
    with pytest.raises(ValueError, match="banned id 13 is outside"):
        generate(decoder(), "abc", LETTERS, max_new=4, banned=[13])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_new": 0}, "max_new is a whole number, at least 1, not 0"),
        ({"max_new": 2.0}, "max_new"),
        ({"copies": 0}, "copies"),
        ({"copies": 2}, "2 greedy answers to one prompt are all the same"),
        ({"batch": 0}, "batch"),
        ({"top_k": 0}, "top_k"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"eos": -2}, "eos is an id"),
        ({"stop": ""}, "a stop sequence"),
        ({"stop": "a", "beam": 2}, "stop sequences"),
        ({"cache": False, "cache_dtype": "int8"}, "cache_dtype"),
        ({"cache_dtype": "int4"}, "int4"),
    ],
)
def test_settings_that_make_no_sense(options, message):
    with pytest.raises(ValueError, match=message):
        generate(decoder(), ["abc"], LETTERS, **options)


def test_stop_sequences_need_a_tokenizer():
    with pytest.raises(ValueError, match="give the tokenizer"):
        generate(decoder(), [[3, 4]], stop="a")
    with pytest.raises(ValueError, match="needs the tokenizer"):
        generate(decoder(), "abc")


def test_an_encoder_says_nothing():
    config = TransformerConfig.bert(layers=1, d_model=8, heads=2, vocab_size=V, max_length=9)
    with pytest.raises(ValueError, match="says no symbols"):
        generate(Transformer(config, rng=np.random.default_rng(0)), [[3]])


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_kernel": "linear", "position": "rotary"},
        {"position": "rotary", "rope_scaling": {"type": "dynamic", "factor": 2.0, "original_length": 8}},
    ],
    ids=["linear", "dynamic"],
)
def test_what_cannot_be_cached_is_computed_anew(changes):
    model = sharp(TransformerConfig.llama(layers=1, d_model=16, heads=2, vocab_size=V, max_length=23, **changes), 0.5)
    got = generate(model, PROMPTS, LETTERS, max_new=12)
    assert got.timings.cache_bytes == 0
    for prompt, a in zip(PROMPTS, got):
        same(a, generate(model, [prompt], LETTERS, max_new=12, cache=False)[0])
    assert len(greedy(model, [[3, 4]], max_new=12, eos=None)[0]) == 12
    with pytest.raises(ValueError, match="cannot be cached"):
        generate(model, PROMPTS, LETTERS, cache=True)


# ---------------------------------------------------------------------- timings, mode, and the rest


@BOTH
def test_timings_tell_prefill_from_decode(make):
    model = make()
    got = generate(model, PROMPTS, LETTERS, max_new=6, eos=None)
    t = got.timings
    sources = sum(map(len, PROMPTS))
    assert t.prefill_tokens == (sources if make is decoder else sources + 2 * len(PROMPTS))  # the EOS, and the BOS
    assert (t.decode_tokens, t.decode_steps) == (5 * 5, 5)
    assert t.prefill_seconds > 0
    assert t.decode_seconds > 0
    assert t.prefill_rate == t.prefill_tokens / t.prefill_seconds
    assert t.latency == t.decode_seconds / 5
    assert t.allocated_bytes >= t.cache_bytes > 0
    assert set(t.to_dict()) >= {"prefill_seconds", "decode_rate", "latency", "cache_bytes"}
    nothing = generate(model, [], LETTERS).timings
    assert (nothing.prefill_rate, nothing.decode_rate, nothing.latency) == (0, 0, 0)


def test_cache_bytes_are_those_of_the_card():
    model = decoder()
    t = generate(model, ["abc", "cba"], LETTERS, max_new=6, eos=None).timings
    assert t.cache_bytes == 2 * 2 * 12 * 2 * 8 * (3 + 5)  # layers, keys and values, width, rows, float64, tokens


@BOTH
def test_mode_and_tape_are_as_before(make):
    from minitx.settings import current

    model = make()
    model.train()
    model.decoder[1].eval()
    before = {name: module.training for name, module in model.modules()}
    generate(model, PROMPTS, LETTERS, max_new=3)
    generate(model, PROMPTS, LETTERS, max_new=3, beam=2)
    with pytest.raises(RuntimeError, match="enough"):
        generate(model, PROMPTS, LETTERS, max_new=3, filters=[stops_everything])
    assert {name: module.training for name, module in model.modules()} == before
    assert current.get().recording


def stops_everything(logits, ids):
    raise RuntimeError("enough")


@BOTH
def test_int8_costs_a_quarter(make):
    model = make().astype(np.float32)
    a, b = (generate(model, PROMPTS, LETTERS, max_new=6, eos=None, cache_dtype=kind) for kind in (None, "int8"))
    assert b.timings.cache_bytes < 0.6 * a.timings.cache_bytes
    assert all(len(x.ids) == 6 for x in b)


@BOTH
def test_greedy_with_and_without_cache_is_equal(make):
    """Bit for bit the same answers, rows of any length, ended at any time."""
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.float64):
        model = make().astype(dtype)
        lengths = rng.integers(1, 12, 17)
        ids = rng.integers(3, V, (17, 11))
        a, b = (greedy(model, ids, mask=masks.padding(lengths), max_new=20, cache=cache) for cache in (True, False))
        assert [list(x) for x in a] == [list(x) for x in b]


def test_uncached_goes_back_and_forks():
    model = decoder()
    session = Uncached(model)
    with evaluating(model):
        first = session.prefill(np.array([[3, 4, 5], [6, 7, 0]]), np.array([3, 2]))
        left = Uncached(model).prefill(np.array([[3, 4, 5], [0, 6, 7]]), np.array([3, 2]), "left")
        np.testing.assert_array_equal(first, left)
        session.step(np.array([8, 9]))
        session.reorder([1, 1, 0])
        np.testing.assert_array_equal(session.lengths, [3, 3, 4])
        session.truncate([2, 2, 3])
        np.testing.assert_allclose(session.logits(), first[[1, 1, 0]], rtol=1e-12)


def test_answer_raises_what_one_text_does():
    with pytest.raises(ValueError, match="not among"):
        answer(decoder(), LETTERS, ["abc", "xyz"])


def test_prefixes_are_shared_and_change_nothing():
    model = decoder()
    prefixes = PrefixCache()
    prompts = ["abcabcab", "abcabcde", "abcabcab", "hgf"]
    expected = generate(model, prompts, LETTERS, max_new=6, **DRAWN)
    for tenant in ("one", ["one", "two", "one", "two"]):
        for slide in (False, True):
            got = generate(model, prompts, LETTERS, max_new=6, prefixes=prefixes, tenant=tenant, slide=slide, **DRAWN)
            for a, b in zip(got, expected):
                same(a, b)
    assert prefixes.nbytes("one") > prefixes.nbytes("two") > 0
    with pytest.raises(ValueError, match="tenant is one name, or one for each of the 4 prompts"):
        generate(model, prompts, LETTERS, prefixes=prefixes, tenant=["one"])
    with pytest.raises(ValueError, match="decoders that have a cache"):
        generate(encoder_decoder(), prompts, LETTERS, prefixes=prefixes, tenant="one")
    with pytest.raises(ValueError, match="a tenant is named"):
        generate(model, prompts, LETTERS, prefixes=prefixes)


@pytest.mark.parametrize("name", ["generate", "stopping"])
def test_the_examples_of_the_docstrings(name):
    tested = doctest.testmod(importlib.import_module(f"minitx.generation.{name}"))
    assert tested.attempted >= 3
    assert tested.failed == 0
