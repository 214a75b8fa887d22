"""The computation graph as a picture: text in Graphviz's DOT language (`dot -Tsvg` or any online viewer draws it)."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minitx.tensor import Node, Tensor


def graph(t: Tensor, names: Any = None) -> str:
    """
    The graph that leads to `t`: a box for every op with the shape of its value, an ellipse for every leaf.

    Leaves that require a gradient are filled. A leaf shows its name if it has a `name`, or if `names` knows it: a
    Module, or a dict or pairs of names and Tensors. An arrow carries the name of the argument where an op has several.

        print(minitx.graph(loss, model))

    Call it before `backward`, which frees the graph; the recorded part alone is drawn: what came before a `detach()` or
    inside `no_grad()` left no trace.
    """
    known = {id(leaf): name for name, leaf in _pairs(names)}
    nodes = _ancestors(t)
    ids: dict[Any, str] = {node: f"op{i}" for i, node in enumerate(nodes)}
    leaves: dict[Tensor, str] = {}
    lines = ["digraph {", "  rankdir=BT; node [fontname=monospace]; edge [fontname=monospace, fontsize=10];"]
    arrows: list[str] = []
    shapes: dict[Node, dict[int, tuple[int, ...]]] = {node: {} for node in nodes}

    def source(tensor: Tensor) -> str:
        if tensor.node is not None:
            shapes[tensor.node][tensor.index] = tensor.shape
            return ids[tensor.node]
        return leaves.setdefault(tensor, f"leaf{len(leaves)}")

    last = source(t)
    for node in nodes:
        for tensor, slot in zip(node.inputs, node.slots):
            output = [f"output {tensor.index}"] if tensor.node is not None and tensor.node.outputs is not None else []
            argument = [node.op.wrt[slot]] if not node.op.variadic and len(node.op.wrt) > 1 else []
            label = f' [label="{", ".join(output + argument)}"]' if output or argument else ""
            arrows.append(f"  {source(tensor)} -> {ids[node]}{label};")
    for leaf, name in leaves.items():
        title = known.get(id(leaf)) or getattr(leaf, "name", None) or ("leaf" if leaf.requires_grad else "constant")
        style = ', style=filled, fillcolor="#dbe9f6"' if leaf.requires_grad else ""
        lines.append(f'  {name} [shape=ellipse, label="{_quoted(title)}\\n{leaf.shape}"{style}];')
    for node in nodes:
        if node.outputs is not None:
            shapes[node] = {i: o.shape for i, o in enumerate(node.outputs)}
        shown = ", ".join(str(shape) for _, shape in sorted(shapes[node].items()))
        bold = ", penwidth=2" if ids[node] == last else ""
        lines.append(f'  {ids[node]} [shape=box, label="{_quoted(node.op.name)}\\n{shown}"{bold}];')
    return "\n".join([*lines, *arrows, "}"]) + "\n"


def _ancestors(t: Tensor) -> list[Node]:
    """Every node that leads to t, in the order in which they were made."""
    found: set[Node] = set()
    waiting = [] if t.node is None else [t.node]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        if node.backward is None:
            raise RuntimeError(f"backward freed the graph at {node.op.name}; draw it before, or use retain_graph=True")
        found.add(node)
        waiting += [tensor.node for tensor in node.inputs if tensor.node is not None]
    return sorted(found, key=lambda node: node.number)


def _pairs(names: Any) -> Iterable[tuple[str, Tensor]]:
    if names is None:
        return ()
    if hasattr(names, "named_parameters"):
        names = names.named_parameters()
    return names.items() if isinstance(names, Mapping) else names


def _quoted(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"')
