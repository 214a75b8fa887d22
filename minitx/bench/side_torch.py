"""PyTorch's side of a training step: the same decoder, eager, scaled_dot_product_attention, AdamW by default."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minitx.bench.models import Size, batch


def build(size: Size, threads: int) -> Callable[[], float]:
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    d, heads = size.d, size.heads

    class Block(nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x: Any) -> Any:
            B, T, _ = x.shape
            q, k, v = (
                part.view(B, T, heads, d // heads).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(d, dim=2)
            )
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, d)
            x = x + self.out(o)
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(size.V, d), nn.Embedding(size.T, d)
            self.blocks = nn.ModuleList(Block() for _ in range(size.layers))
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, size.V, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    model = Decoder()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids, targets = (torch.from_numpy(a.copy()) for a in batch(size))

    def step() -> float:
        loss = F.cross_entropy(model(ids).reshape(-1, size.V), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call,unused-ignore]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(loss.detach())

    return step
