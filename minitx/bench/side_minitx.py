"""Our side of a training step: forward, backward, clip, AdamW."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitx.bench.memory import peak
from minitx.bench.models import Size, batch
from minitx.models import Transformer
from minitx.ops import cross_entropy
from minitx.optim import AdamW, clip_grad_norm
from minitx.settings import set_threads


def build(what: Sequence[Any], threads: int) -> Callable[[], dict[str, Any]]:
    size = Size(*what)
    set_threads(threads)
    before = peak()  # with all imports: numba comes with the first kernel
    model = Transformer(size.config(), rng=np.random.default_rng(0))
    optimizer = AdamW(model, lr=1e-3)
    data = batch(size)

    def step() -> dict[str, Any]:
        logits = model(data.ids, data.target_ids, mask=data.mask, target_mask=data.target_mask).logits
        loss = cross_entropy(logits, data.targets)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(optimizer, 1.0)
        optimizer.step()
        return {"loss": loss.item(), "peak": peak(), "before": before}

    return step
