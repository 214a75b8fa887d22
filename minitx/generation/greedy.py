"""Greedy decoding: say the likeliest symbol, append it, ask again.

    y_t = argmax_v  p(v | y_1 .. y_(t-1), x)        until EOS, or max_new symbols

The loop alone, for whole batches of ids: what evaluation runs on. (`generate` has everything that one may want
besides.) What another row of the batch holds, how long it is and when it ends makes no difference to a row.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minitx import masks
from minitx.data.tokenizer import BOS, EOS
from minitx.generation.mode import evaluating
from minitx.generation.sampling import checked
from minitx.generation.session import Session
from minitx.generation.stopping import eos_ids
from minitx.generation.uncached import Sliding, Uncached, why_not_cached
from minitx.tensor import Array


def greedy(
    model: Any,
    ids: Any,
    *,
    mask: Any = None,
    max_new: int,
    eos: int | Iterable[int] | None = EOS,
    bos: int = BOS,
    cache: bool | None = None,
) -> list[Array]:
    """The new ids of each row, EOS not among them.

    model    a Transformer of either architecture
    ids      (B, T)  sources of an encoder-decoder, prompts of a decoder, padded on the right
    mask     what in `ids` is real, as `padding(lengths)` or boolean (B, T); None: everything
    max_new  at most so many new ids a row; beyond max_length a decoder sees the latest max_length ids
    eos      the id, or ids, that end a row; None: rows end by `max_new` only
    cache    False: the model runs on everything at every step, which is the definition (uncached.py); None: only where
             a model cannot be cached
    """
    ids = np.asarray(ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"ids are integers (rows, places), not {ids.dtype} {ids.shape}; a single prompt is ids[None]")
    if max_new < 0:
        raise ValueError(f"max_new is at least 0, not {max_new}")
    ends = np.array(sorted(eos_ids(eos)), np.int64)
    said = np.zeros((len(ids), max_new), np.int64)
    lengths = np.zeros(len(ids), np.int64)  # row i so far: said[i, : lengths[i]]
    if not said.size:
        return list(said)
    cache = why_not_cached(model) is None if cache is None else cache
    with evaluating(model):
        session, logits = _begin(model, ids, mask, max_new, bos, Session if cache else Uncached)
        live = np.arange(len(ids))
        for t in range(max_new):
            new = checked(logits).argmax(-1)  # (live,)
            on = ~np.isin(new, ends)
            live, new = live[on], new[on]
            said[live, t] = new
            lengths[live] += 1
            if not len(live) or t + 1 == max_new:
                break
            if not on.all():
                session.keep(np.flatnonzero(on))  # rows that have ended cost nothing any more
            logits = session.step(new)
    return [row[:n] for row, n in zip(said, lengths)]


def _begin(model: Any, ids: Array, mask: Any, max_new: int, bos: int, begin: Any) -> tuple[Any, Array]:
    """A session that has read the prompts, or sources and BOS, and its first logits (B, V)."""
    if model.config.architecture == "decoder":
        lengths = _lengths(mask, ids)
        if lengths.min() < 1:
            raise ValueError(f"prompt {int(lengths.argmin())} is empty; a decoder needs at least one id to go on from")
        session = Sliding(begin(model), model)
        return session, session.prefill(ids, lengths)
    if max_new > model.config.max_length:
        raise ValueError(f"max_new {max_new} is more than the model's {model.config.max_length} positions (max_length)")
    mask = masks.padding(np.full(len(ids), ids.shape[1])) if mask is None else mask
    session = begin(model, memory=model.encode(ids, mask=mask), memory_mask=mask)
    return session, session.prefill(np.full((len(ids), 1), bos))


def _lengths(mask: Any, ids: Array) -> Array:
    """How many ids of each row are real, from a mask that pads on the right."""
    B, T = ids.shape
    if mask is None:
        return np.full(B, T)
    real = np.asarray(mask if isinstance(mask, np.ndarray | list) else mask.dense(B, 1, T))
    real = np.broadcast_to(real.reshape(-1, T), (B, T))
    lengths = real.sum(1)
    if real.dtype != bool or (real != (np.arange(T) < lengths[:, None])).any():
        raise ValueError("prompts are padded on the right: give mask=padding(lengths), or booleans (rows, places)")
    return lengths  # type: ignore[no-any-return]
