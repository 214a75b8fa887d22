"""A decode step as a list of kernel instructions, for models that have nothing but what kernels/step.py can do.

A step of one token does little arithmetic, and most of its time would go into calling the ops one after the other from
Python. The list is made once from the model's modules, with the addresses of weights, cache and buffers, and then run
as often as tokens are wanted. It computes what `model.decode` does, and nothing here is needed to understand it.
"""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from minitx.generation.cache import KVCache, Layer
from minitx.generation.program_weights import address, bits, weights_for
from minitx.kernels import step
from minitx.kernels.memory import memory_for
from minitx.kernels.normalization import ROWS, forward_rows, rms_rows
from minitx.kernels.parallel import threads_for
from minitx.kernels.tile import BITS
from minitx.models import Transformer
from minitx.models.parts import Identity, LanguageModelHead
from minitx.nn import (
    AlibiBias,
    BothNorm,
    DecoderBlock,
    FeedForward,
    GatedFeedForward,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    RelativeBias,
    RMSNorm,
)
from minitx.nn.rotary import Rotary
from minitx.ops.rotary import rotary_table
from minitx.tensor import Array, Tensor

PHI = {
    "relu": step.RELU, "gelu": step.GELU, "gelu_tanh": step.GELU_TANH, "silu": step.SILU,
    "glu": step.SIGMOID, "reglu": step.RELU, "geglu": step.GELU, "geglu_tanh": step.GELU_TANH, "swiglu": step.SILU,
}  # fmt: skip


WORTH = 500_000  # nanoseconds of one thread: in a shorter step, threads on distant cores wait for each other too often


class Unsupported(Exception):
    """The model has a part that no instruction does."""


