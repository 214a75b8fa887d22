"""The names and shapes of a model's parameters from its configuration alone, however large it is.

A test builds real models and compares: what the builder makes is what is written here.
"""
from __future__ import annotations

import math
import re
from typing import Any

from minitx.models.config import TransformerConfig
from minitx.ops.feedforward import GATES

Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(config: TransformerConfig) -> Shapes:
    """Name → shape, in the order of `model.named_parameters()`; a tied matrix is there once."""
    c, r = config, config.resolved()
    d = c.d_model
    shapes: Shapes = {}

    def linear(name: str, d_in: int, d_out: int, bias: bool, experts: tuple[int, ...] = ()) -> None:
        shapes[f"{name}.weight"] = (*experts, d_out, d_in)
        if bias:
            shapes[f"{name}.bias"] = (*experts, d_out)

    def norm(name: str, width: int) -> None:
        shapes[f"{name}.weight"] = (width,)
        if r["norm_bias"]:
            shapes[f"{name}.bias"] = (width,)

    def branch_norms(name: str) -> None:
        norm(f"{name}.norm", d)
        if c.norm_placement == "both":
            norm(f"{name}.norm_after", d)

    def attention(name: str, buckets: bool) -> None:
        kv = r["kv_heads"]
        linear(f"{name}.query", d, c.heads * r["head_dim"], r["attention_bias"])
        linear(f"{name}.key", d, kv * r["head_dim"], r["attention_bias"])
        linear(f"{name}.value", d, kv * r["value_dim"], r["attention_bias"])
        linear(f"{name}.out", c.heads * r["value_dim"], d, r["attention_out_bias"])
        if buckets and c.position == "relative":
            shapes[f"{name}.position_bias.weight"] = (c.relative_buckets, c.heads)
        for which in ("query_norm", "key_norm") if c.qk_norm else ():
            norm(f"{name}.{which}", r["head_dim"])

    def network(name: str, width: int, experts: tuple[int, ...] = ()) -> None:
        for which in ("gate", "up") if c.activation in GATES else ("up",):
            linear(f"{name}.{which}", d, width, r["ff_bias"], experts)
        linear(f"{name}.down", width, d, r["ff_bias"], experts)

    def feedforward(name: str) -> None:
        if not c.experts:
            return network(name, r["d_ff"])
        linear(f"{name}.router", d, c.experts, False)
        network(name, r["d_ff"], (c.experts,))
        if c.shared_experts:
            network(f"{name}.shared", c.shared_experts * r["d_ff"])

    def stack(name: str, cross: bool) -> None:
        for i in range(c.layers):
            attention(f"{name}.{i}.attention", buckets=i == 0)
            branch_norms(f"{name}.{i}.attention_residual")
            if cross:
                attention(f"{name}.{i}.cross_attention", buckets=False)
                branch_norms(f"{name}.{i}.cross_attention_residual")
            feedforward(f"{name}.{i}.feedforward")
            branch_norms(f"{name}.{i}.feedforward_residual")
        if c.norm_placement != "post":
            norm(f"{name}_norm", d)

    def head() -> None:
        if c.head == "classification":
            if c.head_dense:
                linear("head.dense", d, d, True)
            linear("head.out", d, c.classes or 0, True)
        elif c.head == "tokens":
            linear("head.out", d, c.classes or 0, True)
        elif c.head == "masked-lm":
            linear("head.dense", d, d, True)
            shapes["head.norm.weight"] = shapes["head.norm.bias"] = (d,)
            linear("head.decoder", d, c.vocab_size, True)
        elif c.head == "language-model":
            linear("head", d, c.vocab_size, c.head_bias)
        if c.tie_embeddings:
            for name in ("head.decoder.weight", "head.weight"):
                shapes.pop(name, None)

    if c.patch_dim is not None:
        shapes["embedding.first"] = (d,)
        linear("embedding.projection", c.patch_dim, d, True)
    else:
        shapes["embedding.weight"] = (c.vocab_size, d)
    if c.position == "learned":
        shapes["positions.weight"] = (c.max_length, d)
    if c.segments:
        shapes["segments.weight"] = (c.segments, d)
    if c.embedding_norm:
        norm("embedding_norm", d)
    if c.architecture == "encoder-decoder" and not c.tie_embeddings:
        shapes["target_embedding.weight"] = (c.vocab_size, d)
    if c.architecture != "decoder":
        stack("encoder", cross=False)
    if c.architecture != "encoder":
        stack("decoder", cross=c.architecture == "encoder-decoder")
    head()
    return shapes


