"""PyTorch, both ways: layers and whole models with the same weights, outputs and gradients.

    ours = from_torch(nn.TransformerEncoderLayer(512, 8))     a minitx EncoderBlock: batch first, True = may attend
    like_torch(ours)(src, src_key_padding_mask=...)           the same, called as PyTorch's is
    theirs = to_torch(ours)                                   and back: an nn.TransformerEncoderLayer
    theirs = to_torch(Transformer(config, rng=rng))           a whole model of any configuration: see model.py

What one side cannot express is refused by name. Gradients are compared, and states carried over, by `rename_to_torch`
and `rename_from_torch`: PyTorch packs queries, keys and values into one matrix, and has other names.

Where the two differ in value, whatever the options: a query that sees no key gives 0 here (there NaN, where weights are
asked for); attention weights come back as arrays, without a gradient and before dropout (there after); and in
evaluation without gradients nn.TransformerEncoder's nested tensors (enable_nested_tensor) put 0 where padding stands.
"""
from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ImportError('minitx.interop.torch needs PyTorch: in the clone, pip install -e ".[torch]"') from None

from minitx.interop.torch.calls import like_torch
from minitx.interop.torch.model import TorchTransformer
from minitx.interop.torch.names import Match, gradients_from_torch, names, rename_from_torch, rename_to_torch
from minitx.interop.torch.parts import (
    AddedKeyAttention,
    DecoderStack,
    EncoderDecoder,
    EncoderStack,
    NormWithoutGain,
    OtherActivation,
)
from minitx.interop.torch.reading import from_torch
from minitx.interop.torch.writing import state_dict_to_torch, to_torch

__all__ = [
    "from_torch", "to_torch", "like_torch", "state_dict_to_torch",
    "names", "Match", "rename_to_torch", "rename_from_torch", "gradients_from_torch",
    "EncoderStack", "DecoderStack", "EncoderDecoder", "AddedKeyAttention", "NormWithoutGain", "OtherActivation",
    "TorchTransformer",
]  # fmt: skip
