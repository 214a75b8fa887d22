"""To PyTorch: a minitx Module → a layer of torch.nn with copies of its weights; a whole model → model.py's."""
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from minitx.interop.torch.activations import activation_to_torch
from minitx.interop.torch.model import TorchTransformer
from minitx.interop.torch.names import names, rename_to_torch
from minitx.interop.torch.parts import (
    AddedKeyAttention,
    DecoderStack,
    EncoderDecoder,
    EncoderStack,
    NormWithoutGain,
    OtherActivation,
)
from minitx.models import Transformer
from minitx.models.parts import Identity, LanguageModelHead
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
    RMSNorm,
)

WAY_OUT = (
    "A whole model of any configuration can be taken along, to_torch(model), and any module's numbers: "
    "{name: torch.from_numpy(a) for name, a in module.state_dict().items()}"
)


def to_torch(module: Module, *, batch_first: bool = True, activation: Any = None) -> nn.Module:
    """PyTorch's counterpart of a minitx module, with its weights, dtype, mode and frozen parameters.

        Linear, Embedding, LayerNorm, RMSNorm, NormWithoutGain    nn.Linear, nn.Embedding, nn.LayerNorm, nn.RMSNorm
        MultiHeadAttention, AddedKeyAttention                     nn.MultiheadAttention
        EncoderBlock; DecoderBlock without cross-attention        nn.TransformerEncoderLayer (the latter: give the
                                                                  causal mask, which PyTorch's layer does not add)
        DecoderBlock with cross-attention                         nn.TransformerDecoderLayer (give it as well)
        EncoderStack, DecoderStack, EncoderDecoder                nn.TransformerEncoder, nn.TransformerDecoder,
                                                                  nn.Transformer; nested tensors are off
        models.Transformer, of any configuration                  TorchTransformer: model.py

    `batch_first` is that of PyTorch's layers. The gain of an RMSNorm is written as what it is, offset + w.
    `activation` stands for one that is a function of the caller's own.

    Raises ValueError or TypeError, naming what PyTorch's layer cannot express.
    """
    theirs: nn.Module = Writer(batch_first, activation)(module)
    dtypes = {p.dtype for p in module.parameters()}
    if np.dtype(np.float64) in dtypes:
        theirs.double()
    theirs.load_state_dict(state_dict_to_torch(module), strict=not isinstance(module, Transformer))
    parameters, frozen = dict(module.named_parameters()), dict[str, set[bool]]()
    for match in names(module):
        frozen.setdefault(match.theirs, set()).add(parameters[match.ours].requires_grad)
    for name, p in theirs.named_parameters():
        if len(frozen[name]) > 1:
            raise ValueError(f"{name} is one parameter in PyTorch, and here a part of it is frozen and a part is not")
        p.requires_grad_(frozen[name].pop())
    return theirs.train(module.training)


def state_dict_to_torch(module: Module) -> dict[str, torch.Tensor]:
    """The weights by PyTorch's names, as tensors: what `theirs.load_state_dict` takes.

    Of a whole model the names are minitx's own, and a tied parameter appears once.
    """
    values: dict[str, Any] = dict(module.state_dict())
    if not isinstance(module, Transformer):
        for name, part in module.modules():
            if isinstance(part, RMSNorm):
                path = f"{name}.weight" if name else "weight"
                values[path] = values[path] + np.asarray(part.offset, values[path].dtype)
    return {name: value for name, value in rename_to_torch(module, values).items() if value is not None}


