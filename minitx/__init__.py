"""minitx: a Transformer from scratch on NumPy, every forward pass beside its hand-derived backward pass."""

from minitx import ops
from minitx.gradcheck import GradientError, gradcheck, gradcheck_model
from minitx.op import Forward, composite, op
from minitx.ops import (
    attention,
    attention_weights,
    concatenate,
    cross_entropy,
    dropout,
    einsum,
    embedding,
    exp,
    gelu,
    layer_norm,
    linear,
    log,
    log_softmax,
    matmul,
    mse,
    relu,
    rms_norm,
    silu,
    softmax,
    sqrt,
    stack,
    tanh,
    where,
)
from minitx.settings import enable_grad, no_grad, reference, set_threads
from minitx.tensor import Array, Tensor
from minitx.tracing import detect_anomaly, graph, trace

__version__ = "0.1.0"
__all__ = [
    "Tensor", "op", "composite", "no_grad", "enable_grad", "reference", "set_threads",
    "trace", "graph", "detect_anomaly",
    "gradcheck", "gradcheck_model", "GradientError", "Array", "Forward",
    "ops", "exp", "log", "sqrt", "tanh", "relu", "gelu", "silu", "where", "concatenate", "stack", "matmul", "einsum",
    "linear", "embedding", "softmax", "log_softmax", "layer_norm", "rms_norm", "dropout",
    "attention", "attention_weights", "cross_entropy", "mse",
]  # fmt: skip
