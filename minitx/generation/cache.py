"""The KV cache: keys and values of all tokens so far, so that a new token asks them and nothing is computed again.

              slots   0   1   2   3   4   5   6   7         lengths
    row 0           [ k0  k1  k2  k3  k4  ·   ·   · ]          5        the next token: position 5, slot 5, sees 0 ... 5
    row 1           [ k0  k1  k2  ·   ·   ·   ·   · ]          3        the next token: position 3, slot 3, sees 0 ... 3

A row's first token stands in slot 0, whatever the prompts of other rows are: padding is never stored, so left and right
padding make one and the same cache. Each layer has two arrays (B, H_kv, slots, d), which grow by whole blocks. Keys are
stored as attention asks them: normalised and turned by their positions.

Layers with a sliding window forget. Their slots begin at position `first`, which moves on by whole blocks as tokens
leave the window, and what is kept moves up:

    window 3, block 2       first                                     the next token: position 7, slot 3, sees 1 ... 3
    row 0            4 →  [ k4  k5  k6  ·  ]                   7

so that the keys which a query sees are one interval of slots here too. (Blocks of 64 are the blocks of the kernels:
a key stands at the same place of its block as in the whole pass, and the sums come out with the same bits.)

One step: `begin(T)` makes room and says where the new tokens stand; every layer appends; `commit()` makes it so, and
`trim()` frees what a long chunk took. If a layer raises before commit, nothing has happened.
"""
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from minitx import masks
from minitx.generation.cache_identity import ModelIdentity
from minitx.generation.cache_slots import Int8Slots, Slots
from minitx.tensor import Array, Tensor, wrap

STORAGE: dict[str | None, type[Slots]] = {None: Slots, "int8": Int8Slots}


class Layer:
    """Keys and values of one layer, and those of the memory where the model has one."""

    def __init__(self, track: Track, keys: Slots, values: Slots) -> None:
        self.track, self.keys, self.values = track, keys, values
        self.memory: tuple[Slots, Slots] | None = None

    def append(self, k: Tensor, v: Tensor, mask: Any) -> tuple[Tensor, Tensor, Any, Array]:
        """The new keys and values (B, H_kv, T, d); returns all of them, what may be seen, and where the queries stand.

        `mask` is of the tokens' order alone, causal and perhaps a window: the cache knows both, by slots.
        """
        if not all(isinstance(part, masks.causal | masks.window) for part in getattr(mask, "parts", (mask,))):
            raise ValueError(f"a cache knows which tokens are padding, by its lengths, and takes no mask: {mask!r}")
        now = self.track
        self.keys.write(k.data, now.offset, now.counts)
        self.values.write(v.data, now.offset, now.counts)
        return wrap(self.keys.read(now.used)), wrap(self.values.read(now.used)), now.mask, now.offset

    @property
    def written(self) -> tuple[Slots, Slots]:
        return self.keys, self.values

    @property
    def slots(self) -> tuple[Slots, ...]:
        return self.keys, self.values, *(self.memory or ())


