"""Calling minitx's layers as PyTorch's are called: argument by argument, mask by mask, batch second if need be."""
from __future__ import annotations

from typing import Any

import numpy as np

from minitx.interop.torch.borders import Seen, seen
from minitx.interop.torch.parts import AddedKeyAttention, DecoderStack, EncoderDecoder, EncoderStack
from minitx.nn import DecoderBlock, EncoderBlock, Module, MultiHeadAttention, split_heads
from minitx.op import Array
from minitx.ops import swapaxes
from minitx.tensor import Tensor


def like_torch(module: Module, batch_first: bool = False) -> Any:
    """`module` as a function with the arguments, the order of axes and the masks of its PyTorch counterpart.

    Tokens are minitx Tensors or arrays, (T, B, d_model), or (B, T, d_model) if `batch_first`, or (T, d_model); masks
    are arrays or torch tensors (a float mask that is a minitx Tensor gets its gradient). Linear, Embedding and norms
    are called alike on both sides, and come back as they are.
    """
    for kind, call in CALLS.items():
        if isinstance(module, kind):
            return call(module, batch_first)
    if any(isinstance(value, Module) for _, value in module.children()):
        raise TypeError(f"like_torch: PyTorch has no layer that is a {type(module).__name__}")
    return module


class Call:
    """A module, and what comes in turned to (B, T, d_model) and out again."""

    def __init__(self, module: Any, batch_first: bool) -> None:
        self.module, self.batch_first = module, batch_first

    def inward(self, x: Any, name: str) -> Any:
        if x.ndim not in (2, 3):
            axes = "(B, T, d_model)" if self.batch_first else "(T, B, d_model)"
            raise ValueError(f"{name} is {axes}, or (T, d_model) for one row, not {x.shape}")
        x = x if isinstance(x, Tensor) else Tensor(np.asarray(x))
        if x.ndim == 2:
            return x[None]
        return x if self.batch_first else swapaxes(x, 0, 1)

    def outward(self, y: Any, like: Any) -> Any:
        if like.ndim == 2:
            return y[0]
        return y if self.batch_first else swapaxes(y, 0, 1)


# ---------------------------------------------------------------------- attention


class AttentionCall(Call):
    """nn.MultiheadAttention's call → (output, weights (B, T, S), (B, H, T, S) or None)."""

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Array | None]:
        a: MultiHeadAttention = self.module
        q, k, v = (self.inward(x, name) for x, name in ((query, "query"), (key, "key"), (value, "value")))
        if query.ndim == 2 and key_padding_mask is not None:
            key_padding_mask = key_padding_mask[None]
        if is_causal and isinstance(a, AddedKeyAttention):
            raise ValueError("is_causal with add_bias_kv or add_zero_attn: PyTorch hides the added key from some "
                             "queries, or not, as need_weights goes; leave the hint away")  # fmt: skip
        see = seen(attn_mask, key_padding_mask, is_causal, (q.shape[0], a.heads, q.shape[1], k.shape[1]))
        keys, values = split_heads(a.key(k), a.kv_heads), split_heads(a.value(v), a.kv_heads)  # (B, H, S, d) each
        keys = keys if a.key_norm is None else a.key_norm(keys)
        y: Any = a(q, (keys, values), mask=see.mask, bias=see.bias, weights=need_weights)
        if not need_weights:
            return self.outward(y, query), None
        y, weights = y
        weights = weights.mean(1) if average_attn_weights else weights
        return self.outward(y, query), weights[0] if query.ndim == 2 else weights


# ---------------------------------------------------------------------- blocks


def encode(block: EncoderBlock, x: Tensor, see: Seen) -> Tensor:
    """Self-attention and feed-forward; unlike in the block's own call there may be a bias."""
    x = block.attention_residual(x, lambda h: block.attention(h, mask=see.mask, bias=see.bias))
    y: Tensor = block.feedforward_residual(x, block.feedforward)
    return y


def decode(block: DecoderBlock, x: Tensor, memory: Tensor, see: Seen, see_memory: Seen) -> Tensor:
    """Unlike in the block's own call nothing is causal by itself, and there may be biases."""

    def attend_to_memory(h: Tensor) -> Any:
        return block.cross_attention(h, memory, mask=see_memory.mask, bias=see_memory.bias)

    x = block.attention_residual(x, lambda h: block.attention(h, mask=see.mask, bias=see.bias))
    x = block.cross_attention_residual(x, attend_to_memory)
    y: Tensor = block.feedforward_residual(x, block.feedforward)
    return y


