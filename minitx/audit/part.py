"""One use of a layer, a block or a model on random arrays, and its four witnesses."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from minitx.audit.measure import Measure, Pulled, absent, cotangents, pull, pull_torch
from minitx.audit.op_columns import DIFFERENCES, KERNEL64, SMALLER, TORCH, has_numba, rounding
from minitx.audit.reasons import NO_KERNEL_INSIDE, NO_NUMBA, NOTHING_TO_LEARN
from minitx.audit.written import Twin, pytorch, smaller, write
from minitx.gradcheck import GradientError, gradcheck_model
from minitx.models import Output
from minitx.nn import Aux, Module
from minitx.op import Array
from minitx.settings import changed, reference
from minitx.tensor import Tensor

STEP = 2.0**-15  # longer than for an op: the rounding of many terms weighs more than curvature
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Part:
    """`build` a module (or take a function of minitx.nn) and call it with `arguments`, sizes distinct primes.

    Floating arrays among the positional arguments of a layer or block are inputs with a gradient; everything else, and
    what a model reads, is passed on.
    """

    kind: str  # layer, block or model
    name: str
    label: str
    build: Callable[[np.random.Generator], Any]
    arguments: Callable[[np.random.Generator], Arguments]
    not_in_torch: str = ""  # why
    aux: bool = False  # has it losses beside its result?

    def __str__(self) -> str:
        return f"{self.name}[{self.label}]" if self.label else self.name

    def module(self, dtype: Any = np.float64) -> Any:
        """Gains that are not 1 and biases that are not 0: a backward that forgets them cannot pass."""
        module, rng = self.build(np.random.default_rng(3)), np.random.default_rng(4)
        if isinstance(module, Module):
            module.astype(np.float64)
            for p in module.parameters():
                p.data += 0.1 * rng.standard_normal(p.shape)
            module.astype(dtype)
        return module

    def draw(self) -> Arguments:
        return self.arguments(np.random.default_rng(5))

    # ------------------------------------------------------------------ run

    def pulled(self, dtype: Any = np.float64) -> Pulled:
        """As it stands in minitx."""
        module = self.module(dtype)
        args, options, inputs = self._lifted(lambda a: Tensor(a.astype(dtype), requires_grad=True))
        return pull(self.outputs(module, args, options), [*parameters(module), *inputs])

    def outputs(self, module: Any, args: Any, options: Any) -> tuple[Any, ...]:
        if not self.aux:
            return flat(module(*args, **options))
        aux = Aux()
        return (*flat(module(*args, **options, aux=aux)), *aux.losses.values())

    def written(self, F: Any, leaf: Callable[[Array], Any]) -> tuple[tuple[Any, ...], list[Any]]:
        """Written out, in a vocabulary with its leaves: (outputs, leaves)."""
        module = self.module()
        leaves = {id(p): leaf(p.numpy()) for p in parameters(module)}
        args, options, inputs = self._lifted(leaf)
        aux: dict[str, Any] = {}
        m = Twin(module, leaves) if isinstance(module, Module) else module
        result = write(F, m, *args, **options, **({"aux": aux} if self.aux else {}))
        return (*flat(result), *aux.values()), [*leaves.values(), *inputs]

    def _lifted(self, leaf: Callable[[Array], Any]) -> tuple[list[Any], dict[str, Any], list[Any]]:
        args, options = self.draw()
        is_input = [isinstance(a, np.ndarray) and a.dtype.kind == "f" and self.kind != "model" for a in args]
        lifted = [leaf(a) if floats else a for a, floats in zip(args, is_input)]
        return lifted, options, [a for a, floats in zip(lifted, is_input) if floats]

    # ------------------------------------------------------------------ the four witnesses

    def differences(self) -> Measure:
        module = self.module()
        args, options, inputs = self._lifted(lambda a: Tensor(a, requires_grad=True))
        named = {**dict(module.named_parameters() if isinstance(module, Module) else ())}
        named |= {f"input {i}": x for i, x in enumerate(inputs)}
        if not named:
            return absent(NOTHING_TO_LEARN)
        dys = cotangents([y.data for y in self.outputs(module, args, options)])

        def loss() -> Tensor:
            terms = [(y * dy).sum() for y, dy in zip(self.outputs(module, args, options), dys)]
            total: Tensor = sum(terms[1:], terms[0])
            return total

        try:
            report = gradcheck_model(loss, named, tolerance=DIFFERENCES, step=STEP, samples=3)
        except GradientError as error:
            return Measure(error.report.error, DIFFERENCES, "\n".join(str(error).split("\n\n")[0].splitlines()[:4]))
        return Measure(report.error, DIFFERENCES, "; ".join(report.kinks))

    def smaller(self) -> Measure:
        theirs = pull(*self.written(smaller(), lambda a: Tensor(a, requires_grad=True)))
        return Measure(self.pulled().apart(theirs), SMALLER)

    def kernel(self) -> Measure:
        if not has_numba():
            return absent(NO_NUMBA)
        seen = Fast()
        with changed(observer=seen):
            fast = self.pulled()
        if not seen.kernels:
            return absent(NO_KERNEL_INSIDE)
        with reference():
            exact = self.pulled()
        # A gradient that is exactly 0 (of a key's bias) is rounding, in float32 as large as the others' rounding.
        errors = [
            (fast.apart(exact), KERNEL64),
            (self.pulled(np.float32).apart(exact, small=1.0), rounding(exact.largest)),
        ]
        return Measure(*max(errors, key=lambda e: e[0] / e[1]))

    def pytorch(self, torch: Any) -> Measure:
        if self.not_in_torch:
            return absent(self.not_in_torch)
        theirs = pull_torch(torch, *self.written(pytorch(torch), lambda a: torch.tensor(a, requires_grad=True)))
        return Measure(self.pulled().apart(theirs), TORCH)


class Fast:
    """Watches which ops run that have a kernel."""

    def __init__(self) -> None:
        self.kernels: set[str] = set()

    def forward(self, op: Any, *_: Any) -> None:
        if op.kernel is not None:
            self.kernels.add(op.name)

    def backward(self, *_: Any) -> None:
        pass


def parameters(module: Any) -> list[Tensor]:
    return list(module.parameters()) if isinstance(module, Module) else []


def flat(result: Any) -> tuple[Any, ...]:
    if isinstance(result, Output):
        return result.logits, result.hidden, *result.aux_losses.values()
    return result if isinstance(result, tuple) else (result,)
