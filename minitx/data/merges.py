"""Learning byte pairs: merge the most frequent pair of neighbours into a new symbol, again and again.

    a a a b d a a a b a c        aa occurs 4 times (aaa has it twice): it becomes X
    X a b d X a b a c            Xa and ab occur twice: Xa was seen first and becomes Y
    Y b d Y b a c                Yb becomes Z
    Z d Z a c

Two decisions, in which published implementations differ:

    counting   Pairs overlap: in `aaa` the pair aa occurs twice, although only one of the two can merge. (In aaabcbc
               therefore aa, counted 2, ties with bc, 2; counted without overlap it would be 1.)
    ties       Of equally frequent pairs the one wins that is seen first in the text as it stands now.

After each merge the counts are brought up to date by what changed, next to the merged places: a text is read once, and
all the merges together cost about as much as there are symbols to merge away.
"""
from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import pairwise

BYTES = 256
Pair = tuple[int, int]
GONE = -1


class Words:
    """Words as chains of symbols, and how often each pair of neighbours occurs in them.

    All words stand in one line, each once, with its frequency: `symbol[i]` is linked to its neighbours `before[i]` and
    `after[i]`, which are -1 at the ends of a word. Where two symbols merge, the left one is replaced and the right one
    drops out of the chain.

    What makes it simple: merging makes no new occurrence of an old pair, since at every place that changes the new
    symbol has a part. So the count of a pair never rises after the merge in which the pair came up, and the place
    where it is first seen only moves back. Hence an entry of the heap is never too bad, only too good, and this is
    noticed when it is taken out.
    """

    def __init__(self, words: Iterable[tuple[bytes, int]]) -> None:
        self.symbol: list[int] = []
        self.before: list[int] = []
        self.after: list[int] = []
        self.weight: list[int] = []  # how often the word occurs that the symbol is in
        self.counts: dict[Pair, int] = {}
        self.places: dict[Pair, list[int]] = {}  # where a pair occurs or once did, in rising order
        self.seen: dict[Pair, int] = {}  # places[pair][: seen[pair]] are known to be past
        for word, frequency in words:
            start = len(self.symbol)
            end = start + len(word)
            self.symbol += word
            self.before += [-1, *range(start, end - 1)] if word else []
            self.after += [*range(start + 1, end), -1] if word else []
            self.weight += [frequency] * len(word)
            for i, pair in enumerate(pairwise(word), start):
                self._add(pair, i)
        self.heap = [(-count, self.places[pair][0], pair) for pair, count in self.counts.items()]
        heapify(self.heap)

    def _add(self, pair: Pair, i: int) -> None:
        self.counts[pair] = self.counts.get(pair, 0) + self.weight[i]
        self.places.setdefault(pair, []).append(i)

    def _remove(self, pair: Pair, i: int) -> None:
        if pair not in self.counts:
            return  # the pair that is being merged
        self.counts[pair] -= self.weight[i]
        if not self.counts[pair]:
            del self.counts[pair], self.places[pair]
            self.seen.pop(pair, None)

    def best(self) -> tuple[Pair, int] | None:
        """The pair to merge next, and its count; None if no two symbols are neighbours."""
        while self.heap:
            entry = heappop(self.heap)
            pair = entry[2]
            if pair not in self.counts:
                continue
            now = (-self.counts[pair], self._first(pair), pair)
            heappush(self.heap, now)
            if now == entry:
                return pair, self.counts[pair]
        return None

    def _first(self, pair: Pair) -> int:
        places, k = self.places[pair], self.seen.get(pair, 0)
        while not self._is_at(pair, places[k]):
            k += 1
        self.seen[pair] = k
        return places[k]

    def _is_at(self, pair: Pair, i: int) -> bool:
        j = self.after[i]
        return self.symbol[i] == pair[0] and j >= 0 and self.symbol[j] == pair[1]

    def merge(self, pair: Pair, new: int) -> None:
        """Put `new` in the place of every occurrence of `pair`, from left to right."""
        symbol, before, after = self.symbol, self.before, self.after
        del self.counts[pair]
        born: dict[Pair, None] = {}  # in the order in which they come up
        for i in self.places.pop(pair):
            if not self._is_at(pair, i):
                continue  # it was long ago, or just now overlapped the one before
            j = after[i]
            h, k = before[i], after[j]  # h (i j) k
            if h >= 0:
                self._remove((symbol[h], pair[0]), h)
                self._add((symbol[h], new), h)
                born[symbol[h], new] = None
            if k >= 0:
                self._remove((pair[1], symbol[k]), j)
                self._add((new, symbol[k]), i)
                born[new, symbol[k]] = None
                before[k] = i
            symbol[i], symbol[j], after[i] = new, GONE, k
        for fresh in born:
            if fresh in self.counts:
                heappush(self.heap, (-self.counts[fresh], self._first(fresh), fresh))

    def words(self) -> list[list[int]]:
        """Every word as it stands now."""
        out: list[list[int]] = []
        for symbol, before in zip(self.symbol, self.before):
            if symbol == GONE:
                continue
            if before < 0:
                out.append([])
            out[-1].append(symbol)
        return out


def learn_merges(words: Iterable[tuple[bytes, int]], n: int, least: int = 2) -> list[Pair]:
    """At most n merges, from (word, how often it occurs) in the order of first appearance; merge r makes 256 + r.

    Fewer where no pair occurs `least` times any more: what occurs once is no pattern.
    """
    chains = Words(words)
    merges: list[Pair] = []
    while len(merges) < n:
        found = chains.best()
        if found is None or found[1] < least:
            break
        merges.append(found[0])
        chains.merge(found[0], BYTES + len(merges) - 1)
    return merges


def apply_merges(word: bytes, rank: dict[Pair, int]) -> list[int]:
    """The symbols of a word: of all pairs that can merge always the one that was learned first, from left to right.

    The same as going through the whole word once for every merge, in the order of learning; with a heap it takes
    n log n steps for a word of n bytes.
    """
    n = len(word)
    symbol = list(word)
    before, after = list(range(-1, n - 1)), list(range(1, n + 1))
    heap = [(rank[pair], i) for i, pair in enumerate(pairwise(word)) if pair in rank]
    heapify(heap)
    while heap:
        r, i = heappop(heap)
        j = after[i]
        if j >= n or rank.get((symbol[i], symbol[j])) != r:
            continue  # one of the two has merged with another
        symbol[i], symbol[j], after[i] = BYTES + r, GONE, after[j]
        if after[i] < n:
            before[after[i]] = i
        for h in (before[i], i):
            if h >= 0 and after[h] < n and (s := rank.get((symbol[h], symbol[after[h]]))) is not None:
                heappush(heap, (s, h))
    return [s for s in symbol if s != GONE]
