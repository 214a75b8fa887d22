"""The blocks: attention and feed-forward, each on a residual branch with a normalisation before or after it."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx.masks import as_mask, causal
from minitx.nn.attention import MultiHeadAttention
from minitx.nn.dropout import Dropout
from minitx.nn.feedforward import FeedForward
from minitx.nn.gated import GatedFeedForward
from minitx.nn.linear import unwatched
from minitx.nn.mixture import Aux, MixtureOfExperts
from minitx.nn.module import Module, original
from minitx.op import Array
from minitx.tensor import Tensor

ADD = MultiHeadAttention, FeedForward, GatedFeedForward  # sublayers that can add a residual to what they return
CAUSAL = causal()  # one for all blocks: it remembers its last answer


class Residual(Module):
    """A branch beside the identity: the old representation passes by, and the sublayer only learns an update to it.

    `norm` is the branch's own normalisation layer; dropout is applied to the update.
    """

    def __init__(self, norm: Module, dropout: float = 0.0, *, rng: np.random.Generator) -> None:
        self.norm = norm
        self.dropout = Dropout(dropout, rng=rng)

    def update(self, x: Tensor, f: Callable[..., Tensor], h: Tensor, adds: bool) -> Tensor:
        """x + dropout(f(h)). A sublayer that `adds` is able to return f(h, x) = x + f(h), its last product the sum."""
        absent = original(self.dropout, Dropout) and not self.dropout.active
        y: Tensor = f(h, x) if adds and absent else x + self.dropout(f(h))
        return y


class PostNorm(Residual):
    """y = norm(x + dropout(f(x))): every block's output is normalised. Source: Vaswani et al. 2017, section 3.1."""

    def forward(self, x: Tensor, f: Callable[..., Tensor], adds: bool = False) -> Tensor:
        y: Tensor = self.norm(self.update(x, f, x, adds))
        return y


class PreNorm(Residual):
    """y = x + dropout(f(norm(x))): nothing stands on the path of x, so the gradient reaches the bottom of a deep stack.

    Not the same function as post-norm with the same weights. A stack of these ends with a normalisation of its own.
    Source: Xiong et al. 2020, "On layer normalization in the Transformer architecture", figure 1.
    """

    def forward(self, x: Tensor, f: Callable[..., Tensor], adds: bool = False) -> Tensor:
        return self.update(x, f, self.norm(x), adds)


class BothNorm(Residual):
    """y = x + dropout(norm_after(f(norm(x)))): the path of x is free as in pre-norm, and no update can be large.

    A stack of these ends with a normalisation of its own. Source: Gemma Team 2024, "Gemma 2", section 2.
    """

    def __init__(self, norm: Module, norm_after: Module, dropout: float = 0.0, *, rng: np.random.Generator) -> None:
        self.norm, self.norm_after = norm, norm_after
        self.dropout = Dropout(dropout, rng=rng)

    def forward(self, x: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
        y: Tensor = x + self.dropout(self.norm_after(f(self.norm(x))))
        return y


class EncoderBlock(Module):
    """Self-attention, then feed-forward; (B, T, d_model) → (B, T, d_model).

    Put together from parts: the attention, the feed-forward network, and a function that makes a Residual (called once
    for each of the two).

        EncoderBlock(
            MultiHeadAttention(64, heads=4, rng=rng),
            FeedForward(64, 256, rng=rng),
            lambda: PreNorm(LayerNorm(64), dropout=0.1, rng=rng),
        )
    """

    def __init__(self, attention: MultiHeadAttention, feedforward: Module, residual: Callable[[], Residual]) -> None:
        self.attention, self.attention_residual = attention, residual()
        self.feedforward, self.feedforward_residual = feedforward, residual()

    def forward(
        self,
        x: Tensor,
        *,
        mask: Any = None,
        positions: Any = None,
        record: dict[str, Array] | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        """`record`, where given, receives the attention weights as "self"; `aux` what a mixture of experts says."""

        def attend(h: Tensor, residual: Tensor | None = None) -> Tensor:
            options = {"mask": mask, "positions": positions}
            return _attend(self.attention, h, None, residual, "self", record, options)

        x = _branch(self.attention_residual, x, attend, self.attention)
        return _feed(self, x, mask, aux)


class DecoderBlock(Module):
    """Causal self-attention, then cross-attention to the encoder's output (where it has one), then feed-forward.

    Position t sees positions 0 ... t: `causal()` is always part of the mask here. Without `cross_attention` this is the
    block of a decoder-only model.
    """

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention | None,
        feedforward: Module,
        residual: Callable[[], Residual],
    ) -> None:
        self.attention, self.attention_residual = attention, residual()
        if cross_attention is not None:
            self.cross_attention, self.cross_attention_residual = cross_attention, residual()
        self.feedforward, self.feedforward_residual = feedforward, residual()

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor] | None = None,
        *,
        mask: Any = None,
        memory_mask: Any = None,
        positions: Any = None,
        cache: Any = None,
        record: dict[str, Array] | None = None,
        aux: Aux | None = None,
    ) -> Tensor:
        """`mask` is about the target (padding), `memory_mask` about the source; `record` takes "self" and "cross"."""
        seen = CAUSAL if mask is None else CAUSAL & mask

        def attend(h: Tensor, residual: Tensor | None = None) -> Tensor:
            options = {"mask": seen, "positions": positions, "cache": cache}
            return _attend(self.attention, h, None, residual, "self", record, options)

        def attend_to_memory(h: Tensor, residual: Tensor | None = None) -> Tensor:
            return _attend(self.cross_attention, h, memory, residual, "cross", record, {"mask": memory_mask})

        x = _branch(self.attention_residual, x, attend, self.attention)
        if memory is not None:
            x = _branch(self.cross_attention_residual, x, attend_to_memory, self.cross_attention)
        # With a cache the mask is about all tokens so far, not about these; padding that is routed changes no other.
        return _feed(self, x, mask if cache is None else None, aux)


def _attend(
    attention: MultiHeadAttention,
    h: Tensor,
    memory: Tensor | tuple[Tensor, Tensor] | None,
    residual: Tensor | None,
    name: str,
    record: dict[str, Array] | None,
    options: dict[str, Any],
) -> Tensor:
    if residual is not None:
        options["residual"] = residual
    if record is None:
        y: Tensor = attention(h, memory, **options)
        return y
    y, record[name] = attention(h, memory, weights=True, **options)
    return y


def _feed(block: EncoderBlock | DecoderBlock, x: Tensor, mask: Any, aux: Aux | None) -> Tensor:
    """The feed-forward branch. A mixture of experts is told which tokens are real, and where its losses go."""
    network, residual = block.feedforward, block.feedforward_residual
    if isinstance(network, MixtureOfExperts):
        # A plain boolean array is about pairs here, as attention reads it, also where B = T makes it look like (B, T).
        real = None if mask is None else as_mask(mask)
        return _branch(residual, x, lambda h: network(h, mask=real, aux=aux), network)
    return _branch(residual, x, network, network)


def _branch(residual: Residual, x: Tensor, f: Callable[..., Tensor], sublayer: Module) -> Tensor:
    """f on its branch. A sublayer of ours takes x along; somebody else's, or another kind of branch, need not."""
    ours = original(residual, PreNorm, PostNorm) and original(sublayer, *ADD)
    y: Tensor = residual(x, f, adds=True) if ours and unwatched() else residual(x, f)
    return y
