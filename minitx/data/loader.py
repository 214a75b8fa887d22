"""Data sets: examples of many lengths in batches with little padding. Batch number i depends on the seed and i alone.

So a data set has no position and no state: a run that is resumed at step i goes on with batch i.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from minitx.data.batch import Batch
from minitx.data.packing import Packed, best_fit, cut, pack
from minitx.tensor import Array

Make = Callable[[list[Any], np.random.Generator], Batch]


class DataSet:
    """`data[i]` is batch i, for i = 0, 1, 2, ... without end: epoch after epoch, each `len(data)` batches.

    Every epoch has every example once, in an order of its own (with shuffle=False always in the same one: for
    evaluation). Subclasses say which examples share a batch, in `groups`, and make the batch, in `make`.
    """

    def __init__(self, seed: int, shuffle: bool) -> None:
        self.seed, self.shuffle = seed, shuffle
        self._epoch, self._groups = -1, self._grouped(0)
        if not self._groups:
            raise ValueError("a data set needs examples, and there are none")

    def groups(self, rng: np.random.Generator | None) -> list[Any]:
        """What each batch of one epoch consists of; how many there are must not depend on rng (None: no shuffling)."""
        raise NotImplementedError

    def make(self, group: Any, rng: np.random.Generator) -> Batch:
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._groups)

    def __getitem__(self, i: int) -> Batch:
        if i < 0:
            raise IndexError(f"batches are numbered from 0 on, without end; there is no batch {i}")
        epoch, k = divmod(i, len(self))
        if epoch != self._epoch:  # (the last one that was asked for is kept)
            self._epoch, self._groups = epoch, self._grouped(epoch)
        return self.make(self._groups[k], np.random.default_rng([self.seed, 1, i]))

    def epoch(self, e: int = 0) -> Iterator[Batch]:
        """The batches of epoch e."""
        return (self[e * len(self) + k] for k in range(len(self)))

    def _grouped(self, epoch: int) -> list[Any]:
        return self.groups(np.random.default_rng([self.seed, 0, epoch]) if self.shuffle else None)


class PaddedBatches(DataSet):
    """Examples of nearly the same length together, so that there is little to pad.

        rows = [tokenizer.encode(line) for line in lines]
        data = PaddedBatches(rows, lambda rows, rng: next_token_of_rows(rows), max_tokens=4096)

    examples    anything; `size` gives the length of one (pairs: size=lambda pair: max(map(len, pair)))
    make        (a list of examples, a generator for what is random about them) → Batch
    batch_size  so many examples a batch, or
    max_tokens  as many as fit: examples times the longest is at most this, padding included. Long examples then come in
                small batches, and every step costs about the same
    """

    def __init__(
        self,
        examples: Sequence[Any],
        make: Make,
        *,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        size: Callable[[Any], int] = len,
        seed: int = 0,
        shuffle: bool = True,
    ) -> None:
        if (batch_size is None) == (max_tokens is None):
            raise ValueError("a batch is limited by batch_size or by max_tokens: give one of the two")
        limit = batch_size if max_tokens is None else max_tokens
        if limit is None or limit < 1:
            raise ValueError(f"the limit of a batch is at least 1, not {limit}")
        self.examples, self._make = examples, make
        self.batch_size, self.max_tokens = batch_size, max_tokens
        self.sizes = np.array([size(example) for example in examples], np.int64)
        if max_tokens is not None and self.sizes.max(initial=0) > max_tokens:
            i = self.sizes.argmax()
            raise ValueError(f"max_tokens {max_tokens} has no room for example {i}, of length {self.sizes[i]}")
        super().__init__(seed, shuffle)

    def groups(self, rng: np.random.Generator | None) -> list[Array]:
        n = len(self.sizes)
        order = np.arange(n) if rng is None else rng.permutation(n)  # among equals
        order = order[np.argsort(self.sizes[order], kind="stable")]
        groups, start = [], 0
        for end in range(1, n + 1):
            if end == n or not self._fit(end + 1 - start, self.sizes[order[end]]):
                groups.append(order[start:end])
                start = end
        if rng is not None:
            rng.shuffle(groups)
        return groups

    def _fit(self, rows: int, longest: int) -> bool:
        return rows <= self.batch_size if self.batch_size else rows * longest <= (self.max_tokens or 0)

    def make(self, group: Array, rng: np.random.Generator) -> Batch:
        return self._make([self.examples[i] for i in group], rng)


class PackedBatches(DataSet):
    """Documents packed into rows of `length` places, `batch_size` rows a batch (the last of an epoch may have fewer).

    Documents that are longer are cut, without loss of a target. Put BOS and EOS into them beforehand.
    """

    def __init__(
        self, documents: Sequence[Any], length: int, batch_size: int, *, seed: int = 0, shuffle: bool = True
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}")
        self.documents = [piece for document in documents for piece in cut(document, length)]
        self.length, self.batch_size = length, batch_size
        super().__init__(seed, shuffle)

    def groups(self, rng: np.random.Generator | None) -> list[list[list[int]]]:
        n = len(self.documents)
        order = np.arange(n) if rng is None else rng.permutation(n)  # among equals
        rows = [order[row].tolist() for row in best_fit([len(self.documents[i]) for i in order], self.length)]
        if rng is not None:
            rng.shuffle(rows)
        return [rows[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size)]

    def make(self, group: list[list[int]], rng: np.random.Generator) -> Packed:
        return pack(self.documents, self.length, group)
