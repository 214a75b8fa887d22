"""PyTorch's side of generation: the same decoder, eager, in inference mode, with a cache that is allocated beforehand.

Its attention is scaled_dot_product_attention on views of the cache; with fewer key than query heads the queries of a
group stand in the place of positions, so that no key is copied.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minitx.bench.generate import STEPS, Shape, Work


def build(work: Sequence[Any], threads: int) -> Callable[[], tuple[int, int]]:
    """A function that does the work once and returns the bytes of the cache: in use, allocated."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    work = Work(*work)
    shape = Shape(*work.shape)
    d, heads, kv_heads = shape.d, shape.heads, shape.kv_heads
    width = d // heads
    cut = [d, kv_heads * width, kv_heads * width]

    class Block(nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, sum(cut)), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x: Any, keys: Any, values: Any, at: int) -> Any:
            B, T, _ = x.shape
            q, k, v = (
                part.view(B, T, -1, width).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(cut, dim=2)
            )
            keys[:, :, at : at + T] = k
            values[:, :, at : at + T] = v
            if T > 1:  # (B, H, T, d), on themselves
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
            else:
                q = q.reshape(B, kv_heads, heads // kv_heads, width)  # (B, H_kv, group, d)
                o = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1])
                o = o.reshape(B, heads, 1, width)
            x = x + self.out(o.transpose(1, 2).reshape(B, T, d))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Decoder(nn.Module):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(shape.V, d), nn.Embedding(shape.longest, d)
            self.blocks = nn.ModuleList(Block() for _ in range(shape.layers))
            self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, shape.V, bias=False)
            size = (shape.layers, 2, shape.B, kv_heads, shape.longest, width)
            self.cache = torch.zeros(size)
            self.length = 0

        def forward(self, ids: Any) -> Any:
            at, T = self.length, ids.shape[1]
            x = self.tokens(ids) + self.places.weight[at : at + T]
            for block, (keys, values) in zip(self.blocks, self.cache):
                x = block(x, keys, values, at)
            self.length = at + T
            return self.head(self.norm(x[:, -1]))  # (B, V)

    model = Decoder().eval()
    prompt = torch.from_numpy(work.prompt())

    @torch.inference_mode()  # type: ignore[untyped-decorator,unused-ignore]
    def prefill() -> Any:
        model.length = 0
        return model(prompt).argmax(-1)

    first = prefill()

    @torch.inference_mode()  # type: ignore[untyped-decorator,unused-ignore]
    def decode() -> None:
        model.length = work.T
        ids = first
        for _ in range(STEPS):
            ids = model(ids[:, None]).argmax(-1)

    def run() -> tuple[int, int]:
        prefill() if work.what == "prefill" else decode()
        return int(model.cache[:, :, :, :, : model.length].numel() * 4), int(model.cache.numel() * 4)

    return run