class Program:
    """The step of `model` for as many rows as `cache` has now."""

    def __init__(self, model: Any, cache: KVCache) -> None:
        self.attributes = [vars(module) for _, module in model.modules()]
        if not BITS or cache.storage is not None or type(model) is not Transformer or self.overridden:
            raise Unsupported
        self.model: Any = model
        self.cache = cache
        self.rows, self.dtype = len(cache.lengths), cache.identity.dtype
        self.kept: list[Array] = []  # arrays whose addresses stand in the arguments
        self.instructions: list[tuple[int, int, float]] = []  # worker, tasks, nanoseconds
        self.arguments: list[list[int]] = []
        self.linears: list[tuple[int, Any]] = []  # instruction, layer
        self.need = 0  # numbers that a task needs to work in
        self.attends: list[tuple[int, Layer, Any]] = []  # instruction, layer, the model's attention
        self.asks: list[tuple[int, Layer]] = []  # the same of the memory
        self.x = x = self.buffer(model.config.d_model)
        for block, layer in zip(model.decoder, cache.layers):
            if type(block) is not DecoderBlock:
                raise Unsupported
            attention, network = block.attention, block.feedforward
            x = self.residual(block.attention_residual, x, self.attention, attention, layer)
            if layer.memory is not None:
                x = self.residual(block.cross_attention_residual, x, self.cross_attention, block.cross_attention, layer)
            x = self.residual(block.feedforward_residual, x, self.network, network)
        if type(model.head) is not LanguageModelHead:
            raise Unsupported
        self.logits = self.buffer(len(model.head.weight))
        self.linear(model.head, self.norm(model.decoder_norm, x), self.logits)
        self.close()

    # ------------------------------------------------------------------ making the list

    def buffer(self, width: int) -> Array:
        return self.keep(np.empty((self.rows, width), self.dtype))

    @property
    def overridden(self) -> bool:
        """Has a module a `forward` of its own, from somebody who wants to be called?"""
        return any("forward" in attributes for attributes in self.attributes)

    def keep(self, array: Array) -> Array:
        if not array.flags.c_contiguous or array.dtype != self.dtype:
            raise Unsupported
        self.kept.append(array)
        return array

    def add(self, worker: Any, tasks: int, nanoseconds: float, arguments: list[int]) -> int:
        self.instructions.append((worker[self.dtype], tasks, nanoseconds))
        self.arguments.append(arguments)
        return len(self.arguments) - 1

    def weight(self, parameter: Any, n: int) -> int:
        """The address of a vector of n numbers, 0 where there is none."""
        if parameter is None:
            return 0
        if parameter.shape != (n,):
            raise Unsupported
        return address(self.keep(parameter.data.view(np.ndarray)))

    def linear(
        self, layer: Any, x: Array, y: Array, phi: int = step.NOTHING, how: int = step.ALONE, other: Array | None = None
    ) -> None:
        if type(layer) not in (Linear, LanguageModelHead):
            raise Unsupported
        n, k = layer.weight.shape
        other = y if other is None else other
        if x.shape[1] != k or y.shape[1] != n or other.shape != y.shape or layer.weight.dtype != self.dtype:
            raise Unsupported  # whose message it is, the op has
        arguments = [address(x), 0, self.weight(layer.bias, n), address(y), address(other), self.rows, n, k, phi, how]
        self.need = max(self.need, step.COLUMNS * self.rows)
        bent = 0.0 if phi in (step.NOTHING, step.RELU) else 1.2
        nanoseconds = n * (k * (0.05 + 0.02 * self.rows) + bent * self.rows)
        at = self.add(step.linear, -(-n // step.COLUMNS), nanoseconds, arguments)
        self.linears.append((at, layer))

    def norm(self, layer: Any, x: Array) -> Array:
        rows, n = x.shape
        y = x
        if type(layer) is LayerNorm:
            gain = self.weight(layer.weight, n)
            shift = address(self.keep(np.zeros(n, self.dtype))) if layer.bias is None else self.weight(layer.bias, n)
            y, statistics = self.buffer(n), self.buffer(3)
            self.add(forward_rows, -(-rows // ROWS), 0.4 * x.size,
                     [rows, n, bits(layer.eps), address(x), gain, shift, address(y), address(statistics)])  # fmt: skip
        elif type(layer) is RMSNorm:
            if layer.weight.shape != (n,):
                raise Unsupported
            gains = self.keep(np.asarray(layer.weight.numpy() + layer.offset, self.dtype))
            y, inverse = self.buffer(n), self.buffer(1)
            self.add(rms_rows, -(-rows // ROWS), 0.3 * x.size,
                     [rows, n, bits(layer.eps), address(x), address(gains), address(y), address(inverse)])  # fmt: skip
        elif type(layer) is not Identity:
            raise Unsupported
        return y

    def residual(self, residual: Any, x: Array, branch: Any, *parts: Any) -> Array:
        """x and what the branch makes of it, in one of the three ways of nn/blocks.py."""
        y = self.buffer(x.shape[1])
        if type(residual) is PostNorm:
            branch(*parts, x, y, x)
            return self.norm(residual.norm, y)
        if type(residual) is PreNorm:
            branch(*parts, self.norm(residual.norm, x), y, x)
            return y
        if type(residual) is not BothNorm:
            raise Unsupported
        branch(*parts, self.norm(residual.norm, x), y, None)
        update, total = self.norm(residual.norm_after, y), self.buffer(x.shape[1])
        self.add(step.add, -(-x.size // step.ELEMENTS), 0.2 * x.size,
                 [x.size, address(x), address(update), address(total)])  # fmt: skip
        return total

    def network(self, layer: Any, h: Array, y: Array, x: Array | None) -> None:
        """y = FFN(h), and x plus that where there is an x."""
        how = step.ALONE if x is None else step.PLUS
        if type(layer) is FeedForward:
            inner = self.buffer(len(layer.up.weight))
            self.linear(layer.up, h, inner, PHI[layer.activation])
        elif type(layer) is GatedFeedForward:
            gate, inner = self.buffer(len(layer.gate.weight)), self.buffer(len(layer.up.weight))
            self.linear(layer.gate, h, gate, PHI[layer.activation])
            self.linear(layer.up, h, inner, step.NOTHING, step.TIMES, gate)
        else:
            raise Unsupported
        self.linear(layer.down, inner, y, step.NOTHING, how, x)

    def attention(self, a: Any, layer: Layer, h: Array, y: Array, x: Array | None) -> None:
        d, d_v = a.widths
        bias_known = a.position_bias is None or type(a.position_bias) in (AlibiBias, RelativeBias)
        if a.key_norm is not None or a.kernel == "linear" or not bias_known:
            raise Unsupported
        k, v = self.buffer(a.kv_heads * d), self.buffer(a.kv_heads * d_v)
        self.linear(a.key, h, k)
        self.linear(a.value, h, v)
        self.attends.append((self.attend(a, h, address(k), address(v), y, x), layer, a))

    def cross_attention(self, a: Any, layer: Layer, h: Array, y: Array, x: Array | None) -> None:
        if a.query_norm is not None or a.kernel == "linear" or a.position_bias is not None or a.rotary is not None:
            raise Unsupported
        self.asks.append((self.attend(a, h, 0, 0, y, x), layer))

    def attend(self, a: Any, h: Array, k: int, v: int, y: Array, x: Array | None) -> int:
        if type(a) is not MultiHeadAttention:
            raise Unsupported
        d, d_v = a.widths
        q, o = self.buffer(a.heads * d), self.buffer(a.heads * d_v)
        self.linear(a.query, h, q)
        arguments = [0] * step.ATTEND
        arguments[: step.KEYS_] = [address(q), k, v, address(o)]
        scale = a.scores.get("scale") or 1 / math.sqrt(d)
        arguments[step.H_ : step.COS] = [a.heads, a.kv_heads, d, d_v, bits(scale), bits(a.scores.get("softcap") or 0.0)]
        group, wide = a.heads // a.kv_heads, d_v + 16
        self.need = max(self.need, group * (d + step.KEYS + 2 * wide + 2) + step.KEYS * (d + wide) + 16)
        at = self.add(step.attend, self.rows * a.kv_heads, 0.0, arguments)
        self.linear(a.out, o, y, step.NOTHING, step.ALONE if x is None else step.PLUS, x)
        return at

    def close(self) -> None:
        """The list as two arrays."""
        self.run, self.worker = step.run[self.dtype], step.go_through[self.dtype]
        self.code = np.array([[worker, tasks] for worker, tasks, _ in self.instructions], np.int64)
        self.nanoseconds = [ns for *_, ns in self.instructions]
        self.args: Array = np.zeros((len(self.arguments), max(map(len, self.arguments))), np.int64)
        for row, arguments in zip(self.args, self.arguments):
            row[: len(arguments)] = arguments
        self.weights = weights_for(self.model, [layer for _, layer in self.linears], self.cache.identity)
        for at, layer in self.linears:
            self.args[at, step.W] = address(self.weights.of(layer))
        self.arrays: list[Array] = []  # of the cache, as the arguments know them
        self.rotary = next((a.rotary for _, _, a in self.attends if a.rotary is not None), None)
        if self.rotary is not None:
            scaling = self.rotary.scaling
            if any(a.rotary is not self.rotary for _, _, a in self.attends) or type(self.rotary) is not Rotary:
                raise Unsupported
            if any((self.rotary.rotary_dim or self.rotary.head_dim) > a.head_dim for _, _, a in self.attends):
                raise Unsupported
            if scaling is not None and scaling["type"] == "dynamic" and scaling["length"] is None:
                raise Unsupported  # (the layer refuses it past a length)
        self.attending: Array = np.array([*(at for at, _, _ in self.attends), *(at for at, _ in self.asks)], np.int64)
        # The instructions of each group of layers that see the same slots.
        self.of_track = [
            (track, np.array([at for at, layer, _ in self.attends if layer.track is track]))
            for track in self.cache.tracks.values()
        ]

    # ------------------------------------------------------------------ running it

    def __call__(self, ids: Array) -> Array:
        """ids (B,) of the step that the cache has begun → logits (B, V), a fresh array."""
        model, cache = self.model, self.cache
        embed = model.embedding if cache.memory_lengths is None else model.target_embedding
        self.x[:] = model.inputs(embed(ids[:, None]), cache.positions, None).data[:, 0]
        self.point()
        work = sum(self.nanoseconds)
        threads = threads_for(work) if work > WORTH else 1
        self.run(self.worker, memory_for(self.dtype, threads, self.need), self.code, self.args, threads)
        logits = self.logits.copy()
        head = model.head
        if head.scale is not None:
            logits *= head.scale
        if head.softcap is not None:
            logits = head.softcap * np.tanh(logits / head.softcap)
        return logits

    def point(self) -> None:
        """Set the addresses that change from step to step."""
        args, cache = self.args, self.cache
        arrays = [slots.x for layer in cache.layers for slots in layer.slots]
        if len(arrays) != len(self.arrays) or any(a is not b for a, b in zip(arrays, self.arrays)):
            self.arrays = arrays
            for i, layer, _ in self.attends:
                args[i, step.KEYS_ : step.SLOT] = _places(layer.keys.x, layer.values.x)
                self.nanoseconds[i] = _nanoseconds(layer.keys.x)
            for i, layer in self.asks:
                assert layer.memory is not None
                keys, values = layer.memory
                args[i, step.KEYS_ : step.SLOT] = _places(keys.x, values.x)
                self.nanoseconds[i] = _nanoseconds(keys.x)
        for track, at in self.of_track:
            args[at, step.SLOT : step.H_] = [address(track.offset), address(track.mask.lo), address(track.mask.hi)]
        if self.asks:
            seen: Any = cache.memory_mask
            for i, _ in self.asks:
                args[i, step.SLOT : step.H_] = [address(seen.lo), address(seen.lo), address(seen.hi)]  # (no new slot)
        if self.rotary is not None:
            r = self.rotary
            self.table = rotary_table(cache.positions, r.rotary_dim or r.head_dim, r.base, r.scaling, self.dtype)
            turns = [address(self.table[0]), address(self.table[1]), self.table[0].shape[2], int(r.interleaved)]
            for _, at in self.of_track:
                args[at, step.COS : step.BIAS_] = turns
        # Position biases, one for all layers that share it and see the same slots.
        biases: dict[tuple[int, int], list[int]] = {}
        self.biases: list[Array] = []
        for i, layer, a in self.attends:
            if a.position_bias is None:
                continue
            key = id(layer.track), id(a.position_bias)
            if key not in biases:
                made = a.position_bias(1, layer.track.used, layer.track.offset)  # (B, H, 1, slots)
                bias = np.ascontiguousarray(made.data if isinstance(made, Tensor) else made, self.dtype)
                self.biases.append(bias)
                B, H, _, S = bias.shape
                if a.heads != H:
                    raise ValueError(f"the position bias is for {H} heads, and this attention has {a.heads}")
                biases[key] = [address(bias), H * S if B > 1 else 0, S]
            args[i, step.BIAS_ : step.ATTEND] = biases[key]


def _nanoseconds(keys: Array) -> float:
    """About what attention over these keys takes one thread."""
    rows, heads, slots, d = keys.shape
    return float(rows * heads * (250 + 0.25 * slots * d))


def _places(keys: Array, values: Array) -> list[int]:
    """Where keys and values begin, and the elements from one row and head to the next."""
    steps = [s // a.itemsize for a in (keys, values) for s in a.strides[:2]]
    return [address(keys), address(values), *steps]
