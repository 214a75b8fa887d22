"""Tasks by name: four that are made up, two on your own files."""
from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from minitx.tasks.addition import AddTask
from minitx.tasks.base import Task
from minitx.tasks.evaluation import Count, Evaluation
from minitx.tasks.pairs import PairsTask
from minitx.tasks.sequences import RULES, SequenceTask
from minitx.tasks.text import TextTask

__all__ = ["TASKS", "get_task", "task_options", "Task", "Evaluation", "Count"]

TASKS: dict[str, Callable[..., Task]] = {
    **{name: partial(SequenceTask, name) for name in RULES},
    "add": AddTask,
    "text": TextTask,
    "pairs": PairsTask,
}


def get_task(name: str, file: Any = None, **options: Any) -> Task:
    """The task of this name. `file` is needed by text and pairs; `options` are those of `task_options(name)`."""
    known = task_options(name)
    if "file" in known and file is None:
        raise ValueError(f"{name} needs a file: --file {'F.tsv (source TAB target)' if name == 'pairs' else 'F'}")
    if "file" not in known and file is not None:
        raise ValueError(f"{name} makes up its own data and takes no file; tasks on a file are text and pairs")
    for key, value in options.items():
        if key not in known or key == "file":
            raise ValueError(f"{name} has no option {key!r}{_nearest(key, known) or _listed(known)}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{key} is a whole number, not {value!r}")
    return TASKS[name](**options) if file is None else TASKS[name](file, **options)


def task_options(name: str) -> dict[str, Any]:
    """What this task can be told, with defaults: {"longest": 12}."""
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}{_nearest(name, TASKS)}; there are {', '.join(TASKS)}")
    return {key: p.default for key, p in inspect.signature(TASKS[name]).parameters.items()}


def _nearest(key: str, known: Any) -> str:
    close = difflib.get_close_matches(key, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _listed(known: Any) -> str:
    return f"; it has {', '.join(k for k in known if k != 'file')}" if set(known) - {"file"} else ""