class EncoderCall(Call):
    """nn.TransformerEncoderLayer's call, and nn.TransformerEncoder's, in which src_mask is called mask."""

    @property
    def blocks(self) -> list[Any]:
        return self.module.blocks if isinstance(self.module, EncoderStack | DecoderStack) else [self.module]

    def run(self, src: Any, mask: Any, key_padding: Any, causal: bool | None, called: tuple[str, str, str]) -> Any:
        x = self.inward(src, "src")
        padding = key_padding[None] if src.ndim == 2 and key_padding is not None else key_padding
        if self.blocks:
            sizes = (x.shape[0], self.blocks[0].attention.heads, x.shape[1], x.shape[1])
            see = seen(mask, padding, causal, sizes, called)
        for block in self.blocks:
            x = encode(block, x, see)
        if (norm := getattr(self.module, "norm", None)) is not None:
            x = norm(x)
        return self.outward(x, src)


class EncoderLayerCall(EncoderCall):
    def __call__(
        self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Tensor:
        called = ("src_mask", "src_key_padding_mask", "is_causal")
        y: Tensor = self.run(src, src_mask, src_key_padding_mask, is_causal, called)
        return y


class EncoderStackCall(EncoderCall):
    def __call__(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Tensor:
        y: Tensor = self.run(src, mask, src_key_padding_mask, is_causal, ("mask", "src_key_padding_mask", "is_causal"))
        return y


class DecoderCall(Call):
    """nn.TransformerDecoderLayer's call, and nn.TransformerDecoder's."""

    def __call__(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        blocks = self.module.blocks if isinstance(self.module, DecoderStack) else [self.module]
        x, m = self.inward(tgt, "tgt"), self.inward(memory, "memory")
        if tgt.ndim == 2:
            tgt_key_padding_mask, memory_key_padding_mask = (
                None if p is None else p[None] for p in (tgt_key_padding_mask, memory_key_padding_mask)
            )
        if blocks:
            (B, T, _), S = x.shape, m.shape[1]
            names = ("tgt_mask", "tgt_key_padding_mask", "tgt_is_causal")
            H = blocks[0].attention.heads
            see = seen(tgt_mask, tgt_key_padding_mask, tgt_is_causal, (B, H, T, T), names)
            names = ("memory_mask", "memory_key_padding_mask", "memory_is_causal")
            H = blocks[0].cross_attention.heads
            see_memory = seen(memory_mask, memory_key_padding_mask, memory_is_causal, (B, H, T, S), names)
        for block in blocks:
            x = decode(block, x, m, see, see_memory)
        if isinstance(self.module, DecoderStack) and self.module.norm is not None:
            x = self.module.norm(x)
        y: Tensor = self.outward(x, tgt)
        return y


class TransformerCall(Call):
    """nn.Transformer's call."""

    def __call__(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        encode = EncoderCall(self.module.encoder, self.batch_first)
        called = ("src_mask", "src_key_padding_mask", "src_is_causal")
        memory = encode.run(src, src_mask, src_key_padding_mask, src_is_causal, called)
        return DecoderCall(self.module.decoder, self.batch_first)(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
            tgt_is_causal, memory_is_causal,
        )  # fmt: skip


def _decoder(module: Any, batch_first: bool) -> Call:
    """Without cross-attention a decoder's counterpart is PyTorch's encoder, with a causal mask."""
    stack = isinstance(module, DecoderStack)
    blocks = module.blocks if stack else [module]
    if all(hasattr(block, "cross_attention") for block in blocks):
        return DecoderCall(module, batch_first)
    return (EncoderStackCall if stack else EncoderLayerCall)(module, batch_first)


CALLS: dict[type[Module], Any] = {
    MultiHeadAttention: AttentionCall,
    EncoderBlock: EncoderLayerCall,
    DecoderBlock: _decoder,
    EncoderStack: EncoderStackCall,
    DecoderStack: _decoder,
    EncoderDecoder: TransformerCall,
}
