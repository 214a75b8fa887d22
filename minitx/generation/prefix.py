"""A store of prompts that have been read: a request that begins like an earlier one copies keys instead of making them.

Keys and values of a prefix depend on its tokens alone, not on what follows. So whatever an earlier prompt and a new one
have in common at the beginning need not be computed again, if the model is the same to the last weight.

What is stored is a tenant's own: an entry is found only by the tenant who put it there, with the model (fingerprint of
card, weights and number type) and the tokens that it was made with.
"""
from __future__ import annotations

import time
from collections.abc import Callable
from threading import RLock
from typing import NamedTuple

import numpy as np

from minitx.generation.cache import KVCache, Row
from minitx.tensor import Array


class Entry(NamedTuple):
    ids: Array  # (n,)
    row: Row  # keys and values of these tokens, in every layer
    until: float  # when it is thrown away

    @property
    def nbytes(self) -> int:
        return self.row.nbytes + self.ids.nbytes


Key = tuple[str, bytes]  # fingerprint, token ids


class PrefixCache:
    """What tenants have stored.

    budget  bytes for each tenant; who has more loses what was not used for longest
    ttl     seconds that an entry lives, however often it is used
    """

    def __init__(
        self, budget: int = 256 << 20, ttl: float = 600.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if budget < 0 or not ttl > 0:
            raise ValueError(f"budget counts bytes, from 0, and ttl seconds, above 0, not {budget!r} and {ttl!r}")
        self.budget, self.ttl, self.clock = budget, ttl, clock
        self.tenants: dict[str, dict[Key, Entry]] = {}  # of each the entry used last stands last
        self.lock = RLock()  # requests may come from several threads

    def put(self, tenant: str, cache: KVCache, row: int, ids: Array) -> None:
        """Store row `row` of the cache, which has read exactly `ids`. A row too large for the budget is not stored."""
        if cache.lengths[row] != len(ids):
            raise ValueError(f"row {row} of the cache has {cache.lengths[row]} tokens, and these are {len(ids)}")
        key = cache.fingerprint, ids.astype(np.int64).tobytes()
        with self.lock:
            self.expire()
            mine = self.tenants.setdefault(_tenant(tenant), {})
            if key in mine:
                mine[key] = mine.pop(key)
                return
            entry = Entry(ids.astype(np.int64), cache.row(row), self.clock() + self.ttl)
            if entry.nbytes > self.budget:
                return
            mine[key] = entry
            while self.nbytes(tenant) > self.budget:
                del mine[next(iter(mine))]

    def load(self, tenant: str, cache: KVCache, row: int, ids: Array) -> int:
        """Put the longest stored prefix of `ids` into the empty row of the cache; how many tokens that were.

        One token at least is left for the model to read: its logits are what the caller is after.
        """
        with self.lock:
            self.expire()
            mine = self.tenants.get(_tenant(tenant), {})
            best, most = None, 0
            for key, entry in mine.items():
                n = _common(entry.ids, ids[:-1]) if key[0] == cache.fingerprint else 0
                if n > most and cache.can_go_back(entry.row, n):
                    best, most = key, n
            if best is not None:
                mine[best] = mine.pop(best)  # used just now
                cache.load_row(row, mine[best].row, most)
            return most

    def expire(self) -> None:
        """Throw away what has outlived its time."""
        with self.lock:
            now = self.clock()
            left = {
                tenant: {key: entry for key, entry in mine.items() if now < entry.until}
                for tenant, mine in self.tenants.items()
            }
            self.tenants = {tenant: mine for tenant, mine in left.items() if mine}

    def forget(self, tenant: str) -> None:
        """Throw away all that a tenant has stored."""
        with self.lock:
            self.tenants.pop(_tenant(tenant), None)

    def nbytes(self, tenant: str) -> int:
        with self.lock:
            return sum(entry.nbytes for entry in self.tenants.get(_tenant(tenant), {}).values())


def _tenant(tenant: str) -> str:
    if not isinstance(tenant, str) or not tenant:
        raise ValueError(f"a tenant is named, in a string that is not empty, before anything is shared; not {tenant!r}")
    return tenant


def _common(a: Array, b: Array) -> int:
    """How many tokens two texts have in common at the beginning."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    return int(differ.argmax()) if differ.any() else n
