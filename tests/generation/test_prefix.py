"""Prompts that begin alike share what was computed, within one tenant, with one model, for a time."""
import sys
import threading

import numpy as np
import pytest
from cache_drawn import V, model

from minitx.generation.prefix import PrefixCache
from minitx.generation.session import Session

EXACT = {"rtol": 1e-10, "atol": 1e-10}


def read(m, store, tenants, *prompts, **options):
    """A session that has read the prompts; how many tokens the model itself had to read, and the logits."""
    lengths = np.array([len(p) for p in prompts])
    ids = np.zeros((len(prompts), lengths.max()), np.int64)
    for row, prompt in zip(ids, prompts):
        row[: len(prompt)] = prompt
    session, seen = Session(m, **options), []
    decode = m.decode
    m.decode = lambda ids, **k: (seen.append(ids.shape[1]), decode(ids, **k))[1]
    logits = session.prefill(ids, lengths, prefixes=store, tenants=tenants)
    del m.decode
    return session, sum(seen), logits


def alone(m, prompt):
    return m(np.array([prompt])).logits.numpy()[0, -1]


@pytest.mark.parametrize("cache_dtype", [None, "int8"])
def test_what_is_common_is_not_read_again(cache_dtype):
    m, store = model(position="rotary"), PrefixCache()
    a, b = [1, 2, 3, 4, 5], [1, 2, 3, 9, 9, 9]
    assert read(m, store, "ann", a, cache_dtype=cache_dtype)[1] == 5
    session, seen, logits = read(m, store, "ann", b, cache_dtype=cache_dtype)
    assert seen == 3
    assert session.lengths == [6]
    expected = Session(m, cache_dtype=cache_dtype).prefill([b])
    np.testing.assert_allclose(logits, expected, **EXACT)
    assert read(m, store, "ann", b, cache_dtype=cache_dtype)[1] == 1  # one is always read: its logits are wanted
    assert read(m, store, "ann", b[:3], cache_dtype=cache_dtype)[1] == 1


def test_no_tenant_gets_what_another_has_stored():
    m, store = model(), PrefixCache()
    prompt = [1, 2, 3, 4, 5]
    read(m, store, "ann", prompt)
    assert read(m, store, "bob", prompt)[1] == 5
    assert read(m, store, ["bob", "cid"], prompt, prompt)[1] == 5  # the longest row decides how many columns are read
    assert read(m, store, "bob", prompt)[1] == 1
    for tenant in (None, "", 3):
        with pytest.raises(ValueError, match="a tenant is named"):
            read(m, store, tenant, prompt)
    with pytest.raises(ValueError, match="one for each of the 1 rows, not 2"):
        read(m, store, ["ann", "bob"], prompt)
    store.forget("bob")
    assert store.nbytes("bob") == 0
    assert read(m, store, "ann", prompt)[1] == 1


def test_nor_what_another_model_has_made():
    store, prompt = PrefixCache(), [1, 2, 3]
    models = [model(), model(seed=1), model(np.float32), model(window=3), model(position="rotary")]
    for m in models:
        assert read(m, store, "ann", prompt)[1] == 3
    assert read(models[0], store, "ann", prompt, cache_dtype="int8")[1] == 3
    models[0].head.weight.data *= 2.0
    assert read(models[0], store, "ann", prompt)[1] == 3  # its weights have changed
    assert read(models[1], store, "ann", prompt)[1] == 1


def test_the_budget_is_each_tenants_own_and_the_least_recently_used_goes_first():
    m = model()
    size = PrefixCache()
    read(m, size, "ann", [1, 1, 1])
    store = PrefixCache(budget=2 * size.nbytes("ann"))
    read(m, store, "ann", [1, 1, 1])
    read(m, store, "bob", [1, 1, 1])
    read(m, store, "ann", [2, 2, 2])
    assert read(m, store, "ann", [1, 1, 1])[1] == 1  # used again, so now the other is the oldest
    read(m, store, "ann", [3, 3, 3])
    assert store.nbytes("ann") == 2 * size.nbytes("ann")
    assert read(m, store, "ann", [1, 1, 1])[1] == 1
    assert read(m, store, "ann", [2, 2, 2])[1] == 3
    assert read(m, store, "bob", [1, 1, 1])[1] == 1  # others' prompts have pushed nothing of bob's out
    read(m, store, "ann", [1] * 30)
    assert len(store.tenants["ann"]) == 2  # larger than the budget: not stored, and nothing thrown away for it


def test_time_to_live():
    now = [0.0]
    m, store = model(), PrefixCache(ttl=10, clock=lambda: now[0])
    read(m, store, "ann", [1, 2, 3])
    now[0] = 9.9
    assert read(m, store, "ann", [1, 2, 3])[1] == 1  # being used does not make it live longer
    now[0] = 10.0
    assert read(m, store, "ann", [1, 2, 3])[1] == 3


