"""The vocabulary, twice: from smaller ops of minitx, and from PyTorch's functions.

Both have the same functions with the same arguments; what they are for the ops stands in minitx/audit/cases/.
"""
from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from minitx import ops
from minitx.audit.cases import basic, components, mixture, transformer
from minitx.tensor import Tensor

Words = Any  # one of the two below


def smaller() -> Words:
    """Tensors, and nothing fused: sums, products, exponentials."""

    def tanh(x: Tensor) -> Tensor:
        return 1 - 2 / (1 + ops.exp(2 * x))

    return SimpleNamespace(
        linear=transformer.linear, embedding=transformer.embedding, dropout=transformer.dropout,
        layer_norm=transformer.layer_norm, rms_norm=components.rms_norm,
        attention=transformer.attention, linear_attention=components.linear_attention,
        rotary=components.rotary, alibi_bias=components.alibi_bias, relative_bias=components.relative_bias,
        relu=lambda x: ops.maximum(x, 0.0), gelu=basic.gelu_of_smaller,
        gelu_tanh=partial(basic.gelu_of_smaller, approximate="tanh"), silu=lambda x: x / (1 + ops.exp(-x)),
        tanh=tanh, glu=components.glu, reglu=components.reglu, geglu=components.geglu,
        geglu_tanh=partial(components.geglu, approximate="tanh"), swiglu=components.swiglu,
        expert_weights=mixture.expert_weights, balance_loss=mixture.balance_loss, router_z_loss=mixture.router_z_loss,
        concatenate=lambda xs, axis: ops.concatenate(xs, axis=axis), array=np.asarray, values=lambda x: x.numpy(),
    )  # fmt: skip


def pytorch(torch: Any) -> Words:
    """The same words in PyTorch."""
    F = torch.nn.functional

    def array(a: Any) -> Any:
        return torch.as_tensor(np.asarray(a))

    return SimpleNamespace(
        linear=F.linear, embedding=partial(transformer.torch_embedding, torch),
        layer_norm=partial(transformer.torch_layer_norm, torch), rms_norm=partial(components.torch_rms_norm, torch),
        attention=partial(components.torch_tiled_attention, torch),
        linear_attention=partial(components.torch_linear_attention, torch),
        rotary=partial(components.torch_rotary, torch),
        alibi_bias=lambda relative, slopes: components.torch_alibi_bias(torch, relative, array(slopes)),
        relative_bias=partial(components.torch_relative_bias, torch),
        relu=torch.relu, gelu=F.gelu, gelu_tanh=partial(F.gelu, approximate="tanh"), silu=F.silu, tanh=torch.tanh,
        glu=partial(components.torch_glu, torch), reglu=partial(components.torch_reglu, torch),
        geglu=partial(components.torch_geglu, torch),
        geglu_tanh=partial(components.torch_geglu, torch, approximate="tanh"),
        swiglu=partial(components.torch_swiglu, torch),
        expert_weights=partial(mixture.torch_expert_weights, torch),
        balance_loss=partial(mixture.torch_balance_loss, torch),
        router_z_loss=partial(mixture.torch_router_z_loss, torch),
        concatenate=torch.cat, array=array, values=lambda x: x.detach().numpy(),
    )  # fmt: skip