class Writer:
    """Makes PyTorch's modules, whose weights are set afterwards."""

    def __init__(self, batch_first: bool, activation: Any) -> None:
        self.batch_first, self.activation = batch_first, activation

    def __call__(self, m: Module) -> Any:
        for kind, build in KINDS.items():
            if isinstance(m, kind):
                return build(self, m)
        known = ", ".join(kind.__name__ for kind in KINDS)
        raise TypeError(f"PyTorch has no layer like {type(m).__name__}; there is one for {known}. {WAY_OUT}")

    # ------------------------------------------------------------------ layers

    def linear(self, m: Any) -> nn.Module:
        if isinstance(m, LanguageModelHead):
            _refuse("nn.Linear", "this head", {
                f"scale {m.scale}": m.scale not in (None, 1), f"softcap {m.softcap}": m.softcap is not None,
            })  # fmt: skip
        d_out, d_in = m.weight.shape
        return nn.Linear(d_in, d_out, m.bias is not None)

    def embedding(self, m: Any) -> nn.Module:
        _refuse("nn.Embedding", "this embedding", {f"scale {m.scale:g}": m.scale != 1})
        rows, d_model = m.weight.shape
        return nn.Embedding(rows, d_model, padding_idx=m.padding_idx)

    def layer_norm(self, m: Any) -> nn.Module:
        return nn.LayerNorm(m.weight.shape[0], m.eps, bias=m.bias is not None)

    def rms_norm(self, m: Any) -> nn.Module:
        return nn.RMSNorm(m.weight.shape[0], m.eps)

    def norm_without_gain(self, m: Any) -> nn.Module:
        kind = nn.LayerNorm if m.norm == "layer" else nn.RMSNorm
        return kind(m.d_model, m.eps, elementwise_affine=False)

    # ------------------------------------------------------------------ attention

    def attention(self, m: MultiHeadAttention) -> Any:
        _refuse("nn.MultiheadAttention", "this attention", _beyond_torch(m))
        E, kdim, vdim = (linear.weight.shape[1] for linear in (m.query, m.key, m.value))
        return nn.MultiheadAttention(
            E, m.heads, m.dropout, m.out.bias is not None, kdim=kdim, vdim=vdim, batch_first=self.batch_first,
            add_bias_kv=isinstance(m, AddedKeyAttention) and m.bias_k is not None,
            add_zero_attn=isinstance(m, AddedKeyAttention) and m.zero_key,
        )  # fmt: skip

    # ------------------------------------------------------------------ blocks

    def block(self, m: Any) -> Any:
        """PyTorch's layer builds its parts itself; then each is replaced by the counterpart of ours."""
        crosses = hasattr(m, "cross_attention")
        kind = nn.TransformerDecoderLayer if crosses else nn.TransformerEncoderLayer
        branches = [m.attention_residual, *([m.cross_attention_residual] if crosses else []), m.feedforward_residual]
        attentions = [m.attention, *([m.cross_attention] if crosses else [])]
        self._refuse_block(kind.__name__, m.feedforward, branches, attentions)
        bias = m.attention.out.bias is not None
        layer = kind(
            m.attention.query.weight.shape[1], m.attention.heads, m.feedforward.up.weight.shape[0],
            activation=activation_to_torch(m.feedforward, self.activation), batch_first=self.batch_first,
            norm_first=isinstance(branches[0], PreNorm), bias=bias,
        )  # fmt: skip
        layer.self_attn = self(m.attention)
        if crosses:
            layer.multihead_attn = self(m.cross_attention)
        layer.dropout.p = m.feedforward.dropout.p
        for i, branch in enumerate(branches, 1):
            setattr(layer, f"norm{i}", self(branch.norm))
            getattr(layer, f"dropout{i}").p = branch.dropout.p
        return layer

    def _refuse_block(self, kind: str, feedforward: Any, branches: list[Any], attentions: list[Any]) -> None:
        _refuse(f"nn.{kind}", "this block", {
            f"feedforward {type(feedforward).__name__}": type(feedforward) not in (FeedForward, OtherActivation),
            **{type(b.norm).__name__: type(b.norm) is not LayerNorm for b in branches},
            "a norm on both sides": any(type(b) not in (PreNorm, PostNorm) for b in branches),
            "pre-norm and post-norm mixed": len({type(b) for b in branches}) > 1,
            "AddedKeyAttention": any(isinstance(a, AddedKeyAttention) for a in attentions),
            **{reason: True for a in attentions for reason, is_so in _beyond_torch(a).items() if is_so},
        })  # fmt: skip
        linears = [feedforward.up, feedforward.down, *(part for a in attentions for part in (a.query, a.out))]
        biased = {part.bias is not None for part in (*linears, *(b.norm for b in branches))}
        _refuse(f"nn.{kind}", "this block", {"bias on some of its linear layers and norms": len(biased) > 1})

    # ------------------------------------------------------------------ stacks

    def encoder(self, m: Any) -> nn.Module:
        return self._stack(nn.TransformerEncoder, m, enable_nested_tensor=False)

    def decoder(self, m: Any) -> nn.Module:
        """Without cross-attention it is an encoder in PyTorch's words, to be given the causal mask."""
        if all(hasattr(block, "cross_attention") for block in m.blocks):
            return self._stack(nn.TransformerDecoder, m)
        return self.encoder(m)

    def _stack(self, kind: Any, m: Any, **options: Any) -> nn.Module:
        if not m.blocks:
            raise ValueError(f"nn.{kind.__name__} is made of copies of one layer, and this stack is empty")
        norm = None if m.norm is None or isinstance(m.norm, Identity) else self(m.norm)
        layers = [self(block) for block in m.blocks]
        stack: nn.Module = kind(layers[0], len(layers), norm, **options)
        stack.layers = nn.ModuleList(layers)  # each with its own options
        return stack

    def transformer(self, m: Any) -> nn.Module:
        encoder, decoder = self(m.encoder), self(m.decoder)
        first = encoder.layers[0].self_attn
        return nn.Transformer(
            first.embed_dim, first.num_heads, custom_encoder=encoder, custom_decoder=decoder,
            batch_first=self.batch_first,
        )  # fmt: skip

    def model(self, m: Any) -> nn.Module:
        return TorchTransformer(m.config)


