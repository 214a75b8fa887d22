"""minitx: a Transformer from scratch on NumPy, every forward pass beside its hand-derived backward pass."""

from minitx.op import Array, Forward, composite, op
from minitx.settings import enable_grad, no_grad, reference
from minitx.tensor import Tensor

__version__ = "0.1.0"
__all__ = ["Tensor", "op", "composite", "no_grad", "enable_grad", "reference", "Array", "Forward"]
