"""The leaks that no loss curve shows: who sees what they must not see. One function a row.

Each changes what must not matter and looks whether anything moves. A mask that is wrong by one place trains faster and
reaches a lower loss, because the answer can be seen: only such tests tell it from a good model.
"""
from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from minitx import masks
from minitx.audit.finding import Finding, found
from minitx.audit.subject import Subject
from minitx.data.packing import pack
from minitx.op import Array
from minitx.tensor import Tensor


def future(s: Subject) -> Finding:
    """Change token j alone, for every j, and look at the logits before it."""
    if not s.causal:
        return Finding("future", None, said="an encoder sees both sides by design")
    if not s.by_place:
        return Finding("future", None, said="it has one answer a row")
    sources, ids = _inputs(s, 1)
    before, moves = s(*sources, ids), np.zeros((1, s.length))
    by = np.zeros(s.length, int)
    for j in range(1, s.length):
        move = s.moves(s(*sources, s.changed(ids, np.arange(s.length)[None] == j)), before)[0]
        larger = (move > moves[0]) & (np.arange(s.length) < j)
        moves[0, larger], by[larger] = move[larger], j
    finding = found("future", moves, s.tolerance, "position {t} moves by {size:.2g} of the largest logit")
    if not finding.at:
        return finding
    j = int(by[finding.at[1]])
    return Finding("future", True, finding.size, finding.at, j, f"{finding.said} when token {j} is changed")


def padding(s: Subject) -> Finding:
    """Change what is padded in one row, on the right and on the left, and look at what is not, in the same row."""
    if "mask" not in s.takes:
        return Finding("padding", None, said="it takes no mask=, so every token is real to it")
    (sources, ids), lengths = _inputs(s, 3), _lengths(s)
    finding = Finding("padding", False)
    for side in ("right", "left"):
        mask = masks.padding(lengths, side)
        real = mask.dense(3, 1, s.length)[:, 0]
        moves = np.zeros((3, s.length))
        for b in range(1, 3):  # (row 0 has none)
            where = ~real & (np.arange(3) == b)[:, None]
            for after, before in _both(s, sources, ids, where, mask):
                moved = s.moves(after, before)[b]
                moves[b] = np.maximum(moves[b], np.where(real[b], moved, 0) if moved.shape == real[b].shape else moved)
        said = f"row {{b}}, position {{t}} moves by {{size:.2g}} when what is padded on the {side} is changed"
        finding = found("padding", moves, s.tolerance, said)
        if finding.leak:
            break
    return finding


def _both(s: Subject, sources: tuple[Array, ...], ids: Array, where: Array, mask: Any) -> Iterator[tuple[Array, Array]]:
    """(after, before) of what has places: logits, and of an encoder-decoder also its memory."""
    if not sources:
        yield s(s.changed(ids, where), mask=mask), s(ids, mask=mask)
    if sources and "target_mask" in s.takes:
        yield s(*sources, s.changed(ids, where), target_mask=mask), s(*sources, ids, target_mask=mask)
    if sources and hasattr(s.model, "encode"):
        yield _encoded(s, s.changed(sources[0], where), mask), _encoded(s, sources[0], mask)


def cross_attention(s: Subject) -> Finding:
    """Put other vectors where the memory is padding (where the model has no memory to reach: other source tokens)."""
    if s.family != "encoder-decoder":
        return Finding("cross-attention", None, said=f"{_a(s.family)} has none")
    if "mask" not in s.takes:
        return Finding("cross-attention", None, said="it takes no mask=, so every source token is real to it")
    (source,), ids = _inputs(s, 3)
    lengths = _lengths(s)
    mask, real = masks.padding(lengths), np.arange(s.length) < lengths[:, None]
    if hasattr(s.model, "decode"):
        memory = _encoded(s, source, mask)
        other = np.where(real[..., None], memory, 3 * s.rng.standard_normal(memory.shape)).astype(memory.dtype)
        before, after = (_decoded(s, ids, m, mask) for m in (memory, other))
    else:
        before, after = (s(x, ids, mask=mask) for x in (source, s.changed(source, ~real)))
    said = "row {b}, position {t} moves by {size:.2g} when the memory of padded source tokens is changed"
    return found("cross-attention", s.moves(after, before), s.tolerance, said)


