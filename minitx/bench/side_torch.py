"""PyTorch's side of a training step: the same models, eager, with scaled_dot_product_attention, AdamW by default."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minitx.bench.memory import peak
from minitx.bench.models import Size, batch


def build(what: Sequence[Any], threads: int) -> Callable[[], dict[str, Any]]:
    import torch
    from torch.nn import functional as F

    from minitx.bench.torch_models import Decoder, EncoderDecoder, Llama

    size, before = Size(*what), peak()  # what the imports took
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    kinds: dict[str, Any] = {"decoder": Decoder, "llama": Llama, "reverse": EncoderDecoder}
    model = kinds[size.kind](size.config())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = batch(size)
    inputs = [torch.from_numpy(ids.copy()) for ids in (data.ids, data.target_ids) if ids is not None]
    if data.mask is not None:
        inputs.append(torch.from_numpy(data.mask.dense(*data.ids.shape, data.ids.shape[1])[:, :1].copy()))  # (B, 1, S)
    targets = torch.from_numpy(data.targets.copy())

    def step() -> dict[str, Any]:
        loss = F.cross_entropy(model(*inputs).reshape(-1, size.V), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call,unused-ignore]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return {"loss": float(loss.detach()), "peak": peak(), "before": before}

    return step
