"""The ops: each a forward pass beside its backward pass, in NumPy. This file also hangs the operators on Tensor."""

from minitx.ops import operators
from minitx.ops.activation import erf, gelu, relu, sigmoid, silu, tanh
from minitx.ops.arithmetic import add, div, mul, neg, power, sub
from minitx.ops.attention import attention, attention_weights
from minitx.ops.dropout import dropout
from minitx.ops.embedding import embedding
from minitx.ops.exponential import exp, log, rsqrt, sqrt
from minitx.ops.feedforward import feed_forward, gated_feed_forward
from minitx.ops.gated import geglu, glu, reglu, swiglu
from minitx.ops.heads import (
    key_value_projections,
    merge_heads,
    output_projection,
    self_attention_projections,
    split_heads,
)
from minitx.ops.indexing import getitem, take_along_axis
from minitx.ops.linear import linear
from minitx.ops.linear_attention import linear_attention
from minitx.ops.loss import cross_entropy, mse
from minitx.ops.matmul import einsum, matmul
from minitx.ops.mixture import combine, dispatch, expert_linear, put_rows
from minitx.ops.multi_head import multi_head_attention
from minitx.ops.normalization import layer_norm, rms_norm
from minitx.ops.position_bias import alibi_bias, relative_bias
from minitx.ops.reduction import logsumexp, max, mean, min, sum, var
from minitx.ops.rotary import rotary
from minitx.ops.routing import balance_loss, expert_weights, router_z_loss
from minitx.ops.selection import abs, clip, maximum, minimum, where
from minitx.ops.shape import (
    broadcast_to,
    concatenate,
    expand_dims,
    pad,
    reshape,
    split,
    squeeze,
    stack,
    swapaxes,
    transpose,
)
from minitx.ops.softmax import log_softmax, softmax
from minitx.ops.tiled_attention import tiled_attention

# In the order in which they are read.
__all__ = [
    "add", "sub", "mul", "div", "neg", "power", "exp", "log", "sqrt", "rsqrt",
    "tanh", "sigmoid", "erf", "relu", "gelu", "silu", "abs", "maximum", "minimum", "where", "clip",
    "sum", "mean", "var", "max", "min", "logsumexp",
    "reshape", "transpose", "swapaxes", "broadcast_to", "squeeze", "expand_dims",
    "concatenate", "stack", "split", "pad", "getitem", "take_along_axis", "matmul", "einsum",
    "linear", "embedding", "softmax", "log_softmax", "layer_norm", "rms_norm", "dropout",
    "glu", "reglu", "geglu", "swiglu", "feed_forward", "gated_feed_forward", "rotary", "alibi_bias", "relative_bias",
    "expert_weights", "balance_loss", "router_z_loss", "dispatch", "expert_linear", "combine", "put_rows",
    "split_heads", "merge_heads", "self_attention_projections", "key_value_projections",
    "output_projection", "multi_head_attention",
    "attention", "attention_weights", "tiled_attention", "linear_attention", "cross_entropy", "mse", "operators",
]  # fmt: skip
