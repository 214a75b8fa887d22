"""The process in which a learner's file runs: loads it, checks it, writes the verdict as JSON.

    python -m minitx.learn.inside FILE SLUG RESULT LIMIT SEED

What the file prints goes to the terminal; minitx, torch and their like it cannot import. A thread watches the clock, so
that an endless loop is shown at its line, on every system.
"""
from __future__ import annotations

import io
import json
import linecache
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from minitx.learn.attempt import raised
from minitx.learn.blocked import block
from minitx.learn.exercise import Exercise
from minitx.learn.finding import Stop, Verdict
from minitx.learn.ladder import climb
from minitx.learn.loudness import limited
from minitx.learn.shelf import exercise as find


def main(argv: list[str]) -> int:
    file, slug, target, limit, seed = argv
    out = Path(target)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits, which ends this one
    exercise = find(slug)
    result = Verdict(exercise.slug)
    watch(out, file, result, float(limit))
    try:
        with limited() as printed:
            judge(exercise, file, int(seed), result)
        result.held_back = printed.held_back
    except KeyboardInterrupt as error:  # the file raised it
        result = stopped(result, raised(error, file))
    except Exception as error:
        traceback.print_exc()
        result = Verdict(slug, failed=0, findings=[Stop("no.internal", text=f"{error!r:.300}").finding])
    write(out, result)
    return 0


def judge(exercise: Exercise, file: str, seed: int, result: Verdict) -> None:
    """Load the file and check its function."""
    try:
        block(os.path.dirname(file))
        function = loaded(exercise, file)
    except Stop as stop:
        result.failed, result.findings = 0, [stop.finding]
        return
    climb(exercise, function, file, seed, result)


def loaded(exercise: Exercise, file: str) -> Any:
    """The function (or the answer) that the file defines."""
    try:
        text = Path(file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Stop("no.encoding", file=file) from error
    module = ModuleType(f"learner_{exercise.slug.replace('-', '_')}")
    module.__file__ = file
    sys.modules[module.__name__] = module
    sys.path.append(os.path.dirname(file))  # after all others: a file random.py must not hide Python's
    sys.dont_write_bytecode = True  # no __pycache__ among the learner's files
    linecache.checkcache(file)
    linecache.getlines(file)  # now: it may be saved again before one of its lines is shown
    try:
        exec(compile(text, file, "exec", dont_inherit=True), module.__dict__)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise raised(error, file) from error
    if exercise.function not in vars(module):
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
        raise Stop("no.function", name=exercise.function, file=file, near=own[0] if own else "")
    return getattr(module, exercise.function)


# ---------------------------------------------------------------------- the clock, the result


def watch(out: Path, file: str, result: Verdict, limit: float) -> None:
    """After the limit the verdict is the line at which the main thread stands, and the process ends.

    The rungs of `result` that were climbed before stay climbed.
    """
    main_thread = threading.main_thread().ident

    def end() -> None:
        time.sleep(limit)
        frame = sys._current_frames().get(main_thread or 0)
        while frame is not None and frame.f_code.co_filename != file:
            frame = frame.f_back
        stop = Stop("no.time", limit=f"{limit:g}")
        if frame is not None:
            code = linecache.getline(file, frame.f_lineno).strip()
            stop = Stop("no.time-at", limit=f"{limit:g}", file=file, line=frame.f_lineno, code=code)
        write(out, stopped(replace(result, seconds=limit), stop))
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()


def stopped(result: Verdict, stop: Stop) -> Verdict:
    """The verdict if the check ended here: at the first rung that is not climbed."""
    rung = next((n for n in result.rungs if n not in result.climbed), 0)
    return replace(result, climbed=list(result.climbed), failed=rung, findings=[stop.finding], heat=None)


def write(out: Path, result: Verdict) -> None:
    beside = out.with_suffix(f".{threading.get_ident()}")
    beside.write_text(json.dumps(result.asdict(), default=str), "utf-8")
    os.replace(beside, out)


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):  # print("梯度") on a console that cannot show it
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    raise SystemExit(main(sys.argv[1:]))
