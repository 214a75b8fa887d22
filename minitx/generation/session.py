"""A session: one batch of sequences that goes on, token by token, over a model and its KV cache.

    session = Session(model)
    logits = session.prefill(prompts, lengths)      # (B, V), at the last token of each prompt
    while ...:
        logits = session.step(logits.argmax(-1))    # (B, V), at the token just given

What a row gets is what it would get alone: the prompts of other rows, the side on which they are padded, and the number
of pieces in which they are read make no difference to it.
"""
from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minitx import masks, settings
from minitx.generation.cache import KVCache
from minitx.generation.cache_identity import ModelIdentity
from minitx.generation.mode import evaluating
from minitx.generation.prefix import PrefixCache
from minitx.generation.rows import to_the_left
from minitx.op import Op
from minitx.settings import no_grad
from minitx.tensor import Array, Tensor


class Session:
    """One batch of sequences being continued.

    model        a decoder; or an encoder-decoder, with the `memory` (B, S, d_model) that its encoder made
    memory_mask  which tokens of the memory are real: `padding(lengths)` on either side, or booleans (B, S)
    cache_dtype  None: keys and values are kept in the model's numbers; "int8": in a quarter of the bytes, with an error
                 (see cache_slots.py)
    block        slots by which the cache grows
    cache        go on with this one; it is refused unless it is of this very model

    `lengths` (B,) counts the tokens of each row; `nbytes` is what they take in the cache and `allocated` what the cache
    has taken from the system.
    """

    def __init__(
        self,
        model: Any,
        *,
        cache_dtype: str | None = None,
        memory: Tensor | None = None,
        memory_mask: Any = None,
        block: int = 64,
        cache: KVCache | None = None,
    ) -> None:
        if model.config.architecture == "encoder":
            raise ValueError("an encoder reads whole sequences and continues none: a session is for decoders")
        if model.config.head != "language-model":
            raise ValueError(f"a session asks a language-model head for the next token; this is {model.config.head!r}")
        if model.config.attention_kernel == "linear":
            raise ValueError("linear attention sums its keys up and has no use for a KV cache: generate without one")
        self.model = model
        self.options: dict[str, Any] = {"storage": cache_dtype, "block": block}
        self._cache = cache
        self._logits: Array | None = None  # what prefill or step returned last
        self._program: Any = None
        self._has_program = True
        if cache is not None:
            cache.identity.check(model)
            if cache_dtype not in (None, cache.storage):
                stored = cache.storage or "the model's own numbers"
                raise ValueError(f"this cache stores {stored}, not {cache_dtype}")
            cache.identity = ModelIdentity(model)  # from here on it is this one whose weights must not change
        if model.config.architecture == "encoder-decoder" and cache is None:
            if memory is None:
                raise ValueError("an encoder-decoder needs its sources: Session.from_source(model, ids, lengths)")
            with evaluating(model):
                x, lengths = to_the_left(memory.numpy(), mask=memory_mask)
                pairs = [block.cross_attention.keys_and_values(Tensor(x)) for block in model.decoder]
            self._cache = KVCache(model, len(x), **self.options)
            self._cache.remember(pairs, lengths)
        elif memory is not None:
            raise ValueError("a memory is for an encoder-decoder, and comes with a new cache")

    @classmethod
    def from_source(
        cls, model: Any, ids: Any, lengths: Any = None, *, mask: Any = None, side: str = "right", **options: Any
    ) -> Session:
        """For an encoder-decoder: reads the sources `ids` (B, S), once. Padding as in `prefill`."""
        ids, lengths = to_the_left(_integers(ids, 2), lengths, mask, side)
        real = masks.padding(lengths)
        with evaluating(model):
            memory = model.encode(ids, mask=real)
        return cls(model, memory=memory, memory_mask=real, **options)

    # ------------------------------------------------------------------ reading

    def prefill(
        self,
        ids: Any,
        lengths: Any = None,
        *,
        mask: Any = None,
        side: str = "right",
        prefixes: PrefixCache | None = None,
        tenants: str | Sequence[str] | None = None,
    ) -> Array:
        """ids (B, T) behind what is there already → logits (B, V) at the last token of each row.

        lengths  (B,) how many of the ids of each row are real, where `side` says on which side the others stand; or
        mask     the same as `padding(lengths, side)` or as booleans (B, T); neither: all are real

        A prompt is not empty; but where it is read in pieces a row may have ended before others, and keeps its logits.

        With `prefixes`, what a prompt begins with is taken from there, as far as the row's tenant has stored it (one
        name for all rows, or one a row), and the prompts are stored in turn.
        """
        ids, lengths = to_the_left(_integers(ids, 2), lengths, mask, side)
        empty = (lengths == 0) & (True if self._cache is None else self._cache_of(len(ids)).lengths == 0)
        if empty.any():
            raise ValueError(f"prompt {int(empty.argmax())} is empty: there is no token to go on from; begin with BOS")
        self._cache_of(len(ids))
        if prefixes is not None:
            return self._with_prefixes(ids, lengths, prefixes, tenants)
        if self._logits is None and not lengths.all():
            b = int(lengths.argmin())
            raise ValueError(f"row {b} has no token in this piece, and after truncate there are no older logits of it")
        whole = (lengths == ids.shape[1]).all()
        logits = self._read(ids, None if whole else lengths, np.maximum(lengths - 1, 0))[:, 0]
        if self._logits is not None and not lengths.all():
            logits = np.where(lengths[:, None] > 0, logits, self._logits)
        return self._returned(logits)

    def _returned(self, logits: Array) -> Array:
        self._logits = logits.copy()  # the caller may write into what it gets
        return logits

    def _with_prefixes(self, ids: Array, lengths: Array, prefixes: PrefixCache, tenants: Any) -> Array:
        cache = self.cache
        if cache.lengths.any() or cache.memory_lengths is not None:
            raise ValueError("prefixes are shared between the beginnings of texts, by decoders: prefill once, at first")
        tenants = list(tenants) if isinstance(tenants, list | tuple) else [tenants] * len(ids)
        if len(tenants) != len(ids):
            raise ValueError(f"tenants are one name, or one for each of the {len(ids)} rows, not {len(tenants)}")
        try:
            known = [prefixes.load(tenants[b], cache, b, ids[b, : lengths[b]]) for b in range(len(ids))]
            left = lengths - np.array(known, np.int64)
            rest = np.zeros((len(ids), left.max(initial=0)), ids.dtype)
            for b, row in enumerate(ids):
                rest[b, : left[b]] = row[known[b] : lengths[b]]
            logits = self._read(rest, left, left - 1, trim=False)[:, 0]
        except BaseException:
            cache.empty()  # as if nothing had been asked
            raise
        for b, row in enumerate(ids):  # before a window forgets how the prompt began
            prefixes.put(tenants[b], cache, b, row[: lengths[b]])
        cache.trim()
        return self._returned(logits)

    def step(self, ids: Any) -> Array:
        """One more token for each row, ids (B,) → logits (B, V)."""
        ids = _integers(ids, 1)
        if self._cache is None:
            raise ValueError("there is nothing to go on from yet: prefill comes before step")
        self._cache_of(len(ids))
        program = self._program_of(len(ids))
        if program is None:
            logits = self._read(ids[:, None], None, None)[:, 0]
        else:
            self.cache.identity.check_unchanged()
            self.cache.begin(1)
            with no_grad():
                logits = program(ids)
            self.cache.commit()
        return self._returned(logits)

    def _program_of(self, rows: int) -> Any:
        """The step as one list of kernel instructions, if there can be one and nobody has a hand in the ops."""
        now = settings.current.get()
        if not now.kernels or now.observer is not None or Op.replaced or self.model.training:
            return None
        if rows == 0:
            return None
        if self._has_program and (self._program is None or self._program.rows != rows):
            self._program = _program(self.model, self.cache)
            self._has_program = self._program is not None
        return None if self._program is not None and self._program.overridden else self._program

    def all_logits(self, ids: Any, lengths: Any = None, *, mask: Any = None, side: str = "right") -> Array:
        """As `prefill`, for the logits at every token: (B, T, V), rows from the left, zeros where there is no token."""
        ids, lengths = to_the_left(_integers(ids, 2), lengths, mask, side)
        self._cache_of(len(ids))
        logits = self._read(ids, lengths, None)
        if ids.size:
            last = logits[np.arange(len(ids)), lengths - 1]  # (B, V), a copy
            if self._logits is not None:
                self._logits = np.where(lengths[:, None] > 0, last, self._logits)
            elif ((lengths > 0) | (self.cache.lengths == 0)).all():
                self._logits = last
        logits[np.arange(ids.shape[1]) >= lengths[:, None]] = 0
        return logits

    def _cache_of(self, batch: int) -> KVCache:
        if self._cache is None:
            self._cache = KVCache(self.model, batch, **self.options)
        if batch != len(self._cache.lengths):
            raise ValueError(f"this session has {len(self._cache.lengths)} rows, and ids for {batch} arrived")
        return self._cache

    def _read(self, ids: Array, counts: Array | None, last: Array | None, trim: bool = True) -> Array:
        cache, model = self.cache, self.model
        cache.identity.check_unchanged()
        cache.begin(ids.shape[1], counts)
        with evaluating(model) if model.training else no_grad():
            out = model.decode(ids, memory_mask=cache.memory_mask, cache=cache, last=last)
        cache.commit()
        if trim:
            cache.trim()
        return out.logits.numpy()  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        """For copies: a program has the addresses of this session's arrays, and a copy makes its own."""
        return {**vars(self), "_program": None}

    def __deepcopy__(self, memo: Any) -> Session:
        """A fork of everything but the model."""
        fork = copy.copy(self)
        fork._cache = copy.deepcopy(self._cache, memo)
        return fork

    # ------------------------------------------------------------------ rows

    def keep(self, rows: Any) -> None:
        """Row i becomes what row rows[i] was. Rows that are not named are dropped, and cost nothing from here on."""
        rows = _integers(rows, 1)
        cache = self.cache
        if rows.size and (rows.min() < 0 or rows.max() >= len(cache.lengths)):
            raise IndexError(f"rows are among 0 ... {len(cache.lengths) - 1}, and {rows.tolist()} arrived")
        cache.select(rows)
        self._logits = None if self._logits is None else self._logits[rows]

    reorder = keep  # for beams: rows may come in any order, and repeat

    def truncate(self, lengths: Any) -> None:
        """Go back: row b keeps its first lengths[b] tokens; one number is for all rows."""
        lengths = np.broadcast_to(np.asarray(lengths), self.lengths.shape)
        self.cache.truncate(_integers(lengths, 1))
        self._logits = None

    # ------------------------------------------------------------------ what there is

    @property
    def cache(self) -> KVCache:
        if self._cache is None:
            raise ValueError("a session has its cache once it has read something: prefill comes first")
        return self._cache

    @property
    def lengths(self) -> Array:
        return self.cache.lengths.copy()

    @property
    def nbytes(self) -> int:
        return self.cache.nbytes

    @property
    def allocated(self) -> int:
        return self.cache.allocated


