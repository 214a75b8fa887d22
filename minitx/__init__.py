"""minitx: a Transformer from scratch on NumPy, every forward pass beside its hand-derived backward pass."""

from minitx import ops
from minitx.gradcheck import GradientError, gradcheck, gradcheck_model
from minitx.op import Forward, composite, op
from minitx.settings import enable_grad, no_grad, reference
from minitx.tensor import Array, Tensor
from minitx.tracing import detect_anomaly, graph, trace

__version__ = "0.1.0"
__all__ = [
    "Tensor", "op", "composite", "no_grad", "enable_grad", "reference",
    "trace", "graph", "detect_anomaly",
    "gradcheck", "gradcheck_model", "GradientError", "Array", "Forward",
]  # fmt: skip
