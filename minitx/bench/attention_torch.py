"""PyTorch's side of attention: scaled_dot_product_attention, which takes a window as a boolean mask."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from minitx.bench.attention import Case, drawn
from minitx.bench.memory import peak


def build(what: Sequence[Any], threads: int) -> Callable[[], dict[str, Any]]:
    torch.set_num_threads(threads)
    case, before = Case(*what), peak()
    q, k, v, do = (torch.from_numpy(x).transpose(1, 2).requires_grad_() for x in drawn(case))
    options: dict[str, Any] = {"is_causal": case.causal and not case.window, "enable_gqa": bool(case.H_kv)}
    if case.window:
        distance = torch.arange(case.T)[:, None] - torch.arange(case.T)
        options["attn_mask"] = (distance >= 0) & (distance < case.window)

    def forward() -> dict[str, Any]:
        with torch.no_grad():
            F.scaled_dot_product_attention(q, k, v, **options)
        return {"before": before, "peak": peak()}

    def both() -> dict[str, Any]:
        q.grad = k.grad = v.grad = None
        F.scaled_dot_product_attention(q, k, v, **options).backward(do)  # type: ignore[no-untyped-call,unused-ignore]
        return {"before": before, "peak": peak()}

    return both if case.backward else forward
