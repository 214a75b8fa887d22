"""Our side of a training step: forward, backward, clip, AdamW."""
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minitx.bench.models import Size, batch
from minitx.models import Transformer, TransformerConfig
from minitx.ops import cross_entropy
from minitx.optim import AdamW, clip_grad_norm


def build(size: Size, threads: int) -> Callable[[], float]:
    try:
        from minitx.kernels.parallel import set_threads

        set_threads(threads)
    except ImportError:
        pass  # no numba: the definitions, on NumPy's own threads
    config = TransformerConfig.gpt2(
        layers=size.layers, d_model=size.d, heads=size.heads, vocab_size=size.V, max_length=size.T, dropout=0.0,
        tie_embeddings=False, activation="gelu",
    )  # fmt: skip
    model = Transformer(config, rng=np.random.default_rng(0))
    optimizer = AdamW(model, lr=1e-3)
    ids, targets = batch(size)

    def step() -> float:
        loss = cross_entropy(model(ids).logits, targets)
        optimizer.zero_grad()
        loss.backward()
        clip_grad_norm(optimizer, 1.0)
        optimizer.step()
        return loss.item()

    return step
