"""The sum of the gradients that meet at one Tensor, written into one of them where that is ours."""
from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from minitx import settings

Array = NDArray[Any]

LARGE = 1 << 15  # elements: from here on it is worth the call of a kernel


def owned(g: Array) -> bool:
    """Is it fresh (top of tensor.py), so that it may be written to?"""
    return g.base is None and g.flags.writeable


def only_view(g: Array, x: Array) -> bool:
    """Is it all of a fresh array, in another order of axes, in which x lies too, and does nobody else hold either?

    Called with a g that its caller has in one variable and one collection. (Python 3.14 counts references otherwise.)
    """
    base = g.base
    return (
        type(base) is np.ndarray
        and base.base is None
        and base.size == g.size
        and g.strides == x.strides
        and g.flags.writeable
        and base.flags.owndata
        and sys.version_info < (3, 14)
        and sys.getrefcount(g) == 4  # (the caller's two, this function's and the call's)
        and sys.getrefcount(base) == 3  # (g, `base` and the call)
    )


def add(a: Array, b: Array) -> Array:
    """a + b, written into whichever of the two is ours."""
    if a.base is not None or not a.flags.writeable:  # not owned(a), without a call
        a, b = b, a
        if not owned(a):
            return np.asarray(a + b)
    if a.size < LARGE or not _by_kernel(a, b):
        a += b
    return a


def _by_kernel(a: Array, b: Array) -> bool:
    """The same on all threads (kernels/arithmetic.py), where kernels are at work: for one sum they are not loaded."""
    if "minitx.kernels.parallel" not in sys.modules or not settings.current.get().kernels:
        return False
    try:
        return _kernels().add_to(a, b)  # type: ignore[no-any-return]
    except NotImplementedError:  # it cannot be compiled on this machine, and has said so
        return False


@functools.cache
def _kernels() -> Any:
    return importlib.import_module("minitx.kernels.arithmetic")
