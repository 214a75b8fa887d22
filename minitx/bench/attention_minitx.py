"""Our side of attention."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minitx.bench.attention import Case, drawn
from minitx.bench.memory import peak
from minitx.masks import causal, window
from minitx.ops import attention
from minitx.settings import no_grad, set_threads
from minitx.tensor import Tensor


def build(what: Sequence[Any], threads: int) -> Callable[[], dict[str, Any]]:
    case = Case(*what)
    set_threads(threads)
    before = peak()  # with all imports: numba comes with the first kernel
    q, k, v, do = (Tensor(x.swapaxes(1, 2), requires_grad=True) for x in drawn(case))
    mask = window(case.window) if case.window else causal() if case.causal else None

    def forward() -> dict[str, Any]:
        with no_grad():
            attention(q, k, v, mask=mask)
        return {"before": before, "peak": peak()}

    def both() -> dict[str, Any]:
        q.grad = k.grad = v.grad = None
        attention(q, k, v, mask=mask).backward(do.data)
        return {"before": before, "peak": peak()}

    return both if case.backward else forward