def incremental(
    model: Any,
    ids: Any,
    chunks: Iterable[int] | None = None,
    *,
    lengths: Any = None,
    side: str = "right",
    source: Any = None,
    source_lengths: Any = None,
    **options: Any,
) -> Array:
    """Logits (B, T, V) at all ids (B, T), read in pieces of `chunks` tokens (None: one by one): the same as at once.

    Rows stand at the left in the result, whatever the side, and are 0 beyond their lengths. `source` (B, S) is for an
    encoder-decoder, and padded on the same side.
    """
    ids, lengths = to_the_left(_integers(ids, 2), lengths, None, side)
    T = ids.shape[1]
    chunks = [1] * T if chunks is None else list(chunks)
    if sum(chunks) != T or min(chunks, default=1) < 1:
        raise ValueError(f"chunks are whole numbers that sum to the {T} tokens, not {chunks}")
    if source is None:
        session = Session(model, **options)
    else:
        session = Session.from_source(model, source, source_lengths, side=side, **options)
    pieces, start = [], 0
    for n in chunks:
        here = np.clip(lengths - start, 0, n)
        if n == 1 and start > 0 and here.all():
            pieces.append(session.step(ids[:, start])[:, None])
        else:
            pieces.append(session.all_logits(ids[:, start : start + n], here))
        start += n
    return np.concatenate([np.pad(p, ((0, 0), (0, n - p.shape[1]), (0, 0))) for p, n in zip(pieces, chunks)], axis=1)


def _program(model: Any, cache: KVCache) -> Any:
    """None where the model has a part that no instruction does, or this machine no kernels."""
    try:
        from minitx.generation.program import Program, Unsupported
    except ModuleNotFoundError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        return None
    try:
        return Program(model, cache)
    except (Unsupported, NotImplementedError):
        return None


def _integers(values: Any, axes: int) -> Array:
    ids = np.asarray(values)
    ids = ids if ids.size else ids.astype(np.int64)  # (an empty list)
    if ids.ndim != axes or ids.dtype.kind not in "iu":
        shape = "(B,)" if axes == 1 else "(B, T)"
        raise ValueError(f"these are integers of shape {shape}, not {ids.dtype} of shape {ids.shape}")
    return ids