def batch(s: Subject, padding_is_read: bool) -> Finding:
    """Change everything in the other rows, and their lengths; then take each row out of the batch."""
    lengths, (sources, ids) = _lengths(s), _inputs(s, 3)
    names = {"mask"} if not sources else {"mask", "target_mask"}
    names &= s.takes
    before = s(*sources, ids, **dict.fromkeys(names, masks.padding(lengths)))
    moves = np.zeros((3, s.length if before.ndim == 3 else 1))
    for b in range(3):
        others = np.broadcast_to((np.arange(3) != b)[:, None], (3, s.length))
        now = np.where(np.arange(3) == b, lengths, s.length + 1 - lengths)
        options = dict.fromkeys(names, masks.padding(now))
        after = s(*(s.changed(x, others) for x in (*sources, ids)), **options)
        real = np.arange(moves.shape[1]) < (lengths[b] if names else s.length)
        moves[b] = np.where(real, s.moves(after, before)[b], 0)
    said = "row {b}, position {t} moves by {size:.2g} when other rows are changed"
    finding = found("batch", moves, s.tolerance, said)
    if finding.leak or not names or padding_is_read:
        return finding
    for b, n in enumerate(lengths):
        n_tokens = n - (s.patch_dim is not None)  # (the vector in front is no patch)
        alone = s(*(x[b : b + 1, :n_tokens] for x in (*sources, ids)))
        there = before[b : b + 1, :n] if before.ndim == 3 else before[b : b + 1]
        moves[b] = 0
        moves[b, : alone.shape[1] if before.ndim == 3 else 1] = s.moves(alone, there)[0]
    return found("batch", moves, s.tolerance, "row {b}, position {t} is other by {size:.2g} when it is alone")


def documents(s: Subject) -> Finding:
    """Pack three documents; change one, and look at the others; then take each out of the row."""
    if s.family == "encoder-decoder":
        return Finding("documents", None, said="pairs of source and target are not packed")
    if s.patch_dim is not None:
        return Finding("documents", None, said="images are not packed")
    if not s.by_place:
        return Finding("documents", None, said="it has one answer a row")
    if missing := {"mask", "positions"} - s.takes:
        return Finding("documents", None, said=f"it takes no {' and no '.join(f'{n}=' for n in sorted(missing))}")
    n = s.length
    texts = np.split(s.draw(1)[0], [n // 3, 2 * n // 3, n - 1])[:3]  # and one place left over
    packed = pack(texts, n, [[0, 1, 2]])
    options = {"mask": packed.mask, "positions": packed.positions}
    try:
        before = s(packed.ids, **options)
    except ValueError as refusal:  # linear attention knows no documents, and says so
        return Finding("documents", None, said=str(refusal))
    moves = np.zeros((1, n))
    for k in range(3):
        after = s(s.changed(packed.ids, packed.documents == k), **options)
        others = (packed.documents != k) & (packed.documents >= 0)
        moves = np.maximum(moves, np.where(others, s.moves(after, before), 0))
    said = "position {t} moves by {size:.2g} when another document is changed"
    finding = found("documents", moves, s.tolerance, said)
    if finding.leak:
        return finding
    for k, text in enumerate(texts):
        mine = packed.documents[0] == k
        moves[0, mine] = s.moves(s(text[None]), before[:, mine])[0]
    return found("documents", moves, s.tolerance, "position {t} is other by {size:.2g} when its document is alone")


def incremental(s: Subject) -> Finding:
    """The logits of a model with a cache, token by token, beside those of one pass over everything."""
    if not s.causal:
        return Finding("incremental", None, said="an encoder reads the whole at once")
    if not s.by_place:
        return Finding("incremental", None, said="it has one answer a row")
    if not hasattr(s.model, "decode"):
        return Finding("incremental", None, said="a function has no cache that could be tried")
    step = token_by_token()
    if step is None:
        return Finding("incremental", None, said="later: there is no cache yet")
    sources, ids = _inputs(s, 2)
    try:
        logits = s.array(step(s.model, ids, **({"source": sources[0]} if sources else {})))
    except ValueError as refusal:  # linear attention, dynamic scaling: there the cache says why it cannot be
        return Finding("incremental", None, said=str(refusal))
    said = "row {b}, position {t} is other by {size:.2g} with the cache"
    return found("incremental", s.moves(logits, s(*sources, ids)), s.tolerance, said)


def token_by_token() -> Any:
    """`incremental(model, ids, source=None) → logits`, or None where there is no cache."""
    try:
        return getattr(importlib.import_module("minitx.generation.session"), "incremental", None)
    except ModuleNotFoundError:
        return None


# ---------------------------------------------------------------------- small things


def _inputs(s: Subject, batch: int) -> tuple[tuple[Array, ...], Array]:
    """(the source, if there is one), and the ids whose places have logits."""
    return ((s.draw(batch),) if s.family == "encoder-decoder" else ()), s.draw(batch)


def _lengths(s: Subject) -> Array:
    """Three lengths, all different, the first the whole row."""
    return np.array([s.length, (s.length + 1) // 2 + 1, 2])


def _encoded(s: Subject, source: Array, mask: Any) -> Array:
    with s.calm():
        memory: Array = s.model.encode(source, mask=mask).numpy()
    return memory


def _decoded(s: Subject, ids: Array, memory: Array, mask: Any) -> Array:
    with s.calm():
        return s.array(s.model.decode(ids, Tensor(memory), memory_mask=mask))


def _a(family: str) -> str:
    return f"{'an' if family[0] in 'aeiou' else 'a'} {family}"
