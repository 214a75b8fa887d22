"""minitx bench: how fast a training step is, what an op costs, how long the import takes."""
from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import platform
import subprocess
import sys
from typing import Any

from minitx.bench.overhead import gradient_of_a_chain, overhead_lines, overheads
from minitx.bench.timing import measure, summary
from minitx.bench.train import Row, as_dict, rows
from minitx.cli.common import UserError


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("train", "ops", "import"), default="train", help="default: train")
    parser.add_argument("--against", choices=("torch",), help="time PyTorch beside it (where it is installed)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, metavar="N", help="default: one per core")
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="of each side and size (default: 8)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.threads < 1:
        raise UserError(f"--threads is at least 1, not {args.threads}")
    if not args.seconds > 0:
        raise UserError(f"--seconds is above 0, not {args.seconds}")
    if args.against == "torch" and importlib.util.find_spec("torch") is None:
        raise UserError('PyTorch is not installed: in the clone, pip install -e ".[torch]"; or leave out --against')
    print(f"{platform.system()} {platform.machine()}, {args.threads} threads, Python {platform.python_version()}")
    figures: Any = {"train": train, "ops": ops, "import": imports}[args.what](args)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    return 0


def train(args: argparse.Namespace) -> Any:
    print("training step of a pre-norm decoder: forward, backward, clip 1.0, AdamW; median (quartiles), float32")
    found: list[Row] = []
    for row in rows(args.against, args.threads, args.seconds):
        found.append(row)
        line = f"{row.size!s:40s} minitx {row.ours.ms():24s} {row.size.flops() / row.ours.median / 1e9:6.1f} GFLOP/s"
        if row.theirs is not None:
            line += f"   torch {row.theirs.ms():24s} ratio {row.ratio:.2f}"
        print(f"{line}   first step after {row.first:.1f} s", flush=True)
    ratios = [row.ratio for row in found if row.ratio is not None]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"ratio, theirs / ours: geometric mean {mean:.2f}, worst {min(ratios):.2f}")
    return [as_dict(row) for row in found]


def ops(args: argparse.Namespace) -> Any:
    found = overheads()
    print("\n".join(overhead_lines(found)))
    chain = gradient_of_a_chain()
    seconds = summary(measure(chain, 3)).median
    print(f"a chain of 50,000 ops, forward and backward: {seconds:.2f} s, gradient {chain():.0f}")
    return {row.name: {"engine": row.engine.median, "rule": row.rule.median} for row in found} | {"chain": seconds}


def imports(args: argparse.Namespace) -> Any:
    def start(code: str) -> float:
        command = [sys.executable, "-c", code]
        return summary(measure(lambda: subprocess.run(command, check=True), 9)).median

    bare, numpy, ours = start("pass"), start("import numpy"), start("import minitx")
    print(f"import minitx {ours - bare:.3f} s, of which NumPy {numpy - bare:.3f} s (medians, less Python's own start)")
    return {"minitx": ours - bare, "numpy": numpy - bare}
