"""`leaf.data -= step`: the value of a leaf reads like any read-only array, and this one spelling of an update works."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from minitx.tensor import Tensor


class LeafValues(np.ndarray[Any, Any]):
    """What `leaf.data` returns: NumPy asks it to do `leaf.data -= step`, and it goes through `leaf.writing()`.

    Only the array that `leaf.data` itself returns has an owner; slices and results of arithmetic are as NumPy makes
    them, so that `leaf.data[0] -= 1` is NumPy's own error.
    """

    owner: Tensor | None = None

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, LeafValues) else x for x in inputs]
        apply = getattr(ufunc, method)
        target = out[0] if out else None
        if isinstance(target, LeafValues) and target.owner is not None:  # `leaf.data -= step`
            with target.owner.writing() as value:
                apply(*plain, out=(value,), **options)
            return target.owner.data  # a view of the new memory, also for `values = leaf.data; values -= step`
        if out:
            options["out"] = tuple(x.view(np.ndarray) if isinstance(x, LeafValues) else x for x in out)
        return apply(*plain, **options)
