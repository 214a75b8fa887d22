"""A model trained on the learner's own functions, its loss laid over that of minitx's own."""
from __future__ import annotations

import math
from collections import Counter
from contextlib import ExitStack
from typing import Any

import numpy as np

from minitx.learn.attempt import Attempt
from minitx.learn.exercises import ORDER
from minitx.learn.finding import Stop
from minitx.learn.flow import Course
from minitx.learn.folder import file_of
from minitx.learn.inside import loaded
from minitx.learn.language import say
from minitx.learn.render import rendered, sentence
from minitx.learn.runner import check_file
from minitx.learn.shelf import exercise
from minitx.learn.stand_in import Rule, op_of, stand_in
from minitx.models import Transformer
from minitx.settings import reference
from minitx.tasks import get_task
from minitx.training import Trainer, TrainingConfig
from minitx.training.randomness import generator

STEPS = 300
WIDTH, HEIGHT = 64, 16


def train(course: Course, task: str = "reverse", steps: int = STEPS) -> int:
    """Check what has passed once more, train twice, draw both losses."""
    mine = passing(course)
    if not mine:
        raise ValueError(say(course.lang, "train.none"))
    course.out(say(course.lang, "train.wait", steps=steps, task=task) + "\n")
    calls: Counter[str] = Counter()
    with reference():
        theirs = losses(task, steps, {})
        own = losses(task, steps, {slug: watched(course, slug, f) for slug, f in mine.items()}, calls)
    course.out(chart(own, theirs))
    gap = max(abs(a - b) / max(abs(b), 1e-9) for a, b in zip(own[: max(1, steps // 10)], theirs))
    course.out("\n" + say(course.lang, "train.legend", steps=steps, task=task))
    course.out(say(course.lang, "train.with", names=", ".join(f"{slug} ({n})" for slug, n in calls.most_common())))
    course.out(say(course.lang, "train.said", own=own[-1], theirs=theirs[-1], gap=gap))
    return 0


def passing(course: Course) -> dict[str, Any]:
    """slug → function, of the exercises that stand for an op, have passed, and pass again now."""
    known, found = course.progress(), dict[str, Any]()
    for slug in ORDER:
        wanted = exercise(slug)
        path = file_of(course.folder, wanted)
        if op_of(wanted) is None or not known.solved(slug) or not path.is_file():
            continue
        result = check_file(wanted, path, limit=course.limit, quiet=True)
        if result.passed:
            found[slug] = loaded(wanted, str(path.resolve()))
        else:
            course.out(say(course.lang, "train.not-now", slug=slug))
            course.out(rendered(result, course.lang) + "\n")
    return found


def losses(
    task_name: str, steps: int, functions: dict[str, Any], calls: Counter[str] | None = None
) -> list[float]:
    """The training loss of every step, with these functions in place; the same seed, the same batches."""
    task = get_task(task_name)
    config = TrainingConfig.from_dict({**task.training(), "steps": steps, "warmup": min(100, steps // 4)})
    model = Transformer(task.config(), rng=generator(config.seed, "model"))
    trainer = Trainer(model, task, config)
    with ExitStack() as stack:
        for slug, function in functions.items():
            op = op_of(exercise(slug))
            assert op is not None
            rule = stand_in(exercise(slug), function)
            stack.enter_context(op.using(rule if calls is None else counted(rule, slug, calls)))
        return [float(trainer.train_step()["loss"]) for _ in range(steps)]


def watched(course: Course, slug: str, function: Any) -> Any:
    """The function; an exception of its own is told as in a check."""
    wanted = exercise(slug)
    attempt = Attempt(wanted, function, str(file_of(course.folder, wanted).resolve()))

    def told(f: Any, *args: Any) -> Any:
        try:
            return attempt.guarded(f, list(args))
        except Stop as stop:
            said = sentence(stop.finding, slug, course.lang)
            raise ValueError(say(course.lang, "train.stopped", slug=slug, said=said)) from stop

    def watching(*args: Any) -> Any:
        value, backward = told(function, *args)
        return value, lambda dy: told(backward, dy)

    return watching


def counted(rule: Rule, slug: str, calls: Counter[str]) -> Rule:
    """The rule, and a count of how often it answered."""

    def counting(*args: Any, **options: Any) -> Any:
        result = rule(*args, **options)
        calls[slug] += result is not NotImplemented
        return result

    return counting


def chart(own: list[float], theirs: list[float]) -> str:
    """Both losses by step: `o` is the learner's, `.` minitx's; where they fall together `o` is seen."""
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]
    top = max(*own, *theirs)
    for values, mark in ((theirs, "."), (own, "o")):
        for column, part in enumerate(np.array_split(np.array(values), min(WIDTH, len(values)))):
            level = float(part.mean()) / top if math.isfinite(top) and top > 0 else 0.0
            if math.isfinite(level):
                rows[HEIGHT - 1 - min(HEIGHT - 1, int(level * (HEIGHT - 1) + 0.5))][column] = mark
    lines = [f"{top * (HEIGHT - 1 - i) / (HEIGHT - 1):7.2f} |{''.join(row).rstrip()}" for i, row in enumerate(rows)]
    return "\n".join([*lines, " " * 8 + "+" + "-" * WIDTH, " " * 9 + "1" + str(len(own)).rjust(WIDTH - 1)])