COMPONENTS = {  # component → the parameters that it consists of; the first that fits counts
    "norms": r"norm(_after)?\.|_norm\.",
    "positions": r"^positions|position_bias",
    "embeddings": r"^(target_)?embedding|^segments",
    "head": r"^head",
    "cross-attention": r"\.cross_attention\.",
    "attention": r"\.attention\.",
    "router": r"\.router\.",
    "feed-forward": r"\.feedforward\.",
}


def parameters_by_component(config: TransformerConfig) -> dict[str, int]:
    """Component → number of parameters, in reading order, without those that have none."""
    counts = dict.fromkeys(
        ("embeddings", "positions", "attention", "cross-attention", "router", "feed-forward", "norms", "head"), 0
    )
    for name, shape in parameter_shapes(config).items():
        component = next(part for part, pattern in COMPONENTS.items() if re.search(pattern, name))
        counts[component] += math.prod(shape)
    return {name: n for name, n in counts.items() if n}


def parameters_used(config: TransformerConfig) -> int:
    """How many parameters one token meets: of a mixture, its own experts only."""
    total = sum(parameters_by_component(config).values())
    if config.experts:
        idle = 1 - config.experts_per_token / config.experts
        of_experts = sum(
            math.prod(s) for n, s in parameter_shapes(config).items() if re.search(r"feedforward\.(gate|up|down)\.", n)
        )
        total -= round(of_experts * idle)
    return total


def tree(config: TransformerConfig) -> str:
    """The parameters as an indented tree with shapes and counts. Layers that are alike are shown once: `0 - 11`."""
    top: dict[str, Any] = {}
    for name, shape in parameter_shapes(config).items():
        *path, last = name.split(".")
        node = top
        for part in path:
            node = node.setdefault(part, {})
        node[last] = shape
    total = _count(top)
    return "\n".join([f"{config.architecture}  [{total:,}]", *_lines(top, "  ")])


def _count(node: Any) -> int:
    return math.prod(node) if isinstance(node, tuple) else sum(_count(child) for child in node.values())


def _lines(node: dict[str, Any], indent: str) -> list[str]:
    lines = []
    for names, child in _alike(node):
        label = names[0] if len(names) == 1 else f"{names[0]} - {names[-1]}"
        count = f"[{_count(child):,}{' each' if len(names) > 1 else ''}]"
        if isinstance(child, tuple):
            lines.append(f"{indent}{label} {_shape(child)}  {count}")
        elif all(isinstance(part, tuple) for part in child.values()):  # a layer: its parameters in one line
            parts = ", ".join(f"{name} {_shape(shape)}" for name, shape in child.items())
            lines.append(f"{indent}{label}: {parts}  {count}")
        else:
            lines += [f"{indent}{label}  {count}", *_lines(child, indent + "  ")]
    return lines


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _alike(node: dict[str, Any]) -> list[tuple[list[str], Any]]:
    """Neighbours whose names are numbers and whose contents are equal, together."""
    groups: list[tuple[list[str], Any]] = []
    for name, child in node.items():
        if groups and name.isdecimal() and groups[-1][0][-1].isdecimal() and groups[-1][1] == child:
            groups[-1][0].append(name)
        else:
            groups.append(([name], child))
    return groups
