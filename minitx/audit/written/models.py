"""Blocks, heads and whole models, written out."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx import nn
from minitx.audit.written.layers import mixture, real_tokens
from minitx.audit.written.twin import of, write
from minitx.models import Output, Transformer, parts

# ---------------------------------------------------------------------- blocks


@of(nn.PostNorm)
def _(F: Any, m: Any, x: Any, f: Any) -> Any:
    return write(F, m.norm, x + f(x))


@of(nn.PreNorm)
def _(F: Any, m: Any, x: Any, f: Any) -> Any:
    return x + f(write(F, m.norm, x))


@of(nn.BothNorm)
def _(F: Any, m: Any, x: Any, f: Any) -> Any:
    return x + write(F, m.norm_after, f(write(F, m.norm, x)))


@of(nn.EncoderBlock)
def _(F: Any, m: Any, x: Any, *, mask: Any = None, positions: Any = None, aux: Any = None) -> Any:
    x = write(F, m.attention_residual, x, lambda h: write(F, m.attention, h, mask=mask, positions=positions))
    return write(F, m.feedforward_residual, x, told(F, m.feedforward, mask, aux))


@of(nn.DecoderBlock)
def _(
    F: Any, m: Any, x: Any, memory: Any = None, *, mask: Any = None, memory_mask: Any = None, positions: Any = None,
    aux: Any = None,
) -> Any:
    T = x.shape[1]
    future = np.arange(T)[:, None] >= np.arange(T)  # (T, T), True = may see
    seen = future if mask is None else future & mask
    x = write(F, m.attention_residual, x, lambda h: write(F, m.attention, h, mask=seen, positions=positions))
    if memory is not None:
        cross = m.cross_attention
        x = write(F, m.cross_attention_residual, x, lambda h: write(F, cross, h, memory, mask=memory_mask))
    return write(F, m.feedforward_residual, x, told(F, m.feedforward, mask, aux))


def told(F: Any, m: Any, mask: Any, aux: Any) -> Callable[[Any], Any]:
    if isinstance(m.module, nn.MixtureOfExperts):
        return lambda h: mixture(F, m, h, mask=mask, aux=aux)
    return lambda h: write(F, m, h)


# ---------------------------------------------------------------------- heads


@of(nn.pool)
def pool(F: Any, hidden: Any, mask: Any = None, how: str = "mean") -> Any:
    """A product with one row of shares for each row of the batch."""
    B, T = hidden.shape[:2]
    real, share = real_tokens(mask, B, T), np.zeros((B, T))
    for b in range(B):
        places = np.flatnonzero(real[b])
        chosen = {"first": places[:1], "last": places[-1:], "mean": places}[how]
        share[b, chosen] = 1 / len(chosen)
    return (F.array(share)[:, None, :] @ hidden)[:, 0]


@of(nn.MaskedLanguageModelHead)
def _(F: Any, m: Any, hidden: Any, mask: Any = None) -> Any:
    return write(F, m.decoder, write(F, m.norm, getattr(F, m.activation)(write(F, m.dense, hidden))))


@of(nn.ClassificationHead)
def _(F: Any, m: Any, hidden: Any, mask: Any = None) -> Any:
    h = pool(F, hidden, mask, m.how)
    return write(F, m.out, h if m.dense is None else F.tanh(write(F, m.dense, h)))


@of(nn.TokenLabellingHead)
def _(F: Any, m: Any, hidden: Any, mask: Any = None) -> Any:
    return write(F, m.out, hidden)


@of(parts.LanguageModelHead)
def _(F: Any, m: Any, hidden: Any, mask: Any = None) -> Any:
    z = F.linear(hidden, m.weight, m.bias) * (1.0 if m.scale is None else m.scale)
    return z if m.softcap is None else F.tanh(z / m.softcap) * m.softcap


# ---------------------------------------------------------------------- whole models


@of(Transformer)
def _(F: Any, m: Any, *args: Any, **options: Any) -> Output:
    families: dict[str, Any] = {"decoder": decoder, "encoder": encoder, "encoder-decoder": encoder_decoder}
    losses: dict[str, Any] = {}
    logits, hidden = families[m.config.architecture](F, m, losses, *args, **options)
    return Output(logits, hidden, losses, {})


def decoder(F: Any, m: Any, losses: Any, ids: Any, *, mask: Any = None, positions: Any = None) -> Any:
    hidden = stack(F, m, "decoder", m.embedding, ids, losses, mask=mask, positions=positions)
    return write(F, m.head, hidden, mask), hidden


def encoder(
    F: Any, m: Any, losses: Any, ids: Any, *, mask: Any = None, positions: Any = None, segments: Any = None
) -> Any:
    hidden = stack(F, m, "encoder", m.embedding, ids, losses, segments, mask=mask, positions=positions)
    return write(F, m.head, hidden, mask), hidden


def encoder_decoder(
    F: Any, m: Any, losses: Any, ids: Any, target_ids: Any, *, mask: Any = None, target_mask: Any = None
) -> Any:
    memory = stack(F, m, "encoder", m.embedding, ids, losses, mask=mask)
    hidden = stack(
        F, m, "decoder", m.target_embedding, target_ids, losses, memory=memory, memory_mask=mask, mask=target_mask
    )
    return write(F, m.head, hidden, target_mask), hidden


def stack(
    F: Any, m: Any, name: str, embedding: Any, ids: Any, losses: Any, segments: Any = None, positions: Any = None,
    **options: Any,
) -> Any:
    """Embeddings with what is added to them, all blocks, and the norm at the end."""
    x = write(F, embedding, ids)  # (B, T, d_model)
    positions = np.arange(x.shape[1]) if positions is None else positions
    x = write(F, m.positions, x, positions)
    x = write(F, m.embedding_norm, write(F, m.segments, x, segments))
    for i, block in enumerate(getattr(m, name)):
        aux: dict[str, Any] = {}
        x = write(F, block, x, positions=positions, aux=aux, **options)
        losses.update({f"{name}.{i}.{loss}": value for loss, value in aux.items()})
    return write(F, getattr(m, f"{name}_norm"), x)
