"""What a model costs, from its configuration: floating-point operations and memory, for a batch B and a length T.

How it is counted: a multiply-add is 2 operations; only matrix products and attention count (norms, activations,
softmax, lookups are a few per cent of them); a mask counts what it leaves, T(T+1)/2 pairs under a causal one; going
back costs twice as much, as there is one product for the input and one for the weight (none for the patches of an
image, which need no gradient). In an encoder-decoder source and target have length T both; of an image with N patches
T is N + 1.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from minitx.models.config import TransformerConfig
from minitx.models.shapes import parameters_by_component
from minitx.ops.feedforward import GATES

# Bytes of a number that is stored for long (weights, cache), and of one that is computed with: int8 is for storing.
STORED = {"fp32": 4, "fp16": 2, "int8": 1}
COMPUTED = {"fp32": 4, "fp16": 2, "int8": 4}
FAR = 2**40  # no text is longer


class Flops(NamedTuple):
    forward: int
    backward: int

    def __add__(self, other: object) -> Flops:
        assert isinstance(other, Flops)
        return Flops(self.forward + other.forward, self.backward + other.backward)


def product(rows: int, d_in: int, d_out: int) -> int:
    """2 operations for each of rows x d_in x d_out multiply-adds."""
    return 2 * rows * d_in * d_out


def pairs(length: int, causal: bool, window: int | None = None) -> int:
    """How many (query, key) pairs of one sequence the mask leaves."""
    if not causal:
        return length * length
    w = length if window is None else min(window, length)
    return w * (w + 1) // 2 + (length - w) * w


def layer_windows(c: TransformerConfig) -> list[int | None]:
    """The window of each layer."""
    return [c.window if i % c.window_every == 0 else None for i in range(c.layers)]


def stacks(c: TransformerConfig) -> list[bool]:
    """Whether each stack is causal."""
    return {"encoder": [False], "decoder": [True], "encoder-decoder": [False, True]}[c.architecture]


# ---------------------------------------------------------------------- operations


def flops(config: TransformerConfig, batch: int, length: int) -> dict[str, Flops]:
    """Component → operations of one training pass over `batch` sequences of `length`, forward and back."""
    c, r = config, config.resolved()
    d, B, T = c.d_model, batch, length
    rows = B * T
    forward = dict.fromkeys(
        ("patches", "attention projections", "attention pairs", "cross-attention projections", "cross-attention pairs",
         "router", "feed-forward", "head"), 0,
    )  # fmt: skip
    widths = c.heads * r["head_dim"], r["kv_heads"] * r["head_dim"], r["kv_heads"] * r["value_dim"]
    projections = sum(product(rows, d, width) for width in widths) + product(rows, c.heads * r["value_dim"], d)
    per_pair = 2 * c.heads * (r["head_dim"] + r["value_dim"])
    matrices = 3 if c.activation in GATES else 2
    for causal in stacks(c):
        for window in layer_windows(c):
            forward["attention projections"] += projections
            if c.attention_kernel == "linear":
                forward["attention pairs"] += 4 * rows * c.heads * r["head_dim"] * r["value_dim"]
            else:
                forward["attention pairs"] += B * pairs(T, causal, window) * per_pair
        used = c.experts_per_token + c.shared_experts if c.experts else 1
        forward["feed-forward"] += c.layers * used * matrices * product(rows, d, r["d_ff"])
        forward["router"] += c.layers * product(rows, d, c.experts)
    if c.architecture == "encoder-decoder":
        linear = 4 * rows * c.heads * r["head_dim"] * r["value_dim"]
        forward["cross-attention projections"] = c.layers * projections
        forward["cross-attention pairs"] = c.layers * (
            linear if c.attention_kernel == "linear" else B * T * T * per_pair
        )
    if c.patch_dim is not None:
        forward["patches"] = product(B * (T - 1), c.patch_dim, d)
    classes = c.classes or 0
    forward["head"] = {
        "none": 0,
        "language-model": product(rows, d, c.vocab_size),
        "masked-lm": product(rows, d, d) + product(rows, d, c.vocab_size),
        "tokens": product(rows, d, classes),
        "classification": product(B, d, d) * c.head_dense + product(B, d, classes),
    }[c.head]
    return {name: Flops(n, n if name == "patches" else 2 * n) for name, n in forward.items() if n}


def overtakes(config: TransformerConfig, with_projections: bool = True) -> int | None:
    """The shortest length at which attention costs more than the feed-forward networks; None if there is none.

    With projections, all of attention is counted; without, the pairs alone: what grows with the square of the length.
    """

    def more(length: int) -> bool:
        cost = flops(config, 1, length)
        attention = [name for name in cost if "attention" in name and (with_projections or "pairs" in name)]
        network = cost["feed-forward"].forward + (cost["router"].forward if "router" in cost else 0)
        return sum(cost[name].forward for name in attention) > network

    low, high = 1, 1
    while not more(high):
        low, high = high + 1, 2 * high
        if high > FAR:
            return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if more(middle) else (middle + 1, high)
    return low


# ---------------------------------------------------------------------- memory


def score_elements(config: TransformerConfig, batch: int, length: int) -> int:
    """Numbers in the score matrices of one layer, B H T²: 8 heads and 4096 tokens make 134,217,728."""
    return batch * config.heads * length * length


def cache_elements(config: TransformerConfig, batch: int, length: int, source: int | None = None) -> int:
    """Keys and values that generation keeps: B H_kv (d + d_v) a layer and token, of a window its last tokens.

    The source of an encoder-decoder has `source` tokens, as many as the target if None.
    """
    c, r = config, config.resolved()
    if c.architecture == "encoder":
        return 0
    tokens = sum(length if w is None else min(w, length) for w in layer_windows(c))
    if c.architecture == "encoder-decoder":
        tokens += c.layers * (length if source is None else source)  # for cross-attention
    per_token: int = r["kv_heads"] * (r["head_dim"] + r["value_dim"])
    return batch * tokens * per_token


def feedforward_elements(config: TransformerConfig, batch: int, length: int) -> int:
    """Numbers inside the feed-forward of one layer, all kept for going back: before and after φ (a gate: three)."""
    c, r = config, config.resolved()
    used = c.experts_per_token + c.shared_experts if c.experts else 1
    return batch * length * used * int(r["d_ff"]) * (3 if c.activation in GATES else 2)


def activation_elements(config: TransformerConfig, batch: int, length: int) -> int:
    """How many numbers one forward pass keeps for going back: every value between two ops, and attention's weights.

    The weights are kept by the textbook kernel only. What an op keeps for itself besides (a norm its normalised values,
    GELU its slope) depends on how it is written and is not in it, nor is dropout; both are in proportion to the rest.
    """
    c, r = config, config.resolved()
    d, rows = c.d_model, batch * length
    q, k, v, out = (
        rows * heads * r[width] for heads, width in
        ((c.heads, "head_dim"), (r["kv_heads"], "head_dim"), (r["kv_heads"], "value_dim"), (c.heads, "value_dim"))
    )  # fmt: skip
    weights = score_elements(c, batch, length) if c.attention_kernel == "textbook" else 0
    attention = q + k + v + 2 * out + weights  # twice: heads beside each other, and merged
    cross = attention
    attention += (q + k) * ((c.position == "rotary") + c.qk_norm)
    cross += (q + k) * c.qk_norm
    branch = (4 if c.norm_placement == "both" else 3) * rows * d  # a norm's result or two, the update, the sum
    network = feedforward_elements(c, batch, length)
    if c.experts:
        network += 2 * c.experts_per_token * rows * d + rows * c.experts  # tokens sorted by expert and back; scores
    total = 0
    for causal in stacks(c):
        if causal and c.architecture == "encoder-decoder":
            total += c.layers * (branch + cross)
        total += c.layers * (2 * branch + attention + network)
        added = c.scale_embeddings + (c.position in ("sinusoidal", "learned")) + bool(c.segments) + c.embedding_norm
        total += (1 + added + (c.norm_placement != "post")) * rows * d
    scores = rows * c.vocab_size
    if c.head == "language-model":
        total += scores * (1 + (c.logit_scale is not None) + 3 * (c.logit_softcap is not None))
    elif c.head == "masked-lm":
        total += 3 * rows * d + scores
    return total


@dataclass(frozen=True)
class Cost:
    """All of it for one configuration, batch, length and type of number; memory in bytes."""

    config: TransformerConfig
    batch: int
    length: int
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        if self.dtype not in STORED:
            raise ValueError(f"the type of numbers is one of {', '.join(STORED)}, not {self.dtype!r}")
        for name, value in (("batch", self.batch), ("length", self.length)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is a whole number, at least 1, not {value!r}")
        if self.config.position == "learned" and self.length > self.config.max_length:
            raise ValueError(f"length {self.length} is past the {self.config.max_length} learned positions")

    @property
    def parameters(self) -> dict[str, int]:
        return parameters_by_component(self.config)

    @property
    def flops(self) -> dict[str, Flops]:
        return flops(self.config, self.batch, self.length)

    @property
    def memory(self) -> dict[str, int]:
        stored, computed = STORED[self.dtype], COMPUTED[self.dtype]
        of = self.config, self.batch, self.length
        weights = sum(self.parameters.values()) * stored
        cache = cache_elements(*of) * stored
        return {
            "attention scores, one layer": score_elements(*of) * computed,
            "feed-forward activations, one layer": feedforward_elements(*of) * computed,
            "training activations, all layers": activation_elements(*of) * computed,
            "weights": weights,
            "KV cache": cache,
            "resident in inference (weights, cache)": weights + cache,
        }
