"""minitx bench: how fast training and generation are, their parts, what an op costs, how long the import takes."""
from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from minitx.bench import generation_tables, tables
from minitx.bench.overhead import gradient_of_a_chain, overhead_lines, overheads
from minitx.bench.sides import ratios
from minitx.bench.timing import measure, summary
from minitx.cli.common import UserError
from minitx.cli.figures import expect, write


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("all", *WHAT), default="all", help="default: all, about 16 minutes")
    parser.add_argument("--against", choices=("torch",), help="time PyTorch beside train, attention, components "
                        "and generate, where it is installed")  # fmt: skip
    parser.add_argument("--threads", type=int, default=usual_threads(), metavar="N",
                        help="default: MINITX_NUM_THREADS, else one per core")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=8.0, metavar="S", help="of each side and size (default: 8)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too, after each part")
    parser.set_defaults(run=run)


def usual_threads() -> int:
    """As many as kernels would use without being told (kernels/parallel.py, which the parser does not import)."""
    given = os.environ.get("MINITX_NUM_THREADS", "")
    return int(given) if given.isdecimal() and 1 <= int(given) <= cores() else cores()


def cores() -> int:
    """The most that there may be; NUMBA_NUM_THREADS changes it."""
    given = os.environ.get("NUMBA_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else os.cpu_count() or 1


def cpu() -> str:
    """What the CPU calls itself: all that follows depends on it."""
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "an unknown CPU"


def run(args: argparse.Namespace) -> int:
    if args.threads < 1:
        raise UserError(f"--threads is at least 1, not {args.threads}")
    if args.threads > cores():
        raise UserError(f"--threads is at most {cores()}, the number of cores, not {args.threads}")
    if not args.seconds > 0:
        raise UserError(f"--seconds is above 0, not {args.seconds}")
    if args.against == "torch" and importlib.util.find_spec("torch") is None:
        print('PyTorch is not installed (in the clone: pip install -e ".[torch]"), so this is our side alone')
        args.against = None
    if args.json == "-":
        raise UserError("--json names a file: the tables are on the terminal already")
    expect(args.json)
    threads = f"{args.threads} thread{'s' if args.threads > 1 else ''}"
    machine = f"{platform.system()} {platform.machine()}, {cpu()}, {threads}, Python {platform.python_version()}"
    print(machine)
    parts = list(WHAT) if args.what == "all" else [args.what]
    figures: dict[str, Any] = {"machine": machine, "seconds": {}}
    for part in parts:
        if len(parts) > 1:
            print(f"\n== {part}", flush=True)
        began = time.perf_counter()
        figures[part] = WHAT[part](args)
        figures["seconds"][part] = time.perf_counter() - began
        if args.json:
            write(figures, args.json)
    if len(parts) > 1:
        print(f"\n== all in {sum(figures['seconds'].values()) / 60:.1f} minutes")
        for part in parts:
            if found := ratios_in(figures[part]):
                print(f"{part:12s} {len(found):3d} rows, {ratios(found)}")  # (matmul: products and those with a GELU)
    return 0


def ratios_in(figures: Any) -> list[float]:
    """Of a part that is compared with somebody."""
    rows = figures.get("rows", []) if isinstance(figures, dict) else figures
    return [row["ratio"] for row in rows if row.get("ratio") is not None]


def train(args: argparse.Namespace) -> Any:
    return tables.training(args.against, args.threads, args.seconds)


def attention(args: argparse.Namespace) -> Any:
    return tables.attending(args.against, args.threads, args.seconds / 8)


def matmul(args: argparse.Namespace) -> Any:
    return tables.multiplying(args.threads, args.seconds / 16)


def components(args: argparse.Namespace) -> Any:
    return tables.of_components(args.against, args.threads, args.seconds / 4)


def growth(args: argparse.Namespace) -> Any:
    return tables.growing(args.threads, args.seconds / 8)


def generate(args: argparse.Namespace) -> Any:
    return generation_tables.show(args.against, args.threads, args.seconds / 2)


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


WHAT: dict[str, Callable[[argparse.Namespace], Any]] = {
    "train": train,
    "attention": attention,
    "matmul": matmul,
    "components": components,
    "growth": growth,
    "generate": generate,
    "ops": ops,
    "import": imports,
}