def test_what_is_stored_is_a_copy():
    m, store = model(), PrefixCache()
    session = read(m, store, "ann", [1, 2, 3, 4])[0]
    for layer in session.cache.layers:
        layer.keys.x[:] = np.nan
    again, _, logits = read(m, store, "ann", [1, 2, 3, 4])
    np.testing.assert_allclose(logits[0], alone(m, [1, 2, 3, 4]), **EXACT)
    for layer in again.cache.layers:
        layer.values.x[:] = np.nan
    np.testing.assert_allclose(read(m, store, "ann", [1, 2, 3, 4])[2][0], alone(m, [1, 2, 3, 4]), **EXACT)


def test_a_window_that_has_forgotten_the_beginning_cannot_lend_it():
    m, store = model(window=3, position="rotary"), PrefixCache()
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    session = read(m, store, "ann", prompt, block=1)[0]
    assert session.cache.tracks[3].first[0] == 7
    assert read(m, store, "ann", [1, 2, 3, 4])[1] == 1  # what is stored of a prompt is all of it
    store.forget("ann")
    for token in (1, 2, 3):
        session.step([token])
    store.put("ann", session.cache, 0, np.array([*prompt, 1, 2, 3]))  # what the window has left
    assert read(m, store, "bob", [1, 2, 3, 4])[1] == read(m, store, "ann", [1, 2, 3, 4])[1] == 4
    seen, logits = read(m, store, "ann", [*prompt, 1, 2, 3, 4])[1:]
    assert seen == 1
    np.testing.assert_allclose(logits[0], alone(m, [*prompt, 1, 2, 3, 4]), **EXACT)


def test_bad_input():
    with pytest.raises(ValueError, match="budget counts bytes"):
        PrefixCache(budget=-1)
    with pytest.raises(ValueError, match="ttl seconds, above 0"):
        PrefixCache(ttl=0)
    m, store = model(), PrefixCache()
    session = read(m, store, "ann", [1, 2])[0]
    with pytest.raises(ValueError, match="row 0 of the cache has 2 tokens, and these are 3"):
        store.put("ann", session.cache, 0, np.array([1, 2, 3]))
    with pytest.raises(ValueError, match="prefill once, at first"):
        session.prefill([[1]], prefixes=store, tenants="ann")


def test_what_fails_has_read_nothing():
    m, store = model(), PrefixCache()
    read(m, store, "ann", [1, 2, 3], [4, 5, 6])
    session = Session(m)
    with pytest.raises(IndexError):
        session.prefill([[1, 2, 3], [4, 5, V]], prefixes=store, tenants="ann")
    assert session.lengths.tolist() == [0, 0]
    logits = session.prefill([[1, 2, 3], [4, 5, 7]], prefixes=store, tenants="ann")
    np.testing.assert_allclose(logits[1], alone(m, [4, 5, 7]), **EXACT)


def test_a_tenant_whose_entries_are_gone_is_gone():
    now = [0.0]
    m, store = model(), PrefixCache(ttl=10, clock=lambda: now[0])
    read(m, store, "ann", [1, 2])
    now[0] = 11
    store.expire()
    assert store.tenants == {}


def test_several_threads_share_it():
    m, errors = model(layers=1), []
    store = PrefixCache(budget=20_000)

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(60):
                Session(m).prefill(rng.integers(0, V, (2, rng.integers(2, 9))), prefixes=store, tenants="ann")
        except RuntimeError as error:
            errors.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors


@pytest.mark.slow
def test_a_thousand_requests_in_random_batches():
    """Two tenants whose prompts begin alike, greedy decoding, rows that stop at different times: all as if alone."""
    rng = np.random.default_rng(0)
    beginnings = rng.integers(0, V, (3, 20))
    for fields in ({"position": "rotary", "kv_heads": 2}, {"position": "alibi", "window": 5, "window_every": 2}):
        m, store = model(max_length=64, **fields), PrefixCache(budget=60_000)
        left, hits = 500, 0
        while left:
            B = min(left, int(rng.integers(1, 9)))
            left -= B
            prompts = [_prompt(rng, beginnings) for _ in range(B)]
            tenants = [("ann", "bob")[i] for i in rng.integers(0, 2, B)]
            wanted = rng.integers(1, 6, B)
            session, seen, logits = read(m, store, tenants, *prompts, block=int(rng.choice([2, 64])))
            hits += seen < max(map(len, prompts))
            said: list = [[] for _ in range(B)]
            live = np.arange(B)
            while len(live):
                new = logits.argmax(-1)
                for row, token in zip(live, new):
                    said[row].append(int(token))
                on = np.array([len(said[row]) < wanted[row] for row in live])
                live = live[on]
                session.keep(np.flatnonzero(on))
                if len(live):
                    logits = session.step(new[on])
            for prompt, answer, n in zip(prompts, said, wanted):
                assert answer == _alone(m, prompt, n)
        assert hits > 50  # the store was of use
        assert store.nbytes("ann") <= 60_000


def _prompt(rng, beginnings):
    common = beginnings[rng.integers(3)][: rng.integers(0, 21)]
    return [*common.tolist(), *rng.integers(0, V, rng.integers(1, 5)).tolist()]


def _alone(m, prompt, n):
    text = list(prompt)
    for _ in range(n):
        text.append(int(m(np.array([text])).logits.numpy()[0, -1].argmax()))
    return text[len(prompt) :]
