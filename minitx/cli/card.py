"""minitx card SOURCE [OTHER]: what a model is made of, two side by side, or with --cost what it costs."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minitx.cli.common import UserError, setting_up
from minitx.cli.settings import parse
from minitx.models import TransformerConfig
from minitx.models.card import Card, flat
from minitx.models.cost import COMPUTED, STORED, Cost, Flops, overtakes
from minitx.models.presets import PRESETS
from minitx.models.shapes import parameters_used, tree
from minitx.training import checkpoint
from minitx.training.config import nearest


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="PRESET|DIR", help=f"one of {', '.join(PRESETS)}; a checkpoint folder; or a "
                        "card as a .json or .toml file")  # fmt: skip
    parser.add_argument("other", metavar="OTHER", nargs="?", help="a second one: both side by side, differences marked")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
                        help="of a preset, which is scaled to it: d_model=64 layers=2")  # fmt: skip
    parser.add_argument("--format", choices=("text", "json", "toml"), default="text", help="default: text")
    parser.add_argument("--cost", action="store_true", help="parameters, operations and memory instead")
    parser.add_argument("--batch", type=int, metavar="B", help="sequences (default: 1), with --cost")
    parser.add_argument("--length", type=int, metavar="T", help="tokens in each (default: the trained length)")
    parser.add_argument("--dtype", choices=tuple(STORED), help="type of the numbers (default: fp32), with --cost")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.cost and (args.batch, args.length, args.dtype) != (None, None, None):
        raise UserError("--batch, --length and --dtype are about what a model costs: add --cost")
    if args.other is not None and (args.cost or args.format != "text"):
        raise UserError(f"two cards are printed side by side: no {'--cost' if args.cost else '--format'} with them")
    if args.cost and args.format != "text":
        raise UserError("--cost is printed as text: no --format with it")
    with setting_up():
        card = read(args.source, args.set)
        if args.cost:
            batch = 1 if args.batch is None else args.batch
            length = card.config.max_length if args.length is None else args.length
            cost = Cost(card.config, batch, length, args.dtype or "fp32")
        other = None if args.other is None else read(args.other, args.set)
    if args.cost:
        print(show_cost(args.source, cost))
    elif other is not None:
        print(side_by_side((args.source, card), (args.other, other)))
    elif args.format != "text":
        print(card.to_json() if args.format == "json" else card.to_toml(), end="")
    else:
        print(f"{args.source}\n")
        print("\n".join(lines(card.in_effect())))
        print(f"\nfingerprint {card.fingerprint()}\n\n{tree(card.config)}")
    return 0


def read(source: str, settings: list[str]) -> Card:
    """The card of a preset, a checkpoint folder or a file."""
    path = Path(source)
    is_preset = source in PRESETS and not path.is_dir()
    if settings and not is_preset:
        raise UserError(f"--set changes a preset, and {source} is as it is")
    if is_preset:
        pairs = [text.partition("=") for text in settings]
        if bad := next((key for key, equals, _ in pairs if not equals), None):
            raise UserError(f"--set takes key=value, like d_model=64, not {bad!r}")
        build = getattr(TransformerConfig, source)
        return Card(build(**{key: parse(value, key) for key, _, value in pairs}))
    if path.is_file():
        return Card.read(path)
    if path.is_dir():
        return checkpoint.load_card(path)
    raise UserError(f"{source} is neither a preset nor a folder or file{nearest(source, PRESETS)}")


# ---------------------------------------------------------------------- the card


def lines(table: Mapping[str, Any], indent: str = "") -> list[str]:
    """One line a value, tables indented; what is not said is left out."""
    out = []
    for key, value in table.items():
        if isinstance(value, Mapping):
            inside = lines(value, indent + "  ")
            out += [f"{indent}{key}", *inside] if inside else []
        elif value is not None:
            out.append(f"{indent}{key:<{max(1, 24 - len(indent))}} {word(value)}")
    return out


def side_by_side(one: tuple[str, Card], two: tuple[str, Card]) -> str:
    """Two cards, a line a value, * where they differ; what follows from other values is filled in."""
    left, right = (flat(card.in_effect()) for _, card in (one, two))
    rows = [("", "", one[0], two[0])]
    for key in dict.fromkeys([*left, *right]):
        a, b = word(left.get(key)), word(right.get(key))
        if (a, b) != ("-", "-"):
            rows.append(("*" if a != b else " ", key.removeprefix("model."), a, b))
    wide = [max(len(row[i]) for row in rows) for i in range(3)]
    text = [f"{mark:<1} {key:<{wide[1]}}  {a:<{wide[2]}}  {b}".rstrip() for mark, key, a, b in rows]
    differing = sum(row[0] == "*" for row in rows)
    return "\n".join([*text, "", f"{differing} differ (marked *), {len(rows) - 1 - differing} are the same"])


def word(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return " ".join(f"{k}={word(v)}" for k, v in value.items())
    return " ".join(map(word, value)) if isinstance(value, list | tuple) else str(value)


# ---------------------------------------------------------------------- what it costs


def show_cost(name: str, cost: Cost) -> str:
    c = cost.config
    each = " of source and of target" if c.architecture == "encoder-decoder" else ""
    out = [f"{name}: batch {cost.batch}, length {cost.length:,}{each}, {cost.dtype}", "", "parameters"]
    total = sum(cost.parameters.values())
    out += [row(part, f"{n:,}", f"{n / total:.1%}") for part, n in cost.parameters.items()]
    out.append(row("total", f"{total:,}"))
    if c.experts:
        out.append(row("used by one token", f"{parameters_used(c):,}"))
    out += ["", f"operations (FLOPs){'':13}{'forward':>24}{'backward':>24}"]
    out += [row(part, f"{n.forward:,}", f"{n.backward:,}", 24) for part, n in cost.flops.items()]
    whole = sum(cost.flops.values(), Flops(0, 0))
    out.append(row("total", f"{whole.forward:,}", f"{whole.backward:,}", 24))
    out.append("  (of matrix products and attention; a multiply-add is 2, and a mask counts only the pairs it leaves)")
    out += ["", "memory"]
    for part, n in cost.memory.items():
        elements = n // (COMPUTED if "layer" in part else STORED)[cost.dtype]
        note = f"{elements:,} numbers" if not part.startswith("resident") else ""
        out.append(row(part, size(n), note, 28, 40))
    if c.attention_kernel != "textbook":
        out.append(f"  (the {c.attention_kernel} kernel never holds the scores)")
    if cost.dtype == "int8":
        out.append("  (int8 is how weights and cache are stored; what is computed is fp32)")
    out += ["", "attention costs more than the feed-forward networks"]
    for what, projections in (("with its projections", True), ("its pairs alone", False)):
        at = overtakes(c, projections)
        out.append(row(what, "at no length" if at is None else f"from length {at:,}"))
    return "\n".join(out)


def row(name: str, first: str, second: str = "", width: int = 20, wide: int = 29) -> str:
    return f"  {name:<{wide}}{first:>{width}}{second:>{width}}".rstrip()


def size(count: int) -> str:
    """1 GiB, 256 MiB, 12.5 KiB: exact where it is a round number."""
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    amount, i = float(count), 0
    while amount >= 1024 and i < len(units) - 1:
        amount, i = amount / 1024, i + 1
    return f"{amount:.4g} {units[i]}"
