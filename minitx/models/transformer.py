"""The Transformer: embeddings, a stack or two of blocks, and a head that turns hidden vectors into scores of tokens.

models/builder.py reads the configuration; the forward passes only follow the data.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from minitx.masks import as_mask
from minitx.models.builder import Builder
from minitx.models.config import TransformerConfig
from minitx.nn import Aux, Dropout, Module, Usage
from minitx.op import Array
from minitx.tensor import Tensor


class Output(NamedTuple):
    """What a model returns; nothing is stored on modules."""

    logits: Tensor  # (B, T, V) scores for the next token; of a classification head (B, classes)
    hidden: Tensor  # (B, T, d_model) the vectors that the head reads
    aux_losses: dict[str, Tensor]  # further terms of the loss, by name: "decoder.0.balance", ...
    weights: dict[str, Array]  # with weights=True: "encoder.0.self", "decoder.0.cross", ... → (B, H, T, S)
    usage: dict[str, Usage] | None = None  # what the experts of each layer had to do: "decoder.0", ...


class Transformer(Module):
    """The model of a configuration, with weights that depend on `rng` alone; dropout draws from the same generator.

    encoder-decoder: `model(ids, target_ids, mask=..., target_mask=...)`, ids (B, S) the source, target_ids (B, T) what
    the decoder reads (the target shifted right). `mask` says which source tokens are real, for the encoder and for
    cross-attention; `target_mask` the same of the target. decoder, encoder: `model(ids, mask=...)`; in a decoder the
    causal mask is always added inside. `positions` (T) or (B, T) are 0 ... T-1 unless given, `segments` (B, T) or (T,)
    all 0. Of a model for images, ids are patches (B, N, patch_dim), and T is N + 1. Returns an `Output`.
    """

    def __init__(self, config: TransformerConfig, *, rng: np.random.Generator) -> None:
        self.config, self.rng = config, rng
        build = Builder(config, rng)
        self.run: Callable[..., Output] = FAMILIES[config.architecture]
        self.read: Callable[[Any], Any] = _as_ids if config.patch_dim is None else np.asarray
        self.embedding = build.embedding()
        self.positions = build.positions()
        self.segments = build.segments()
        self.embedding_norm = build.embedding_norm()
        self.dropout = Dropout(config.dropout, rng=rng)
        if config.architecture == "encoder-decoder":
            self.target_embedding = self.embedding if config.tie_embeddings else build.embedding()
        if config.architecture != "decoder":
            self.encoder = build.encoder()
            self.encoder_norm = build.final_norm()
        if config.architecture != "encoder":
            self.decoder = build.decoder()
            self.decoder_norm = build.final_norm()
        self.head = build.head(self.embedding)

    def forward(
        self,
        ids: Any,
        target_ids: Any = None,
        *,
        mask: Any = None,
        target_mask: Any = None,
        segments: Any = None,
        positions: Any = None,
        cache: Any = None,
        weights: bool = False,
    ) -> Output:
        return self.run(
            self, ids, target_ids, mask=mask, target_mask=target_mask, segments=segments, positions=positions,
            cache=cache, weights=weights,
        )  # fmt: skip

    def encode(
        self,
        ids: Any,
        *,
        mask: Any = None,
        segments: Any = None,
        positions: Any = None,
        record: dict[str, Array] | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        """ids (B, S) → memory (B, S, d_model); `record` receives the attention weights, `aux` further losses."""
        x = self.embedding(self.read(ids))  # (B, S, d_model)
        positions = np.arange(x.shape[1]) if positions is None else np.asarray(positions)
        x = self.inputs(x, positions, segments)
        for i, block in enumerate(self.encoder):
            seen: dict[str, Array] | None = None if record is None else {}
            said = None if aux is None else aux.at(f"encoder.{i}")
            x = block(x, mask=mask, positions=positions, record=seen, aux=said)
            _keep(record, f"encoder.{i}", seen)
        memory: Tensor = self.encoder_norm(x)
        return memory

    def decode(
        self,
        ids: Any,
        memory: Tensor | None = None,
        *,
        mask: Any = None,
        memory_mask: Any = None,
        segments: Any = None,
        positions: Any = None,
        cache: Any = None,
        last: Array | None = None,
        weights: bool = False,
        aux: Aux | None = None,
    ) -> Output:
        """ids (B, T), and for an encoder-decoder the memory (B, S, d_model) → Output.

        `cache`, where given, knows of all tokens before these (generation/cache.py): `cache[i]` of layer i the keys and
        values, `cache.memory[i]` those of the memory, and `cache.positions` where the new tokens stand. `last` (B,),
        the place of one token of each row, asks for the logits of these tokens only, (B, 1, V).
        """
        asked = [memory] * len(self.decoder) if cache is None else cache.memory
        embed = self.embedding if asked[0] is None else self.target_embedding
        x = embed(self.read(ids))  # (B, T, d_model)
        if positions is None:
            positions = np.arange(x.shape[1]) if cache is None else cache.positions
        x = self.inputs(x, np.asarray(positions), segments)
        aux = Aux() if aux is None else aux
        record: dict[str, Array] | None = {} if weights else None
        for i, block in enumerate(self.decoder):
            seen: dict[str, Array] | None = None if record is None else {}
            x = block(
                x, asked[i], mask=mask, memory_mask=memory_mask, positions=positions,
                cache=None if cache is None else cache[i], record=seen, aux=aux.at(f"decoder.{i}"),
            )  # fmt: skip
            _keep(record, f"decoder.{i}", seen)
        hidden = self.decoder_norm(x)
        if last is not None:
            hidden = hidden[np.arange(len(last)), last][:, None]  # (B, 1, d_model)
        return Output(self.scores(hidden, mask), hidden, aux.losses, record or {}, aux.usage)

    def inputs(self, x: Tensor, positions: Array, segments: Any) -> Tensor:
        """Embedded tokens, with what is added to them: (B, T, d_model) → (B, T, d_model)."""
        y: Tensor = self.dropout(self.embedding_norm(self.segments(self.positions(x, positions), segments)))
        return y

    def scores(self, hidden: Tensor, mask: Any) -> Tensor:
        """hidden (B, T, d_model) → logits. A plain boolean array is about pairs of tokens, as attention has read it."""
        logits: Tensor = self.head(hidden, None if mask is None else as_mask(mask))
        return logits


# ---------------------------------------------------------------------- the three families


def _encoder_decoder(
    model: Transformer, ids: Any, target_ids: Any, *, mask: Any, target_mask: Any, weights: bool, **options: Any
) -> Output:
    if target_ids is None:
        raise TypeError("an encoder-decoder reads two sequences: model(ids, target_ids)")
    record: dict[str, Array] | None = {} if weights else None
    aux = Aux()
    memory = model.encode(ids, mask=mask, segments=options["segments"], record=record, aux=aux)
    out = model.decode(target_ids, memory, mask=target_mask, memory_mask=mask, weights=weights, aux=aux, **options)
    return out._replace(weights={**(record or {}), **out.weights})


def _decoder(model: Transformer, ids: Any, target_ids: Any, *, target_mask: Any, **options: Any) -> Output:
    if target_ids is not None:
        raise TypeError("a decoder-only model reads one sequence, model(ids); it has no place for target_ids")
    return model.decode(ids, None, **options)


def _encoder(
    model: Transformer, ids: Any, target_ids: Any, *, mask: Any, target_mask: Any, segments: Any, positions: Any,
    cache: Any, weights: bool,
) -> Output:  # fmt: skip
    if target_ids is not None or cache is not None:
        raise TypeError("an encoder reads one whole sequence, model(ids): no target_ids, and no cache, which is for "
                        "stacks that go on token by token")  # fmt: skip
    record: dict[str, Array] | None = {} if weights else None
    aux = Aux()
    hidden = model.encode(ids, mask=mask, segments=segments, positions=positions, record=record, aux=aux)
    return Output(model.scores(hidden, mask), hidden, aux.losses, record or {}, aux.usage)


FAMILIES: dict[str, Callable[..., Output]] = {
    "encoder-decoder": _encoder_decoder,
    "decoder": _decoder,
    "encoder": _encoder,
}


def _as_ids(given: Any) -> Array:
    ids: Array = np.asarray(given)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(f"ids are integers of shape (batch, length), not {ids.dtype} of shape {ids.shape}")
    return ids


def _keep(record: dict[str, Array] | None, block: str, seen: dict[str, Array] | None) -> None:
    if record is not None and seen is not None:
        record.update({f"{block}.{name}": w for name, w in seen.items()})
