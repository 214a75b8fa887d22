"""The four witnesses of an op at one of its cases: differences, smaller ops, definition = kernel, PyTorch."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx.audit.case import Case
from minitx.audit.measure import Measure, Pulled, absent, pull, pull_torch
from minitx.audit.reasons import NO_KERNEL, NO_NUMBA, in_smaller_ops, in_torch
from minitx.gradcheck import GradientError, gradcheck
from minitx.op import Array
from minitx.settings import reference
from minitx.tensor import Tensor

DIFFERENCES, SMALLER, TORCH, KERNEL64 = 1e-6, 1e-10, 1e-10, 1e-12  # the limits, float64

Make = Callable[[Array], Tensor]


def rounding(n: int) -> float:
    """The limit for float32 kernels against float64 definitions, over n elements."""
    return float(4 * np.finfo(np.float32).eps * np.sqrt(n))


def leaf(dtype: Any = np.float64) -> Make:
    return lambda a: Tensor(a.astype(dtype), requires_grad=True)


def pulled(f: Callable[..., Any], case: Case, make: Make | None = None) -> Pulled:
    """f at the case's arguments, and the gradients of all that has one."""
    make, leaves = make or leaf(), list[Tensor]()

    def keep(a: Array) -> Tensor:
        leaves.append(make(a))
        return leaves[-1]

    args, options = case.lift(case.draw(), keep)
    y = f(*args, **options)
    return pull(y if isinstance(y, tuple) else (y,), leaves)


@dataclass(frozen=True)
class OpColumns:
    case: Case
    kind = "op"

    @property
    def name(self) -> str:
        return self.case.op

    @property
    def label(self) -> str:
        return self.case.label

    def differences(self) -> Measure:
        args, options = self.case.draw()
        try:
            report = gradcheck(self.case.implementation, *args, tolerance=DIFFERENCES, **options)
        except GradientError as error:
            return Measure(error.report.error, DIFFERENCES, "\n".join(str(error).split("\n\n")[0].splitlines()[:4]))
        return Measure(report.error, DIFFERENCES, "; ".join(report.kinks))

    def smaller(self) -> Measure:
        if self.case.composition is None:
            return absent(in_smaller_ops(self.case))
        mine = pulled(self.case.implementation, self.case)
        return Measure(mine.apart(pulled(self.case.composition, self.case)), SMALLER)

    def kernel(self) -> Measure:
        """float32 as it is used, and float64, each beside the float64 definition: the one nearer to its limit."""
        op = self.case.implementation
        kernel = op.kernel
        if kernel is None:
            return absent(NO_KERNEL if has_numba() else NO_NUMBA)
        declined = []

        def watched(*args: Any, **options: Any) -> Any:
            try:
                result = kernel(*args, **options)
            except NotImplementedError:  # it cannot be compiled on this machine
                result = NotImplemented
            declined.append(result is NotImplemented)
            return result

        with reference():
            exact = pulled(op, self.case)
        limits = {np.float64: KERNEL64, np.float32: rounding(exact.largest)}
        with op.using(watched):
            errors = [(pulled(op, self.case, leaf(t)).apart(exact), limit) for t, limit in limits.items()]
        if all(declined):
            return absent("the kernel leaves this case to the definition")
        return Measure(*max(errors, key=lambda e: e[0] / e[1]))

    def pytorch(self, torch: Any, dtype: Any = np.float64, limit: float = TORCH) -> Measure:
        if self.case.torch is None:
            return absent(in_torch(self.case))
        leaves = []

        def keep(a: Array) -> Any:
            leaves.append(torch.tensor(a.astype(dtype), requires_grad=True))
            return leaves[-1]

        args, options = self.case.lift(self.case.draw(), keep)
        y = self.case.torch(torch, *args, **options)
        theirs = pull_torch(torch, y if isinstance(y, tuple | list) else (y,), leaves)
        return Measure(pulled(self.case.implementation, self.case, leaf(dtype)).apart(theirs), limit)


def has_numba() -> bool:
    from importlib.util import find_spec

    return find_spec("numba") is not None
