"""What the user sees while a model trains: a live bar on a terminal, plain lines anywhere else."""
from __future__ import annotations

import os
import sys
import time
from typing import Any, Protocol


class Progress(Protocol):
    def start(self, step: int, steps: int) -> None: ...
    def update(self, step: int, loss: float, lr: float, norm: float, rate: float) -> None: ...
    def note(self, line: str) -> None: ...
    def stop(self) -> None: ...


class Silent:
    """Nothing at all: for tests and for use inside other programs."""

    def start(self, step: int, steps: int) -> None: ...
    def update(self, step: int, loss: float, lr: float, norm: float, rate: float) -> None: ...
    def note(self, line: str) -> None: ...
    def stop(self) -> None: ...


def say(line: str) -> None:
    """Print a line. Where the reader has gone (`| head`) the rest is said to nobody: the run goes on and is saved."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Clock:
    """Time left, from the mean of the steps taken; not the first, in which kernels may be compiled."""

    def start(self, step: int, steps: int) -> None:
        self.first, self.steps, self.began = step + 1, steps, time.monotonic()

    def left(self, step: int) -> str:
        if step <= self.first:
            self.began = time.monotonic()
            return "?"
        seconds = (time.monotonic() - self.began) / (step - self.first) * (self.steps - step)
        minutes, seconds = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


class Lines(Clock):
    """About twenty lines over the run, ASCII only: for pipes, log files and consoles that cannot do more."""

    def start(self, step: int, steps: int) -> None:
        super().start(step, steps)
        self.every = max(1, steps // 20)

    def update(self, step: int, loss: float, lr: float, norm: float, rate: float) -> None:
        if step % self.every == 0 or step == self.steps or step == self.first:
            self.note(f"step {step}/{self.steps}  {_figures(loss, lr, norm, rate)}  {self.left(step)} left")

    def note(self, line: str) -> None:
        say(line)

    def stop(self) -> None: ...


class Bar(Clock):
    """One line that is redrawn. rich falls back to ASCII by itself where the encoding is not UTF."""

    def __init__(self, console: Any) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        count, figures = TextColumn("step {task.completed:.0f}/{task.total:.0f}"), TextColumn("{task.description}")
        # Redrawn from this thread, ten times a second at most: a thread of rich's own would get in the model's way.
        self.progress = Progress(
            count, BarColumn(bar_width=20), figures, console=console, auto_refresh=False, transient=True
        )
        self.drawn = 0.0

    def start(self, step: int, steps: int) -> None:
        super().start(step, steps)
        self.progress.start()
        self.task = self.progress.add_task("", total=steps, completed=step)

    def update(self, step: int, loss: float, lr: float, norm: float, rate: float) -> None:
        now = time.monotonic()
        if now - self.drawn > 0.1 or step == self.steps:
            self.drawn = now
            text = f"{_figures(loss, lr, norm, rate)}  {self.left(step)} left"
            self.progress.update(self.task, completed=step, description=text, refresh=True)

    def note(self, line: str) -> None:
        self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self.progress.stop()


def _figures(loss: float, lr: float, norm: float, rate: float) -> str:
    return f"loss {loss:.4f}  lr {lr:.2e}  grad norm {norm:.3f}  {rate:,.0f} tokens/s"


def live_progress(quiet: bool = False) -> Progress:
    """A bar where one can be drawn; lines where not, or where rich is not installed."""
    if quiet:
        return Silent()
    if sys.stdout.isatty():
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            return Lines()
        console = Console(file=sys.stdout)
        if console.is_terminal and not console.is_dumb_terminal:
            return Bar(console)
    return Lines()
