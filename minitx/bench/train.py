"""Training steps side by side. Each side is a process of its own: one process with two pools of threads would measure
their quarrel. The sides take turns, so that a machine whose speed drifts drifts for both.
"""
from __future__ import annotations

import importlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from minitx.bench.models import SIZES, Size
from minitx.bench.timing import Timing, measure, summary


class Row(NamedTuple):
    """One size: our step, theirs, and what our side did before its first step was done."""

    size: Size
    ours: Timing
    theirs: Timing | None
    first: float  # seconds from the start of our process to the end of its first step
    loss: tuple[float, float | None]  # after the last step: both have learned

    @property
    def ratio(self) -> float | None:
        return None if self.theirs is None else self.theirs.median / self.ours.median


class Side:
    """A process that builds one side and runs steps when told to."""

    def __init__(self, name: str, size: Size, threads: int) -> None:
        environment = os.environ | {
            key: str(threads) for key in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MINITX_NUM_THREADS")
        }
        command = [sys.executable, "-m", "minitx.bench.train", name, json.dumps(size), str(threads)]
        self.began = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=environment
        )
        self.loss = math.nan

    def steps(self, n: int) -> list[float]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a side of the benchmark stopped; what it said is above")
        answer = json.loads(line)
        self.loss = answer["loss"]
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


def rows(against: str | None, threads: int, seconds: float = 8.0, sizes: list[Size] | None = None) -> Iterator[Row]:
    """A row for each size; about so many seconds of steps on each side."""
    for size in SIZES if sizes is None else sizes:
        with Side("minitx", size, threads) as ours:
            ours.steps(1)
            first = time.perf_counter() - ours.began
            usual = min(ours.steps(3))
            each = max(1, round(0.2 / usual))  # steps in a turn
            turns = max(3, round(seconds / (0.2 if usual < 0.2 else usual)))
            if against is None:
                yield Row(size, summary(ours.steps(each * turns)), None, first, (ours.loss, None))
                continue
            with Side(against, size, threads) as theirs:
                theirs.steps(4)
                mine: list[float] = []
                other: list[float] = []
                for _ in range(turns):
                    mine += ours.steps(each)
                    other += theirs.steps(each)
                yield Row(size, summary(mine), summary(other), first, (ours.loss, theirs.loss))


def as_dict(row: Row) -> dict[str, Any]:
    return {
        "size": row.size._asdict(),
        "ours": row.ours._asdict(),
        "theirs": None if row.theirs is None else row.theirs._asdict(),
        "ratio": row.ratio,
        "gflops": row.size.flops() / row.ours.median / 1e9,
        "first_step_seconds": row.first,
        "loss": list(row.loss),
    }


def serve(name: str, size: Size, threads: int) -> None:
    """The child: read how many steps, run them, answer with their times."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever prints goes to stderr
    step = importlib.import_module(f"minitx.bench.side_{name}").build(size, threads)
    loss = [math.nan]

    def run() -> None:
        loss[0] = step()

    for line in sys.stdin:
        answers.write(json.dumps({"seconds": measure(run, int(line)), "loss": loss[0]}) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(sys.argv[1], Size(*json.loads(sys.argv[2])), int(sys.argv[3]))