class Track:
    """Which positions stand in the slots, for all layers that have the same window (None: no window)."""

    def __init__(self, window: int | None, batch: int, block: int) -> None:
        self.window, self.block = window, block
        self.first = np.zeros(batch, np.int64)  # the position in slot 0 of each row
        self.capacity = 0
        self.layers: list[Layer] = []
        # Of the step at hand:
        self.offset = self.first  # (B,) the slot of each row's first new token
        self.counts: Array | None = None  # (B,) new tokens of each row; None: all T
        self.used = 0  # slots that hold something in some row
        self.mask: Any = None

    def begin(self, before: Array, after: Array, positions: Array, counts: Array | None) -> None:
        used = int((after - self.first).max(initial=0))
        if used > self.capacity:
            self.forget(before)
            used = int((after - self.first).max(initial=0))
            if used > self.capacity:
                self.room(used)
        at = positions - self.first[:, None]  # (B, T)
        hi = np.minimum(at + 1, (after - self.first)[:, None])
        lo = np.zeros_like(hi) if self.window is None else np.clip(at + 1 - self.window, 0, hi)
        self.mask = masks.spans(lo, hi)
        self.offset, self.counts, self.used = before - self.first, counts, used

    def room(self, slots: int) -> None:
        self.capacity = -(-slots // self.block) * self.block
        for layer in self.layers:
            for written in layer.written:
                written.room(self.capacity)

    def needed(self, lengths: Array) -> Array:
        """The first position that the next token of each row may see (if it is not the last one of the text)."""
        return np.zeros_like(lengths) if self.window is None else np.maximum(lengths - (self.window - 1), 0)

    def forget(self, lengths: Array) -> None:
        """Whole blocks that have left the window make room for others."""
        first = np.maximum(self.needed(lengths) // self.block * self.block, self.first)
        if (first > self.first).any():
            for layer in self.layers:
                for slots in layer.written:
                    slots.shift(first - self.first)
            self.first = first

    def trim(self, lengths: Array) -> None:
        if self.window is not None and self.capacity > self.window + 2 * self.block:
            self.forget(lengths)
            self.room(self.window + self.block - 1)


class Row(NamedTuple):
    """One row of a cache, outside of it."""

    length: int
    first: dict[int | None, int]  # window → the position in slot 0
    slots: list[list[Array]]  # layer after layer, keys and then values

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for arrays in self.slots for a in arrays)


class KVCache:
    """One batch of sequences: see the top of this file.

    model    whose keys and values these will be
    batch    rows
    storage  None: the model's numbers; "int8": a quarter of the bytes, and what Int8Slots says of the error
    block    slots by which arrays grow
    """

    def __init__(self, model: Any, batch: int, *, storage: str | None = None, block: int = 64) -> None:
        if storage not in STORAGE:
            raise ValueError(f'a cache stores the model\'s own numbers (None) or "int8", not {storage!r}')
        if isinstance(block, bool) or not isinstance(block, int | np.integer) or block < 1:
            raise ValueError(f"block, by how many slots a cache grows, is an integer, at least 1, not {block!r}")
        self.identity = ModelIdentity(model)
        self.storage, self.block = storage, int(block)
        self.lengths = np.zeros(batch, np.int64)  # tokens of each row
        self.memory_lengths: Array | None = None  # tokens of each row's source
        self.tracks: dict[int | None, Track] = {}
        self.layers = [self._layer(block.attention, batch) for block in model.decoder]
        # Of the step at hand:
        self.positions = np.zeros((batch, 0), np.int64)
        self.memory_mask: masks.Mask | None = None
        self._after = self.lengths

    def _layer(self, attention: Any, batch: int) -> Layer:
        window = None if attention.window is None else attention.window.size
        track = self.tracks.setdefault(window, Track(window, batch, self.block))
        layer = Layer(track, *(self._slots(batch, attention.kv_heads, width) for width in attention.widths))
        track.layers.append(layer)
        return layer

    def _slots(self, batch: int, heads: int, width: int) -> Slots:
        return STORAGE[self.storage](batch, heads, width, self.identity.dtype)

    def __getitem__(self, i: int) -> Layer:
        return self.layers[i]

    @property
    def fingerprint(self) -> str:
        """Of model, weights, number type and storage: equal ones may exchange rows."""
        return f"{self.identity.fingerprint} {self.storage}"

    # ------------------------------------------------------------------ one step

    def begin(self, T: int, counts: Array | None = None) -> None:
        """T new tokens for every row, of which counts[b] are real and the others padding, on the right."""
        before = self.lengths
        self._after = before + (T if counts is None else counts)
        # Padding stands where the last token does: no position is asked for that the row does not have.
        self.positions = np.minimum(before[:, None] + np.arange(T), np.maximum(self._after - 1, 0)[:, None])  # (B, T)
        for track in self.tracks.values():
            track.begin(before, self._after, self.positions, counts)
        if self.memory_lengths is not None:
            hi = np.repeat(self.memory_lengths[:, None], T, axis=1)
            self.memory_mask = masks.spans(np.zeros_like(hi), hi)

    def commit(self) -> None:
        """The new tokens are part of their rows from here on."""
        self.lengths = self._after

    def trim(self) -> None:
        """After a chunk longer than a window: back to the window's own size."""
        for track in self.tracks.values():
            track.trim(self.lengths)

    # ------------------------------------------------------------------ the memory of an encoder-decoder

    def remember(self, keys_and_values: list[tuple[Tensor, Tensor]], lengths: Array) -> None:
        """Of each layer the keys and values (B, H_kv, S, d) of the memory, of which row b has the first lengths[b]."""
        for layer, pair in zip(self.layers, keys_and_values):
            made = []
            for x in pair:
                B, heads, S, width = x.shape
                slots = self._slots(B, heads, width)
                slots.room(S)
                slots.write(x.data, np.zeros(B, np.int64), lengths)
                made.append(slots)
            layer.memory = made[0], made[1]
        self.memory_lengths = lengths

    @property
    def memory(self) -> list[tuple[Tensor, Tensor] | None]:
        """Keys and values of the memory, layer by layer."""
        return [
            None if layer.memory is None else tuple(wrap(slots.read(slots.x.shape[2])) for slots in layer.memory)  # type: ignore[misc]
            for layer in self.layers
        ]

    # ------------------------------------------------------------------ other rows, and back

    def select(self, rows: Array) -> None:
        """Row i becomes what row rows[i] was: rows may be dropped, put in another order, or repeated (a fork)."""
        for track in self.tracks.values():
            track.first = track.first[rows]
        for layer in self.layers:
            for slots in layer.slots:
                slots.take(rows)
        self.lengths = self.lengths[rows]
        if self.memory_lengths is not None:
            self.memory_lengths = self.memory_lengths[rows]

    def row(self, b: int) -> Row:
        """A copy of one row."""
        first = {window: int(track.first[b]) for window, track in self.tracks.items()}
        length = int(self.lengths[b])
        slots = [s.copy(b, length - first[layer.track.window]) for layer in self.layers for s in layer.written]
        return Row(length, first, slots)

    def can_go_back(self, row: Row, length: int) -> bool:
        """Whether a stored row can be gone on from after `length` tokens: has no window forgotten what is needed?"""
        lengths = np.array([length])
        return all(track.needed(lengths)[0] >= row.first[window] for window, track in self.tracks.items())

    def load_row(self, b: int, row: Row, length: int) -> None:
        """The empty row b becomes the first `length` tokens of a stored one."""
        for window, track in self.tracks.items():
            track.first[b] = row.first[window]
            if length - row.first[window] > track.capacity:
                track.room(length - row.first[window])
        stored = iter(row.slots)
        for layer in self.layers:
            for slots in layer.written:
                slots.paste(b, next(stored), length - row.first[layer.track.window])
        self.lengths = self.lengths.copy()
        self.lengths[b] = length

    def empty(self) -> None:
        """No row has a token."""
        self.lengths = np.zeros_like(self.lengths)
        for track in self.tracks.values():
            track.first = np.zeros_like(track.first)

    def truncate(self, lengths: Array) -> None:
        """Go back: row b keeps its first lengths[b] tokens."""
        lengths = lengths.astype(np.int64)  # (kernels read slots as such)
        wrong = (lengths < 0) | (lengths > self.lengths)
        if wrong.any():
            b = int(wrong.argmax())
            raise ValueError(f"truncate goes back: row {b} has {self.lengths[b]} tokens, and cannot keep {lengths[b]}")
        for track in self.tracks.values():
            gone = (lengths < self.lengths) & (track.needed(lengths) < track.first)
            if gone.any():
                b = int(gone.argmax())
                raise ValueError(
                    f"row {b} cannot go back to {lengths[b]} tokens: with a window of {track.window} the next one sees "
                    f"position {track.needed(lengths)[b]}, and positions before {track.first[b]} are forgotten"
                )
        self.lengths = lengths

    # ------------------------------------------------------------------ bytes

    @property
    def nbytes(self) -> int:
        """Of the tokens that are kept, as models/cost.py counts them."""
        total = 0
        for layer in self.layers:
            window = layer.track.window
            tokens = self.lengths.sum() if window is None else np.minimum(self.lengths, window).sum()
            total += int(tokens) * sum(slots.bytes_per_token for slots in layer.written)
            if layer.memory is not None and self.memory_lengths is not None:
                total += int(self.memory_lengths.sum()) * sum(slots.bytes_per_token for slots in layer.memory)
        return total

    @property
    def allocated(self) -> int:
        """Of all arrays: slots that wait to be written, scales, and what a window forgets only block by block."""
        return sum(slots.allocated for layer in self.layers for slots in layer.slots)
