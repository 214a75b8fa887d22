"""How the value of a leaf is changed: `leaf.data -= step`, and for optimizers `with leaf.writing() as value`."""
from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from minitx.tensor import Tensor

# One clock orders two kinds of event: the making of a node (tensor.py), and an in-place change of a leaf.
clock = itertools.count(1)

set_writeable: Any = np.ndarray.setflags  # called by position, set_writeable(array, False): a keyword costs 0.15 µs


class LeafValues(np.ndarray[Any, Any]):
    """What `t.data` returns: NumPy asks it to do `leaf.data -= step`, and the leaf gets a new array.

    Only the array that `leaf.data` itself returns has an owner; slices, results of ops and of arithmetic have none, so
    that `leaf.data[0] -= 1` is NumPy's own error.
    """

    owner: Tensor | None = None

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        plain = [_plain(x) for x in inputs]
        apply = getattr(ufunc, method)
        target = inputs[0] if method == "at" else out[0] if len(out) == 1 else None
        owner = target.owner if isinstance(target, LeafValues) else None
        if owner is not None:  # `leaf.data -= step`, `np.add.at(leaf.data, i, step)`
            new = owner.numpy()
            if method == "at":
                apply(new, *plain[1:])
            else:
                apply(*plain, out=(new,), **options)
            owner.put(new)
            return None if method == "at" else owner.data  # the new memory, also for `v = leaf.data; v -= step`
        if method == "at" and not plain[0].flags.writeable:  # ufunc.at does not look at this flag itself
            raise ValueError("output array is read-only")
        if out:
            options["out"] = tuple(_plain(x) for x in out)
        return apply(*plain, **options)


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, LeafValues) else x


class Writing:
    """`with leaf.writing() as value:` the memory of the leaf itself, to be written to until the end of the block.

    Whoever read the value before keeps what it was, and a view of `value` that is kept does not change the leaf later:
    in both cases the leaf moves to a copy. Who holds its memory is seen by counting references.
    """

    __slots__ = ("leaf", "value")

    def __init__(self, leaf: Tensor) -> None:
        self.leaf = leaf

    def __enter__(self) -> np.ndarray[Any, Any]:
        leaf = self.leaf
        leaf.changed()
        if leaf._data.base is not None or sys.getrefcount(leaf._data) > 2:  # (the leaf and the call) others read it
            leaf._data = leaf._data.copy()
        set_writeable(leaf._data, True)
        self.value = leaf._data.view()
        return self.value

    def __exit__(self, *error: object) -> None:
        leaf = self.leaf
        leaf.changed()  # a graph made inside refuses too
        set_writeable(self.value, False)
        set_writeable(leaf._data, False)
        if sys.getrefcount(leaf._data) > 3:  # (the leaf, value.base and the call) somebody kept a view to write to
            leaf.put(leaf._data.copy())


def claim(leaves: Sequence[Tensor]) -> list[np.ndarray[Any, Any]]:
    """The memory of many leaves, still read-only: for a kernel that writes to it by address and keeps nothing.

    In all else as `writing`: older graphs then refuse, and who read a value before keeps what it was.
    """
    memory, now = [], next(clock)
    for leaf in leaves:
        data = leaf._data
        if leaf.node is not None or data.flags.writeable:
            leaf.check_leaf("changed in place")
        leaf.version = now
        if data.base is not None or sys.getrefcount(leaf._data) > 3:  # (the leaf, `data` and the call) others read it
            leaf._data = data = data.copy()
            set_writeable(data, False)
        memory.append(data)
    return memory
