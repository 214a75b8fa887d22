"""The same parameters under two names: `query.weight` here is the upper third of PyTorch's `in_proj_weight`."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from minitx.interop.torch.parts import AddedKeyAttention, DecoderStack, EncoderDecoder, EncoderStack
from minitx.models import Transformer
from minitx.nn import DecoderBlock, EncoderBlock, Module, MultiHeadAttention
from minitx.op import Array


class Match(NamedTuple):
    ours: str
    theirs: str
    rows: tuple[int, int] | None = None  # the rows of theirs that are ours; None: all of it


def names(module: Module) -> list[Match]:
    """One Match for each parameter of a minitx module that PyTorch has a counterpart for, in the order of ours.

    A whole model's counterpart (model.py) has the same names. Raises ValueError where parameters are tied within a
    module whose counterpart has them apart.
    """
    matches = list(_names(module))
    found, has = {m.ours for m in matches}, {name for name, _ in module.named_parameters()}
    if tied := sorted(found - has):
        raise ValueError(f"{', '.join(tied)}: tied to another parameter, and PyTorch's layer has one for each place")
    assert found == has, sorted(has - found)
    return matches


def rename_to_torch(module: Module, values: Mapping[str, Array | None]) -> dict[str, torch.Tensor | None]:
    """Values or gradients by the names of `module`'s parameters → tensors by PyTorch's names, put together.

    Where only some parts of a tensor have a gradient the others are 0; where none has, it is None.
    """
    parts: dict[str, list[Match]] = {}
    for match in names(module):
        parts.setdefault(match.theirs, []).append(match)
    parameters = dict(module.named_parameters())
    out: dict[str, torch.Tensor | None] = {}
    for name, matches in parts.items():
        given = [values[m.ours] for m in matches]
        if all(value is None for value in given):
            out[name] = None
            continue
        arrays = [
            np.zeros_like(parameters[m.ours].numpy()) if v is None else np.asarray(v) for m, v in zip(matches, given)
        ]
        out[name] = torch.from_numpy(np.array(arrays[0] if matches[0].rows is None else np.concatenate(arrays)))
    return out


def rename_from_torch(module: Module, values: Mapping[str, torch.Tensor | None]) -> dict[str, Array | None]:
    """Tensors by PyTorch's names → arrays by the names of `module`'s parameters: the way back of `rename_to_torch`."""
    out: dict[str, Array | None] = {}
    for ours, theirs, rows in names(module):
        if theirs not in values:
            raise KeyError(f"there is no {theirs!r}, which is {ours!r} here, among {', '.join(values)}")
        value = values[theirs]
        if value is None:
            out[ours] = None
            continue
        array = value.detach().cpu().numpy()
        out[ours] = np.array(array if rows is None else array[slice(*rows)])
    return out


def gradients_from_torch(module: Module, theirs: torch.nn.Module) -> dict[str, Array | None]:
    """The gradients that PyTorch's `theirs` holds, by the names of `module`, its counterpart."""
    return rename_from_torch(module, {name: p.grad for name, p in theirs.named_parameters()})


# ---------------------------------------------------------------------- kind by kind

ENCODER = {
    "attention": "self_attn", "attention_residual.norm": "norm1",
    "feedforward.up": "linear1", "feedforward.down": "linear2", "feedforward_residual.norm": "norm2",
}  # fmt: skip
DECODER = {
    "attention": "self_attn", "attention_residual.norm": "norm1",
    "cross_attention": "multihead_attn", "cross_attention_residual.norm": "norm2",
    "feedforward.up": "linear1", "feedforward.down": "linear2", "feedforward_residual.norm": "norm3",
}  # fmt: skip


def _names(module: Module) -> Iterator[Match]:
    if isinstance(module, MultiHeadAttention):
        yield from _attention(module)
    elif isinstance(module, EncoderBlock | DecoderBlock):
        crosses = hasattr(module, "cross_attention")  # without, a decoder's block is PyTorch's encoder layer
        for ours, theirs in (DECODER if crosses else ENCODER).items():
            yield from _inside(module, ours, theirs)
    elif isinstance(module, EncoderStack | DecoderStack):
        for i in range(len(module.blocks)):
            yield from _inside(module, f"blocks.{i}", f"layers.{i}")
        if module.norm is not None:
            yield from _inside(module, "norm", "norm")
    elif isinstance(module, EncoderDecoder):
        yield from _inside(module, "encoder", "encoder")
        yield from _inside(module, "decoder", "decoder")
    else:
        nested = isinstance(module, Transformer)
        if not nested and any(True for _ in module.children()):
            raise TypeError(f"PyTorch has no layer that is a {type(module).__name__}")
        for name, _ in module.named_parameters():
            yield Match(name, name)


def _inside(module: Module, ours: str, theirs: str) -> Iterator[Match]:
    child: Any = module
    for step in ours.split("."):
        child = child[int(step)] if step.isdigit() else getattr(child, step)
    for match in _names(child):
        yield Match(f"{ours}.{match.ours}", f"{theirs}.{match.theirs}", match.rows)


def _attention(a: MultiHeadAttention) -> Iterator[Match]:
    E = a.query.weight.shape[1]
    packed = a.key.weight.shape[1] == a.value.weight.shape[1] == E
    for i, (part, linear) in enumerate((("query", a.query), ("key", a.key), ("value", a.value))):
        rows = (i * E, (i + 1) * E)
        yield Match(f"{part}.weight", "in_proj_weight", rows) if packed else Match(
            f"{part}.weight", f"{part[0]}_proj_weight"
        )
        if linear.bias is not None:
            yield Match(f"{part}.bias", "in_proj_bias", rows)
    yield Match("out.weight", "out_proj.weight")
    if a.out.bias is not None:
        yield Match("out.bias", "out_proj.bias")
    if isinstance(a, AddedKeyAttention) and a.bias_k is not None:
        yield Match("bias_k", "bias_k")
        yield Match("bias_v", "bias_v")
