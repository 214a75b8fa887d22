"""Two sides of a comparison, each a process of its own: one process with two pools of threads would measure their
quarrel. The sides take turns, so that a machine whose speed drifts drifts for both.

A side is a module of this folder with `build(what, threads) -> run`: `what` says what is to be measured (plain data, as
JSON has it), and run() does it once.
"""
from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import Any

from minitx.bench.timing import Timing, measure, summary

TURN = 0.2  # seconds that a side runs before the other has its turn
REST = 0.05  # seconds before each turn: the threads of the other side may still be spinning, on a core of this one


class Side:
    """A process that builds what it is asked for, and runs it so many times."""

    def __init__(self, module: str, threads: int) -> None:
        environment = os.environ | {
            key: str(threads) for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MINITX_NUM_THREADS")
        }
        command = [sys.executable, "-m", "minitx.bench.sides", module, str(threads)]
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment
        )
        self.result: Any = math.nan  # of the last run

    def run(self, what: Any, times: int) -> list[float]:
        """The seconds of each of `times` runs; building it is not among them."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([what, times]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a side of the benchmark stopped; what it said is above")
        answer = json.loads(line)
        self.result = answer["result"]
        seconds: list[float] = answer["seconds"]
        return seconds

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=60)


def in_turn(sides: list[Side], what: Any, seconds: float) -> list[Timing]:
    """Each side's timing of `what`, from about `seconds` of runs each, after three that do not count."""
    usual = [min(side.run(what, 3)) for side in sides]
    each = [max(1, round(TURN / s)) for s in usual]
    turns = max(3, round(seconds / max(TURN, *usual)))
    taken: list[list[float]] = [[] for _ in sides]
    for _ in range(turns):
        for side, n, found in zip(sides, each, taken):
            time.sleep(REST)
            found += side.run(what, n)
    return [summary(found) for found in taken]


def ratios(found: Iterable[float]) -> str:
    """The last line of a table: theirs / ours, over all rows."""
    all_of_them = list(found)
    mean = math.exp(sum(map(math.log, all_of_them)) / len(all_of_them))
    return f"ratio, theirs / ours: geometric mean {mean:.2f}, worst {min(all_of_them):.2f}"


def _serve(module: str, threads: int) -> None:
    """The child: read what to run and how often, run it, answer with the times and the last result."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints goes to stderr
    build = importlib.import_module(f"minitx.bench.{module}").build
    built: Any = None
    result: list[Any] = [None]
    for line in sys.stdin:
        what, times = json.loads(line)
        if what != built:
            step, built = build(what, threads), what

        def run(step: Any = step) -> None:
            result[0] = step()

        answers.write(json.dumps({"seconds": measure(run, times), "result": result[0]}) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