KINDS: dict[Any, Any] = {
    Linear: Writer.linear,
    Embedding: Writer.embedding,
    LayerNorm: Writer.layer_norm,
    RMSNorm: Writer.rms_norm,
    NormWithoutGain: Writer.norm_without_gain,
    MultiHeadAttention: Writer.attention,
    EncoderBlock: Writer.block,
    DecoderBlock: Writer.block,
    EncoderStack: Writer.encoder,
    DecoderStack: Writer.decoder,
    EncoderDecoder: Writer.transformer,
    Transformer: Writer.model,
}


def _beyond_torch(m: MultiHeadAttention) -> dict[str, bool]:
    """What nn.MultiheadAttention does not have, and whether this one has it."""
    d_model = m.query.weight.shape[1]
    return {
        f"kv_heads {m.kv_heads} for {m.heads} heads": m.kv_heads != m.heads,
        f"head_dim {m.head_dim}, {m.heads} heads, d_model {d_model}": m.head_dim * m.heads != d_model,
        "value_dim other than head_dim": m.out.weight.shape[1] != m.heads * m.head_dim,
        "bias on some of query, key, value, out": len({p.bias is None for p in (m.query, m.key, m.value, m.out)}) > 1,
        "rotary": m.rotary is not None,
        "position_bias": m.position_bias is not None,
        "qk_norm": m.query_norm is not None,
        "window": m.window is not None,
        "scale": "scale" in m.scores,
        "softcap": "softcap" in m.scores,
        f"kernel {m.kernel!r}": m.kernel == "linear",
    }


def _refuse(theirs: str, ours: str, reasons: dict[str, bool]) -> None:
    """One error that names everything that is in the way."""
    if found := [reason for reason, is_so in reasons.items() if is_so]:
        raise ValueError(f"{theirs} cannot express {ours}: {'; '.join(found)}. {WAY_OUT}")
