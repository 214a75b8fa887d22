"""The engine: a Tensor is an array that remembers the op that made it; `backward` walks those ops in reverse.

Every op application that has to be differentiated leaves one `Node` on the tape. Nodes are numbered as they are made,
so the inputs of a node always have smaller numbers than the node itself, and going through the nodes from the largest
number to the smallest visits each one only after everything that used its value: the chain rule in the right order,
without recursion and without sorting.

Who owns an array (the one rule that makes in-place accumulation safe): a read-only array, or a view, is shared; a
writeable array without a base is fresh and belongs to whoever was handed it. Values on the tape and the cotangents
handed to a backward rule are read-only.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from minitx import settings
from minitx.accumulate import add, only_view, owned
from minitx.complaints import Refusals, cast, numbers
from minitx.leaf import LeafValues, Writing, clock, set_writeable
from minitx.methods import Methods
from minitx.pullback import pull

if TYPE_CHECKING:
    from minitx.op import Op

Array = NDArray[Any]
Hook = Callable[[Array], Array | None]


class Node:
    """One application of an op: what to call on the way back, and where its answers go."""

    __slots__ = ("__weakref__", "backward", "hooks", "inputs", "need", "number", "op", "outputs", "slots")

    def __init__(
        self,
        op: Op,
        backward: Callable[..., Any],
        inputs: list[Tensor],
        slots: list[int],
        need: tuple[bool, ...],
        outputs: list[Array] | None,
    ) -> None:
        self.number = next(clock)
        self.op = op
        self.backward: Callable[..., Any] | None = backward  # None once the graph is freed
        self.inputs = inputs  # the Tensors among the arguments
        self.slots = slots  # inputs[i] is differentiated by entry slots[i] of what backward returns
        self.need = need  # per slot: does anybody want this gradient?
        self.outputs = outputs  # a zero-stride stand-in per output, where an op has several
        self.hooks: dict[int, dict[int, Hook]] | None = None  # output index -> hooks


def _compares(ufunc: Any) -> Any:
    def compare(self: Tensor, other: Any) -> Array:
        return ufunc(self._data, other._data if isinstance(other, Tensor) else other)  # type: ignore[no-any-return]

    return compare


class Tensor(Refusals, Methods):
    """An array of float32 or float64 that ops can be differentiated with respect to.

    (Integers and booleans are carried, not differentiated.) `Tensor(data)` copies `data`: nobody else can then change
    it; lists and Python numbers become float32. `data` is the value and `grad`, once `backward` has run, the gradient:
    both NumPy arrays of the same shape.
    """

    __slots__ = ("__weakref__", "_data", "_grad", "_hooks", "_requires_grad", "index", "node", "version")
    __hash__ = object.__hash__  # by identity; == compares elements

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        if isinstance(data, Tensor):
            raise TypeError("Tensor(...) of a Tensor: use t.detach() to leave the graph, or t.numpy() for the array")
        array = numbers(data, "Tensor(...)")
        self._fill(np.array(array, array.dtype if isinstance(data, np.ndarray | np.generic) else np.float32), None, 0)
        self.requires_grad = requires_grad

    def _fill(self, array: Array, node: Node | None, index: int) -> None:
        set_writeable(array, False)
        self._data = array
        self._grad: Array | None = None
        self._requires_grad = node is not None
        self.node = node  # this Tensor is output number `index` of `node`; a leaf has no node
        self.index = index
        self.version = 0  # the time of the last change in place
        self._hooks: dict[int, Hook] | None = None

    # ------------------------------------------------------------------ what it is

    @property
    def shape(self) -> tuple[int, ...]:
        return self._data.shape

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def size(self) -> int:
        return self._data.size

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._data.dtype

    @property
    def is_leaf(self) -> bool:
        """Made by hand, not by an op that is on the tape."""
        return self.node is None

    @property
    def requires_grad(self) -> bool:
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if self.node is not None and not wanted:
            raise RuntimeError("a result requires a gradient because its inputs do; use detach() to leave the graph")
        if wanted and self._data.dtype.kind != "f":
            raise TypeError(f"only floats have gradients, and this Tensor is {self.dtype}; make it from floats")
        self._requires_grad = bool(wanted)

    # ------------------------------------------------------------------ its value

    @property
    def data(self) -> Array:
        """The value: read-only, but a leaf takes `t.data = ...` and `t.data -= ...` (and then older graphs refuse)."""
        values = self._data.view(LeafValues)
        if self.node is None:
            values.owner = self
        return values

    @data.setter
    def data(self, value: Any) -> None:
        if isinstance(value, LeafValues) and value.owner is self and value.base is self._data:
            return  # the end of `t.data -= ...`: done already
        new = cast(value, self._data.dtype, "t.data = ...")
        if new.shape != self._data.shape:
            raise ValueError(f"t.data = ... keeps the shape, {self._data.shape}, not {new.shape}; make a new Tensor")
        self.put(new)

    def put(self, new: Array) -> None:
        """Make `new`, which is then ours, the value of this leaf."""
        self.check_leaf("assigned to")
        set_writeable(new, False)
        self._data = new
        self.changed()

    def writing(self) -> Writing:
        """The one door for changes in place: `with p.writing() as value: value -= step`. Older graphs then refuse."""
        self.check_leaf("changed in place")
        return Writing(self)

    def changed(self) -> None:
        """Graphs made until now refuse backward."""
        self.version = next(clock)

    def check_leaf(self, what: str) -> None:
        if self.node is not None:
            raise RuntimeError(f"the result of {self.node.op.name} cannot be {what}, its graph needs it; use detach()")
        if self._data.flags.writeable:
            raise RuntimeError(f"this Tensor cannot be {what} inside its own `with p.writing() as value`: change value")

    @property
    def grad(self) -> Array | None:
        """What `backward` has added up so far, in this Tensor's shape and dtype; None before."""
        return self._grad

    @grad.setter
    def grad(self, g: Any) -> None:
        if g is not None and not (type(g) is np.ndarray and g.dtype is self._data.dtype):
            g = cast(g, self._data.dtype, "t.grad = ...")
        if g is not None and g.shape != self._data.shape:
            raise ValueError(f"t.grad = ... has the shape of the Tensor: {self._data.shape}, not {g.shape}")
        self._grad = g

    def numpy(self) -> Array:
        """The value as a fresh array."""
        return self._data.copy()

    def item(self) -> float:
        """The value of a Tensor with one element as a Python number."""
        if self._data.size != 1:
            raise ValueError(f"item() wants exactly one element; this Tensor has shape {self.shape}")
        return self._data.item()  # type: ignore[no-any-return]

    def detach(self) -> Tensor:
        """The same value, outside the graph."""
        return wrap(self._data.view())

    def __reduce__(self) -> Any:  # copy, deepcopy and pickle
        if self.node is not None:
            raise RuntimeError(f"only a leaf can be copied; this Tensor comes from {self.node.op.name}: use detach()")
        state: Any = self.__getstate__()  # (attributes, slots); a subclass may have added to both
        more = (state[0] or {}) | {n: v for n, v in state[1].items() if n not in Tensor.__slots__}
        return _rebuild, (type(self), self._data, self._requires_grad, self._grad, more)

    # ------------------------------------------------------------------ backward

    def register_hook(self, hook: Hook) -> Callable[[], None]:
        """Call `hook(gradient)` in backward, once, with the whole gradient; what it returns (unless None) replaces it.

        Returns a function that takes the hook off again.
        """
        if not self._requires_grad:
            raise RuntimeError("this Tensor does not require a gradient, so a hook on it would never run")
        if self.node is None:
            self._hooks = hooks = self._hooks if self._hooks is not None else {}
        else:
            self.node.hooks = table = self.node.hooks if self.node.hooks is not None else {}
            hooks = table.setdefault(self.index, {})
        hooks[key := next(clock)] = hook  # each registration has its own key: one function may be registered twice
        return lambda: (hooks.pop(key, None), None)[1]

    def backward(self, gradient: Any = None, retain_graph: bool = False) -> None:
        """Add ∂(Σ gradient * self)/∂leaf to `leaf.grad` for every leaf that requires a gradient.

        `gradient` is the cotangent, of this Tensor's shape; it may be left out for a single element (then it is 1). The
        graph is freed on the way, so a second call is an error unless `retain_graph=True`. Leaves add up over calls.

        Nothing is written to a leaf unless the whole pass went well.
        """
        leaves: dict[Tensor, Array] = {}
        waiting: dict[Node, Any] = {}  # per node, the sum so far of what its users sent (a list for several outputs)
        queue: list[tuple[int, Node]] = []
        observer = settings.current.get().observer
        node: Node | None = None  # the op whose gradients are on their way; at first only the seed is
        inputs: list[Tensor] = [self]
        grads: list[Array | None] = [self._seed(gradient)]
        while True:
            # 1. Each gradient joins the sum that waits for its leaf, or for the op that made its Tensor.
            for tensor, g in zip(inputs, grads):
                if node is not None and tensor.version > node.number:
                    raise RuntimeError(
                        f"an input of {node.op.name} was changed in place after its forward pass; "
                        "change parameters after backward, not before"
                    )
                if g is None:
                    continue
                maker = tensor.node
                if maker is None:
                    before = leaves.get(tensor)
                    leaves[tensor] = g if before is None else add(before, g)
                    continue
                before = waiting.get(maker)
                if before is None:
                    heappush(queue, (-maker.number, maker))
                if maker.outputs is None:
                    waiting[maker] = g if before is None else add(before, g)
                else:
                    sums: Any = waiting.setdefault(maker, [None] * len(maker.outputs))
                    before = sums[tensor.index]
                    sums[tensor.index] = g if before is None else add(before, g)
            if node is not None and not retain_graph:
                node.backward, node.inputs, node.hooks = None, [], None  # what the rule saved is freed now
            sums = None
            del tensor, g, before, maker, inputs, grads  # nothing of it may live on while the next rule runs
            # 2. The youngest op that anything waits for: all who used its value have sent theirs by now.
            if not queue:
                break
            node = heappop(queue)[1]
            dy = waiting.pop(node)
            if node.backward is None:
                raise RuntimeError(
                    f"backward a second time through {node.op.name}, whose graph is freed; "
                    "pass retain_graph=True the first time"
                )
            if node.outputs is not None:
                dy = tuple(np.zeros(o.shape, o.dtype) if g is None else g for g, o in zip(dy, node.outputs))
            if node.hooks is not None:
                dy = _run_node_hooks(node, dy, observer)
            # 3. Its rule.
            if node.outputs is None:
                set_writeable(dy, False)
            else:
                for g in dy:
                    set_writeable(g, False)
            inputs, grads = node.inputs, pull(node, dy)
            if observer is not None:
                observer.backward(node, dy, grads)
            del dy
        for leaf in leaves:
            if leaf._hooks and leaf._requires_grad:
                leaves[leaf] = _run_hooks(leaf._hooks, leaves[leaf], observer)
        for leaf in leaves:
            g = leaves[leaf]  # (only_view counts these two)
            if not leaf._requires_grad:
                continue  # it has been turned off since
            if leaf._grad is not None:
                leaf._grad = np.asarray(leaf._grad + g)
            else:
                leaf._grad = g if owned(g) or only_view(g, leaf._data) else g.copy()

    def _seed(self, gradient: Any) -> Array:
        if not self._requires_grad:
            raise RuntimeError("backward of a Tensor that does not depend on anything with requires_grad=True")
        if gradient is None:
            if self._data.size != 1:
                raise RuntimeError(
                    f"backward of shape {self.shape} wants a gradient of that shape; only a single element may go "
                    "without (in a check use a random one: sum() hides most mistakes)"
                )
            return np.ones_like(self._data)
        if isinstance(gradient, bool):
            raise TypeError("backward(gradient, retain_graph=False): write backward(retain_graph=True)")
        gradient = gradient._data if isinstance(gradient, Tensor) else gradient
        seed = cast(gradient, self._data.dtype, "backward(gradient)")
        if seed.shape != self._data.shape:
            raise ValueError(f"the gradient has the shape of the Tensor: {self.shape}, not {seed.shape}")
        return seed

    # ------------------------------------------------------------------ as a Python object

    def __repr__(self) -> str:
        made = f", from {self.node.op.name}" if self.node else ", requires_grad=True" if self._requires_grad else ""
        if self._data.size > 50:
            return f"Tensor(shape {self.shape}, {self.dtype}{made})"
        values = np.array2string(self._data, separator=", ", precision=4, prefix="Tensor(")
        return f"Tensor({values}{'' if self.dtype == np.float32 else f', {self.dtype}'}{made})"

    def __len__(self) -> int:
        if self._data.ndim == 0:
            raise TypeError("a Tensor without axes has no length")
        return int(self._data.shape[0])

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        if self._data.size != 1:
            raise ValueError(f"a Tensor of shape {self.shape} is neither true nor false: use t.numpy().all() or .any()")
        return bool(self._data.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    # Comparisons have no gradient and give plain boolean arrays.
    __eq__ = _compares(np.equal)
    __ne__ = _compares(np.not_equal)
    __lt__ = _compares(np.less)
    __le__ = _compares(np.less_equal)
    __gt__ = _compares(np.greater)
    __ge__ = _compares(np.greater_equal)

    def argmax(self, axis: int | None = None) -> Array:
        """Where the largest element is (the first of equals): a plain integer array."""
        return np.argmax(self._data, axis)  # type: ignore[return-value]

    def argmin(self, axis: int | None = None) -> Array:
        """Where the smallest element is (the first of equals): a plain integer array."""
        return np.argmin(self._data, axis)  # type: ignore[return-value]


def wrap(array: Array, node: Node | None = None, index: int = 0) -> Tensor:
    """A Tensor around an array that is ours, without a copy."""
    tensor = Tensor.__new__(Tensor)
    tensor._fill(array, node, index)
    return tensor


def _rebuild(kind: type[Tensor], data: Array, requires_grad: bool, grad: Array | None, more: dict[str, Any]) -> Tensor:
    tensor = kind.__new__(kind)
    tensor._fill(np.array(data), None, 0)
    tensor.requires_grad, tensor.grad = requires_grad, None if grad is None else grad.copy()
    for name, value in more.items():
        setattr(tensor, name, value)
    return tensor


def _run_hooks(hooks: dict[int, Hook], g: Array, observer: Any) -> Array:
    for hook in list(hooks.values()):
        set_writeable(g, False)
        new = hook(g)
        if new is not None:
            if np.shape(new) != g.shape:
                raise ValueError(f"a hook returned shape {np.shape(new)} for a gradient of shape {g.shape}")
            new = cast(new, g.dtype, "what a hook returned")
            if hasattr(observer, "hooked"):
                observer.hooked(hook, g, new)
            g = new
    return g


def _run_node_hooks(node: Node, dy: Any, observer: Any) -> Any:
    hooks = node.hooks or {}
    if node.outputs is None:
        return _run_hooks(hooks[0], dy, observer)
    return tuple(_run_hooks(hooks[i], g, observer) if i in hooks else g for i, g in enumerate(dy))
