"""A whole minitx model in PyTorch: the way out for those who outgrow NumPy.

    theirs = to_torch(model)        a TorchTransformer with the same weights (fresh ones: of a fresh model)
    theirs(ids).logits              equal; then .cuda(), torch.compile, an optimizer of torch.optim
    model = from_torch(theirs)      and back

It runs every configuration, with the parameter names of minitx. What it leaves to minitx: caches and generation,
attention weights as a result, the experts' usage statistics, the initial weights.
"""
# mypy: allow-subclassing-any
# (types are checked without PyTorch too, and nn.Module is then Any)
from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from minitx.interop.torch.layers import PHI, AlibiBias, Block, RelativeBias, both, norm
from minitx.models.config import TransformerConfig
from minitx.nn.positions import sinusoidal
from minitx.ops.feedforward import GATES
from minitx.ops.rotary import rotary_table


class TorchOutput(NamedTuple):
    logits: Tensor  # (B, T, V); of a classification head (B, classes)
    hidden: Tensor  # (B, T, d_model)
    aux_losses: dict[str, Tensor]  # "decoder.0.balance", ...


class TorchTransformer(nn.Module):
    """Called as a minitx Transformer is: model(ids, target_ids=None, *, mask, target_mask, segments, positions).

    Masks are boolean tensors, True = real or may attend: (B, T), which tokens are real (what `padding(lengths)` says),
    or (B or 1, T, S), who may see whom. A decoder adds its causal mask itself.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.config = c = config
        self.embedding = PatchEmbedding(c) if c.patch_dim is not None else nn.Embedding(c.vocab_size, c.d_model)
        if c.position == "learned":
            self.positions = Table(c.max_length, c.d_model)
        if c.segments:
            self.segments = Table(c.segments, c.d_model)
        self.embedding_norm = norm(c, c.d_model) if c.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(c.dropout)
        crosses = c.architecture == "encoder-decoder"
        if crosses:
            self.target_embedding = self.embedding if c.tie_embeddings else nn.Embedding(c.vocab_size, c.d_model)
        if c.architecture != "decoder":
            self.encoder, self.encoder_norm = self.stack(bidirectional=True, crosses=False), self.final_norm()
        if c.architecture != "encoder":
            self.decoder, self.decoder_norm = self.stack(bidirectional=False, crosses=crosses), self.final_norm()
        self.head = HEADS[c.head](c)
        if c.tie_embeddings and c.patch_dim is None:
            if c.head == "language-model":
                self.head.weight = self.embedding.weight
            elif c.head == "masked-lm":
                self.head.decoder.weight = self.embedding.weight

    def stack(self, bidirectional: bool, crosses: bool) -> nn.ModuleList:
        c = self.config
        bias: nn.Module | None = None  # one for all layers
        if c.position == "alibi":
            bias = AlibiBias(c.heads)
        elif c.position == "relative":
            bias = RelativeBias(c, bidirectional)
        return nn.ModuleList(Block(c, i, bias, crosses) for i in range(c.layers))

    def final_norm(self) -> nn.Module:
        return nn.Identity() if self.config.norm_placement == "post" else norm(self.config, self.config.d_model)

    # ------------------------------------------------------------------ forward

    def forward(
        self,
        ids: Tensor,
        target_ids: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        target_mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> TorchOutput:
        if (target_ids is not None) != (self.config.architecture == "encoder-decoder"):
            raise TypeError("an encoder-decoder reads two sequences, model(ids, target_ids); every other model one")
        aux: dict[str, Tensor] = {}
        memory: Any = None
        if self.config.architecture != "decoder":
            x, angles = self.inputs(self.embedding, ids, segments, positions)
            see, real = look(mask)
            for i, block in enumerate(self.encoder):
                said: dict[str, Tensor] = {}
                x = block(x, see, angles, real, said)
                aux.update({f"encoder.{i}.{name}": loss for name, loss in said.items()})
            memory = self.encoder_norm(x)
        if self.config.architecture == "encoder":
            return TorchOutput(self.head(memory, mask), memory, aux)

        given, of_target = (ids, mask) if memory is None else (target_ids, target_mask)
        embed = self.embedding if memory is None else self.target_embedding
        x, angles = self.inputs(embed, given, segments, positions)
        T = x.shape[1]
        see, real = look(of_target)
        see = both(see, torch.ones(1, 1, T, T, dtype=torch.bool, device=x.device).tril())
        for i, block in enumerate(self.decoder):
            said = {}
            x = block(x, see, angles, real, said, memory, look(mask)[0])
            aux.update({f"decoder.{i}.{name}": loss for name, loss in said.items()})
        hidden = self.decoder_norm(x)
        return TorchOutput(self.head(hidden, of_target), hidden, aux)

    def inputs(self, embed: nn.Module, ids: Any, segments: Tensor | None, positions: Tensor | None) -> tuple[Any, Any]:
        """Vectors (B, T, d_model), and cos and sin for rotary positions."""
        c = self.config
        x = embed(ids)
        if c.scale_embeddings and c.patch_dim is None:
            x = x * math.sqrt(c.d_model)
        at = torch.arange(x.shape[1], device=x.device) if positions is None else positions  # (T,) or (B, T)
        angles = None
        if c.position == "learned":
            x = x + self.positions(at)
        elif c.position == "sinusoidal":
            x = x + torch.from_numpy(sinusoidal(at.cpu().numpy(), c.d_model)).to(x)
        elif c.position == "rotary":
            table = rotary_table(at.cpu().numpy(), c.rope_dim or c.head_width, c.rope_base, c.rope_scaling)
            angles = tuple(torch.from_numpy(t[..., None, :, :]).to(x) for t in table)  # (B or none, 1, T, n/2)
        if c.segments:
            x = x + self.segments(torch.zeros_like(at) if segments is None else segments)
        return self.dropout(self.embedding_norm(x)), angles


def look(mask: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """(who may see whom (B or 1, 1, T or 1, S), which tokens are real (B, T)), as far as the mask says it."""
    if mask is None:
        return None, None
    if mask.dtype != torch.bool or mask.ndim not in (2, 3):
        raise TypeError(f"a mask is boolean, (B, T) or (B, T, S), True = may attend, not {mask.dtype} {mask.shape}")
    return (mask[:, None, None, :], mask) if mask.ndim == 2 else (mask[:, None], None)


class Table(nn.Module):
    """One learned vector for each position or segment."""

    def __init__(self, rows: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(rows, d_model))

    def forward(self, at: Tensor) -> Tensor:
        return self.weight[at]


class PatchEmbedding(nn.Module):
    """patches (B, N, patch_dim) → (B, N + 1, d_model), one learned vector in front"""

    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.first = nn.Parameter(0.02 * torch.randn(c.d_model))
        self.projection = nn.Linear(c.patch_dim or 0, c.d_model)

    def forward(self, patches: Tensor) -> Tensor:
        x = self.projection(patches)
        return torch.cat([self.first.expand(len(x), 1, -1), x], dim=1)


# ---------------------------------------------------------------------- heads, called as head(hidden, mask)


class NoHead(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        return hidden


class LanguageModelHead(nn.Linear):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__(c.d_model, c.vocab_size, c.head_bias)
        self.scale, self.softcap = c.logit_scale, c.logit_softcap

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:  # type: ignore[override,unused-ignore]
        z: Tensor = super().forward(hidden)
        z = z if self.scale is None else z * self.scale
        return z if self.softcap is None else self.softcap * torch.tanh(z / self.softcap)


class MaskedLanguageModelHead(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(c.d_model, c.d_model), nn.LayerNorm(c.d_model, c.norm_eps)
        self.decoder = nn.Linear(c.d_model, c.vocab_size)
        self.phi = PHI["gelu" if c.activation in GATES else c.activation]

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        logits: Tensor = self.decoder(self.norm(self.phi(self.dense(hidden))))
        return logits


class ClassificationHead(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(c.d_model, c.d_model) if c.head_dense else None
        self.dropout, self.out = nn.Dropout(c.dropout), nn.Linear(c.d_model, c.classes or 0)
        self.how = c.pooling

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        h = pool(hidden, mask, self.how)
        logits: Tensor = self.out(self.dropout(h if self.dense is None else torch.tanh(self.dense(h))))
        return logits


class TokenLabellingHead(nn.Module):
    def __init__(self, c: TransformerConfig) -> None:
        super().__init__()
        self.dropout, self.out = nn.Dropout(c.dropout), nn.Linear(c.d_model, c.classes or 0)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        logits: Tensor = self.out(self.dropout(hidden))
        return logits


def pool(hidden: Tensor, mask: Tensor | None, how: str) -> Tensor:
    """(B, T, d) → (B, d): the first, the mean or the last of the real tokens."""
    B, T, _ = hidden.shape
    if mask is not None and mask.ndim != 2:
        raise ValueError("to pool, the mask says which tokens are real, (B, T)")
    real = torch.ones(B, T, dtype=torch.bool, device=hidden.device) if mask is None else mask
    if how == "mean":
        return hidden.masked_fill(~real[..., None], 0).sum(1) / real.sum(1, keepdim=True)
    at = torch.arange(T, device=hidden.device)
    place = torch.where(real, at, T).amin(1) if how == "first" else torch.where(real, at, -1).amax(1)
    return hidden[torch.arange(B, device=hidden.device), place]


HEADS: dict[str, Any] = {
    "none": NoHead, "language-model": LanguageModelHead, "masked-lm": MaskedLanguageModelHead,
    "classification": ClassificationHead, "tokens": TokenLabellingHead,
}  # fmt: skip
