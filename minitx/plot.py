"""Pictures of a run: its losses, and what its attention looks at. matplotlib, without a window."""
from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from minitx.data import EOS, PAD
from minitx.data.tokenizer import SPECIAL
from minitx.files import write_bytes
from minitx.generation import evaluating
from minitx.tensor import Array
from minitx.training.extra import need
from minitx.training.log import read_log

SYMBOLS = 24  # an attention map shows at most so many places: more cannot be read


def loss(log: str | Path, picture: str | Path) -> None:
    """Training and held-out loss by step, from log.jsonl."""
    records = read_log(log)
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    axes.plot(*_series(records, lambda r: r["loss"]), color="0.7", linewidth=1, label="training, one batch")
    axes.plot(*_series(records, lambda r: r["held_out"]["loss"]), "o-", color="C3", markersize=4, label="held out")
    axes.set(xlabel="step", ylabel="loss (nats per symbol)", xlim=(0, None))
    losses = [y for line in axes.get_lines() for y in line.get_ydata() if y > 0]
    if losses and min(losses) < max(losses) / 20:  # a task that is learned: on a linear scale its end is a line at 0
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, picture)


def attention(model: Any, task: Any, picture: str | Path) -> None:
    """The attention maps of one held-out example, a row a layer, a column a head.

    Of an encoder-decoder the cross-attention: at which source symbol (across) does it look when it has to say the
    target symbol (down)? Of a decoder the self-attention: at which earlier character does each one look?
    """
    maps, down, across = attention_maps(model, task)
    draw_maps(maps, down, across, picture)


def attention_maps(model: Any, task: Any) -> tuple[dict[str, Array], list[str], list[str]]:
    """({"decoder.0.cross": (H, T, S), ...}, labels of the T queries, labels of the S keys)."""
    batch = _readable_example(task.held_out())
    with evaluating(model):
        output = model(batch.ids, batch.target_ids, mask=batch.mask, target_mask=batch.target_mask, weights=True)
    across = _symbols(task.tokenizer, batch.ids[0])
    down = across if batch.target_ids is None else _symbols(task.tokenizer, batch.targets[0])
    kind = "self" if batch.target_ids is None else "cross"
    maps = {name: w for name, w in output.weights.items() if name.startswith("decoder.") and name.endswith(f".{kind}")}
    return {name: w[0, :, : len(down), : len(across)] for name, w in maps.items()}, down, across


def draw_maps(maps: Mapping[str, Array], down: Sequence[str], across: Sequence[str], picture: str | Path) -> None:
    """One small map per layer (row) and head (column); dark is a weight of 1."""
    heads = next(iter(maps.values())).shape[0]
    figure = _figure(0.6 + 2.2 * heads, 0.6 + 2.2 * len(maps))
    grid = figure.subplots(len(maps), heads, squeeze=False)
    for row, (name, weights) in zip(grid, maps.items()):
        for head, (axes, w) in enumerate(zip(row, weights)):
            axes.imshow(w, cmap="Blues", vmin=0, vmax=1, aspect="equal", interpolation="nearest")
            axes.set_title(f"{name}, head {head}", fontsize=7)
            axes.set_yticks(range(len(down)), down, fontsize=6)
            axes.set_xticks(range(len(across)), across, fontsize=6)
            for label in axes.get_xticklabels():
                label.set_rotation(90 if len(label.get_text()) > 2 else 0)
            axes.tick_params(length=0)
    figure.supxlabel("looked at", fontsize=8)
    figure.supylabel("to be said" if down is not across else "read last", fontsize=8)
    _save(figure, picture)


def _readable_example(batches: Sequence[Any]) -> Any:
    """As a batch of one row: about twelve symbols and an end, long enough for a pattern and short enough to read.

    Among those the one with the most different symbols, so that a label says where it stands.
    """
    rows = [row[row != PAD] for batch in batches for row in batch.ids]
    row = min(range(len(rows)), key=lambda i: (abs(len(rows[i]) - 13), -len(set(rows[i][:SYMBOLS].tolist()))))
    for batch in batches:
        if row < len(batch):
            return batch.rows(slice(row, row + 1))
        row -= len(batch)
    raise ValueError("there are no held-out examples to look at")


def _symbols(tokenizer: Any, ids: Array) -> list[str]:
    names = [tokenizer.symbols[i - len(SPECIAL)] if i != EOS else "end" for i in ids[:SYMBOLS].tolist() if i > PAD]
    return [{" ": "_", "\n": "\\n", "\t": "\\t", "$": r"\$"}.get(name, name) for name in names]


def _series(records: Sequence[Mapping[str, Any]], value: Any) -> tuple[list[int], list[float]]:
    points = []
    for r in records:
        try:
            points.append((r["step"], value(r)))
        except KeyError:
            continue
    points = [(step, v) for step, v in points if v is not None]
    return [p[0] for p in points], [p[1] for p in points]


def _figure(width: float, height: float) -> Any:
    """Not by way of pyplot: no window, no global state."""
    need("matplotlib.backends.backend_agg")
    return need("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")


def _save(figure: Any, path: str | Path) -> None:
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a character that the font lacks is drawn as a box
        figure.savefig(content, format="png", dpi=150)
    write_bytes(path, content.getvalue())
