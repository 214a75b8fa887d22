"""Greedy decoding: say the likeliest symbol, append it, ask again. The definition of generation, without a cache.

    y_t = argmax_v  p(v | y_1 .. y_(t-1), x)        until EOS, or max_new symbols

Each step runs the model on everything said so far, T steps over 1 .. T places. What another row of the batch holds, how
long it is and when it ends makes no difference to a row.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from minitx.data.tokenizer import BOS, EOS, PAD
from minitx.settings import no_grad
from minitx.tensor import Array


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Inside: no dropout and no tape. Afterwards every module is in the mode in which it was."""
    before = [(module, module.training) for _, module in model.modules()]
    model.eval()
    try:
        with no_grad():
            yield
    finally:
        for module, training in before:
            module.training = training


Pick = Callable[[Array], Array]  # logits (rows, V) → the id that each row says (rows,)


def likeliest(logits: Array) -> Array:
    return logits.argmax(-1)  # type: ignore[no-any-return]


def drawn(rng: np.random.Generator, temperature: float = 1.0) -> Pick:
    """Draw from softmax(logits / temperature): where logits / temperature + Gumbel noise is largest, is such a draw.

    For running text, where the likeliest symbol at every step soon goes round in circles.
    """
    return lambda logits: (logits / temperature + rng.gumbel(size=logits.shape)).argmax(-1)


def greedy(
    model: Any,
    ids: Any,
    *,
    mask: Any = None,
    max_new: int,
    eos: int | None = EOS,
    bos: int = BOS,
    pick: Pick = likeliest,
) -> list[Array]:
    """The new ids of each row, EOS not among them.

    model    a Transformer of either architecture
    ids      (B, T)  sources of an encoder-decoder, prompts of a decoder, padded on the right
    mask     what in `ids` is real, as `padding(lengths)` or boolean (B, T); None: everything
    max_new  at most so many new ids a row
    eos      the id that ends a row; None: rows end by `max_new` only
    pick     how a row's next id follows from its logits; with anything but `likeliest` this is no longer greedy
    """
    ids = np.asarray(ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"ids are integers (rows, places), not {ids.dtype} {ids.shape}; a single prompt is ids[None]")
    if max_new < 0:
        raise ValueError(f"max_new is at least 0, not {max_new}")
    with evaluating(model):
        if model.config.architecture == "decoder":
            return _continue(model, ids, _lengths(mask, ids), max_new, eos, pick)
        return _translate(model, ids, mask, max_new, eos, bos, pick)


def _translate(
    model: Any, ids: Array, mask: Any, max_new: int, eos: int | None, bos: int, pick: Pick
) -> list[Array]:
    """Encoder-decoder: the source is read once; the target grows from BOS."""
    if max_new > model.config.max_length:
        raise ValueError(f"max_new {max_new} is more than the model's {model.config.max_length} positions (max_length)")
    out = np.full((len(ids), max_new + 1), PAD, np.int64)
    out[:, 0] = bos
    ends = np.ones(len(ids), np.int64)  # row i so far: out[i, :ends[i]]
    live = np.arange(len(ids))
    memory = model.encode(ids, mask=mask) if len(ids) else None  # (B, S, d)
    for t in range(1, max_new + 1):
        if not len(live):
            break
        logits = model.decode(out[:, :t], memory, memory_mask=mask).logits.numpy()[live, -1]  # (live, V)
        said = pick(_numbers(logits))
        on = said != eos
        live, said = live[on], said[on]
        out[live, t] = said
        ends[live] += 1
    return [row[1:end] for row, end in zip(out, ends)]


def _continue(model: Any, ids: Array, lengths: Array, max_new: int, eos: int | None, pick: Pick) -> list[Array]:
    """Decoder: each row goes on where its own prompt ends, over its padding.

    A causal model never looks at what stands to the right, so padding there needs no mask; but the next symbol is read
    off at the row's own last place, not at the last column. Beyond max_length the model sees the latest max_length ids.
    """
    if len(ids) and lengths.min() < 1:
        raise ValueError(f"prompt {int(lengths.argmin())} is empty; a decoder needs at least one id to go on from")
    out = np.full((len(ids), ids.shape[1] + max_new), PAD, np.int64)
    out[:, : ids.shape[1]] = ids
    ends = lengths.copy()
    live = np.arange(len(ids))
    for _ in range(max_new):
        if not len(live):
            break
        starts = np.maximum(ends[live] - model.config.max_length, 0)
        width = int((ends[live] - starts).max())
        seen = np.take_along_axis(out[live], starts[:, None] + np.arange(width), axis=1)  # (live, width)
        logits = model(seen).logits.numpy()[np.arange(len(live)), ends[live] - starts - 1]  # (live, V)
        said = pick(_numbers(logits))
        on = said != eos
        live, said = live[on], said[on]
        out[live, ends[live]] = said
        ends[live] += 1
    return [row[start:end] for row, start, end in zip(out, lengths, ends)]


def _numbers(logits: Array) -> Array:
    if np.isnan(logits).any():
        raise ValueError("the model's logits are not numbers (NaN): its weights are damaged, or training has diverged")
    return logits


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
