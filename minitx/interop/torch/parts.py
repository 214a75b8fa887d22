"""What PyTorch has as a layer and minitx does not: stacks, norms without a gain, attention with keys of its own."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minitx import masks
from minitx.nn import DecoderBlock, EncoderBlock, FeedForward, Module, MultiHeadAttention, Parameter, split_heads
from minitx.op import Array
from minitx.ops import broadcast_to, concatenate, layer_norm, rms_norm
from minitx.ops.arithmetic import onto
from minitx.tensor import Tensor

# ---------------------------------------------------------------------- attention


class AddedKeyAttention(MultiHeadAttention):
    """
    K = [M W_Kᵀ; k₀; 0],  V = [M W_Vᵀ; v₀; 0];  the rest as in MultiHeadAttention

    Keys that belong to no token: with `added_key` a learned one, k₀ = `bias_k` and v₀ = `bias_v` (1, 1, d_model), the
    same for every row; with `zero_key` one of zeros, so that a query can attend to nothing. Every query sees them: mask
    and bias speak of the other keys. Weights, where asked for, have a column for each.
    source: PyTorch's nn.MultiheadAttention, add_bias_kv and add_zero_attn.
    """

    def __init__(
        self, d_model: int, heads: int, *, added_key: bool = False, zero_key: bool = False, **options: Any
    ) -> None:
        super().__init__(d_model, heads, **options)
        one = np.zeros((1, 1, d_model), np.float32)
        self.bias_k = Parameter(one, decay=False) if added_key else None
        self.bias_v = Parameter(one, decay=False) if added_key else None
        self.zero_key = zero_key

    def forward(
        self,
        x: Tensor,
        memory: Tensor | tuple[Tensor, Tensor] | None = None,
        *,
        mask: Any = None,
        bias: Any = None,
        positions: Any = None,
        cache: Any = None,
        weights: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Array]:
        if cache is not None:
            raise ValueError("AddedKeyAttention has keys that belong to no token, and takes no cache")
        k, v = memory if isinstance(memory, tuple) else self.keys_and_values(x if memory is None else memory)
        B, H, S, d = k.shape
        ends = [(k, v)]  # each (B, H, S, d)
        if self.bias_k is not None and self.bias_v is not None:
            k0, v0 = (split_heads(broadcast_to(one, (B, 1, H * d)), H) for one in (self.bias_k, self.bias_v))
            ends.append((k0, v0))
        if self.zero_key:
            zero = Tensor(np.zeros((B, H, 1, d), k.dtype))
            ends.append((zero, zero))
        k, v = (concatenate([end[i] for end in ends], axis=2) for i in (0, 1))
        added = len(ends) - 1
        if mask is not None:
            allowed = masks.allowed(mask, B, H, x.shape[1], S)
            assert allowed is not None
            mask = np.concatenate([allowed, np.ones((*allowed.shape[:3], added), np.bool_)], axis=3)
        if bias is not None:
            bias = bias if isinstance(bias, Tensor) else Tensor(np.asarray(bias, k.dtype))
            bias = broadcast_to(bias, (*bias.shape[:-1], S))
            bias = concatenate([bias, np.zeros((*bias.shape[:-1], added), k.dtype)], axis=-1)
        return super().forward(x, (k, v), mask=mask, bias=bias, weights=weights, residual=residual)


# ---------------------------------------------------------------------- norms


class NormWithoutGain(Module):
    """A LayerNorm or RMSNorm, `norm` "layer" or "rms", with nothing to learn (elementwise_affine=False)."""

    def __init__(self, norm: str, d_model: int, eps: float) -> None:
        self.norm, self.d_model, self.eps = norm, d_model, eps

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.d_model:
            raise ValueError(f"this norm is over {self.d_model} features, not those of x {x.shape}")
        return layer_norm(x, None, None, self.eps) if self.norm == "layer" else rms_norm(x, None, self.eps)

    def extra(self) -> str:
        return f"{self.norm}, {self.d_model}, eps {self.eps:g}"


# ---------------------------------------------------------------------- feed-forward


class OtherActivation(FeedForward):
    """A FeedForward whose φ, `phi`, is any function on Tensors; `name` is what it is called."""

    def __init__(self, d_model: int, d_ff: int, name: str, phi: Callable[[Tensor], Tensor], **options: Any) -> None:
        super().__init__(d_model, d_ff, **options)
        self.activation, self.phi = name, phi

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return onto(residual, self.down(self.dropout(self.phi(self.up(x)))))


# ---------------------------------------------------------------------- stacks


class EncoderStack(Module):
    """EncoderBlocks one after the other, and a last norm or None; (B, T, d_model) → (B, T, d_model)."""

    def __init__(self, blocks: list[EncoderBlock], norm: Module | None = None) -> None:
        self.blocks, self.norm = list(blocks), norm

    def forward(self, x: Tensor, *, mask: Any = None) -> Tensor:
        for block in self.blocks:
            x = block(x, mask=mask)
        y: Tensor = x if self.norm is None else self.norm(x)
        return y


class DecoderStack(Module):
    """DecoderBlocks one after the other, and a last norm or None. As in every DecoderBlock, no query sees ahead."""

    def __init__(self, blocks: list[DecoderBlock], norm: Module | None = None) -> None:
        self.blocks, self.norm = list(blocks), norm

    def forward(
        self, x: Tensor, memory: Tensor | None = None, *, mask: Any = None, memory_mask: Any = None
    ) -> Tensor:
        for block in self.blocks:
            x = block(x, memory, mask=mask, memory_mask=memory_mask)
        y: Tensor = x if self.norm is None else self.norm(x)
        return y


class EncoderDecoder(Module):
    """Both stacks, vectors in and vectors out: (B, S, d_model), (B, T, d_model) → (B, T, d_model).

    `mask` says which source tokens are real, for the encoder and for cross-attention; `target_mask` the same of the
    target. (Embeddings, positions and a head: models/transformer.py.)
    """

    def __init__(self, encoder: EncoderStack, decoder: DecoderStack) -> None:
        self.encoder, self.decoder = encoder, decoder

    def forward(self, source: Tensor, target: Tensor, *, mask: Any = None, target_mask: Any = None) -> Tensor:
        memory = self.encoder(source, mask=mask)
        y: Tensor = self.decoder(target, memory, mask=target_mask, memory_mask=mask)
        return y
