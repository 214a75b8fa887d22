"""From PyTorch: a layer of torch.nn → a minitx Module with copies of its weights."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from minitx.interop.torch.activations import Activation, activation_from_torch
from minitx.interop.torch.model import TorchTransformer
from minitx.interop.torch.names import names, rename_from_torch
from minitx.interop.torch.parts import (
    AddedKeyAttention,
    DecoderStack,
    EncoderDecoder,
    EncoderStack,
    NormWithoutGain,
    OtherActivation,
)
from minitx.models import Transformer
from minitx.nn import (
    DecoderBlock,
    Embedding,
    EncoderBlock,
    FeedForward,
    LayerNorm,
    Linear,
    Module,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    RMSNorm,
)
from minitx.op import Array
from minitx.ops.feedforward import ACTIVATIONS


def from_torch(
    module: nn.Module, *, rng: np.random.Generator | None = None, activation: Activation | None = None
) -> Module:
    """A minitx Module with the weights, dtype, mode (training or not) and frozen parameters of PyTorch's `module`.

        nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm     the layers of the same name (NormWithoutGain)
        nn.MultiheadAttention                                 MultiHeadAttention, or AddedKeyAttention
        nn.TransformerEncoderLayer, nn.TransformerEncoder     EncoderBlock, EncoderStack
        nn.TransformerDecoderLayer, nn.TransformerDecoder     DecoderBlock, DecoderStack
        nn.Transformer                                        EncoderDecoder
        TorchTransformer (what to_torch makes of a model)     models.Transformer

    The result is called as minitx's layers are: batch first, masks in which True means may attend, and a DecoderBlock
    that is causal by itself. `like_torch` calls it as PyTorch's. `rng` is what dropout draws from (default_rng(0) if
    None); `activation` stands for one that PyTorch was given as a function of the caller's own.

    Raises ValueError or TypeError, naming it, for what has no counterpart.
    """
    _check(module)
    ours: Module = Reader(np.random.default_rng(0) if rng is None else rng, activation)(module)
    theirs = dict(module.named_parameters())
    if theirs:
        ours.astype(_float(theirs))
    values: Any = rename_from_torch(ours, theirs)
    ours.load_state_dict(values)
    parameters = dict(ours.named_parameters())
    for match in names(ours):
        parameters[match.ours].requires_grad = theirs[match.theirs].requires_grad
    return ours.train(module.training)


class Reader:
    """Makes the modules, whose weights are set afterwards."""

    def __init__(self, rng: np.random.Generator, activation: Activation | None) -> None:
        self.activation = activation
        self.options: dict[str, Any] = {"rng": rng, "init": _zeros}
        self.rng = rng

    def __call__(self, m: Any) -> Any:
        for kind, build in KINDS.items():
            if isinstance(m, kind):
                if type(m).forward is not kind.forward:
                    raise TypeError(f"{type(m).__name__} computes something of its own (it overrides {kind.__name__}'s "
                                    "forward)")  # fmt: skip
                return build(self, m)
        known = ", ".join(kind.__name__ for kind in KINDS)
        raise TypeError(f"{type(m).__name__} has no counterpart in minitx; there is one for {known}")

    # ------------------------------------------------------------------ layers

    def linear(self, m: Any) -> Linear:
        return Linear(m.in_features, m.out_features, m.bias is not None, **self.options)

    def embedding(self, m: Any) -> Embedding:
        for name, why in (
            ("max_norm", "rows that are too long are shortened when they are read"),
            ("scale_grad_by_freq", "gradients are divided by how often an id occurs"),
            ("sparse", "gradients are sparse tensors, and here they are tables; set module.sparse = False"),
        ):
            value = getattr(m, name)
            if value is not None and value is not False:
                raise ValueError(f"Embedding {name}={value!r} has no counterpart in minitx: {why}")
        return Embedding(m.num_embeddings, m.embedding_dim, padding_idx=m.padding_idx, **self.options)

    def layer_norm(self, m: Any) -> Module:
        (d,) = _one_axis(m)
        return LayerNorm(d, m.eps, m.bias is not None) if m.weight is not None else NormWithoutGain("layer", d, m.eps)

    def rms_norm(self, m: Any) -> Module:
        """eps None is the machine epsilon of the input's dtype in PyTorch; here that of the weight's."""
        (d,) = _one_axis(m)
        if m.weight is None:
            if m.eps is None:
                raise ValueError("RMSNorm eps=None without a weight depends on the input's dtype: give an eps")
            return NormWithoutGain("rms", d, m.eps)
        return RMSNorm(d, torch.finfo(m.weight.dtype).eps if m.eps is None else m.eps)

    # ------------------------------------------------------------------ attention

    def attention(self, m: Any) -> MultiHeadAttention:
        bias, out_bias = m.in_proj_bias is not None, m.out_proj.bias is not None
        options = {**self.options, "bias": bias, "out_bias": out_bias, "dropout": m.dropout}
        E, added = m.embed_dim, {"added_key": m.bias_k is not None, "zero_key": m.add_zero_attn}
        if any(added.values()):
            a: MultiHeadAttention = AddedKeyAttention(E, m.num_heads, **added, **options)
        else:
            a = MultiHeadAttention(E, m.num_heads, **options)
        if (m.kdim, m.vdim) != (E, E):
            a.key, a.value = (Linear(width, E, bias, **self.options) for width in (m.kdim, m.vdim))
        return a

    # ------------------------------------------------------------------ blocks

    def residual(self, layer: Any, norm: Any, dropout: Any) -> Residual:
        return (PreNorm if layer.norm_first else PostNorm)(self(norm), dropout.p, rng=self.rng)

    def feedforward(self, layer: Any) -> FeedForward:
        up, down = self(layer.linear1), self(layer.linear2)
        d_ff, d_model = up.weight.shape
        name, phi = activation_from_torch(layer.activation, self.activation)
        options = {**self.options, "dropout": layer.dropout.p}
        known = name in ACTIVATIONS
        network = FeedForward(d_model, d_ff, name, **options) if known else OtherActivation(
            d_model, d_ff, name, phi, **options
        )
        network.up, network.down = up, down
        return network

    def encoder_block(self, layer: Any) -> EncoderBlock:
        residuals = iter([
            self.residual(layer, layer.norm1, layer.dropout1), self.residual(layer, layer.norm2, layer.dropout2),
        ])  # fmt: skip
        return EncoderBlock(self(layer.self_attn), self.feedforward(layer), lambda: next(residuals))

    def decoder_block(self, layer: Any) -> DecoderBlock:
        residuals = iter([
            self.residual(layer, layer.norm1, layer.dropout1), self.residual(layer, layer.norm2, layer.dropout2),
            self.residual(layer, layer.norm3, layer.dropout3),
        ])  # fmt: skip
        attention, cross = self(layer.self_attn), self(layer.multihead_attn)
        return DecoderBlock(attention, cross, self.feedforward(layer), lambda: next(residuals))

    # ------------------------------------------------------------------ stacks

    def encoder(self, m: Any) -> EncoderStack:
        return EncoderStack([self(layer) for layer in m.layers], None if m.norm is None else self(m.norm))

    def decoder(self, m: Any) -> DecoderStack:
        return DecoderStack([self(layer) for layer in m.layers], None if m.norm is None else self(m.norm))

    def transformer(self, m: Any) -> EncoderDecoder:
        return EncoderDecoder(self(m.encoder), self(m.decoder))

    def model(self, m: Any) -> Transformer:
        return Transformer(m.config, rng=self.rng)


KINDS: dict[Any, Callable[[Reader, Any], Module]] = {
    nn.Linear: Reader.linear,
    nn.Embedding: Reader.embedding,
    nn.LayerNorm: Reader.layer_norm,
    nn.RMSNorm: Reader.rms_norm,
    nn.MultiheadAttention: Reader.attention,
    nn.TransformerEncoderLayer: Reader.encoder_block,
    nn.TransformerDecoderLayer: Reader.decoder_block,
    nn.TransformerEncoder: Reader.encoder,
    nn.TransformerDecoder: Reader.decoder,
    nn.Transformer: Reader.transformer,
    TorchTransformer: Reader.model,
}


def _zeros(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
    return np.zeros(shape)


def _one_axis(m: Any) -> tuple[int, ...]:
    if len(m.normalized_shape) != 1:
        raise ValueError(f"{type(m).__name__} normalized_shape={tuple(m.normalized_shape)}: minitx normalises the last "
                         "axis alone; reshape the input, and the weight, to one axis")  # fmt: skip
    return tuple(m.normalized_shape)


def _float(parameters: dict[str, Any]) -> Any:
    kinds = {p.dtype for p in parameters.values()}
    if len(kinds) > 1 or not kinds <= {torch.float32, torch.float64}:
        said = " and ".join(sorted(str(kind) for kind in kinds))
        raise TypeError(f"the weights are {said}, and minitx computes in float32 or float64: module.float() first")
    return np.float32 if kinds == {torch.float32} else np.float64


def _check(module: nn.Module) -> None:
    """What changes a layer from outside: it would be lost without a word."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"from_torch takes a torch.nn.Module, not a {type(module).__name__}")
    for name, part in module.named_modules():
        where = f"{name or type(module).__name__}: "
        if parametrize.is_parametrized(part):
            raise ValueError(f"{where}a parametrized weight; parametrize.remove_parametrizations(...) first")
        if part._forward_hooks or part._forward_pre_hooks:
            raise ValueError(f"{where}has forward hooks, which minitx would not run; remove them first")
    apart = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    tied = sorted(apart - {name for name, _ in module.named_parameters()})
    if tied and not isinstance(module, TorchTransformer):  # its ties are the configuration's
        raise ValueError(f"{', '.join(tied)}: shared with another place; give each place its own (copy.deepcopy)")
