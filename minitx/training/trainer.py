"""The loop: batch, gradient, clip, update; now and then a look at held-out data, a line in the log, a checkpoint."""
from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from minitx import optim
from minitx.training import checkpoint
from minitx.training.config import TrainingConfig
from minitx.training.interrupt import Interrupt
from minitx.training.log import Log, Record
from minitx.training.monitor import Monitor
from minitx.training.progress import Progress, Silent
from minitx.training.randomness import generator, get_state, set_state
from minitx.training.recipe import build_optimizer, build_schedule
from minitx.training.step import backward, check_finite
from minitx.training.tensorfile import CheckpointError


@dataclass
class Result:
    """How a run ended."""

    step: int
    interrupted: bool
    evaluation: Any  # of the model as it is now; None if interrupted before the first
    seconds: float


class Trainer:
    """Trains `model` on `task`; with a `directory`, keeps log.jsonl and checkpoints there.

    After `run()` the model has the latest weights; the best are in model.safetensors. A run that is stopped and resumed
    (`Trainer.load()` on a new Trainer of the same model, task and configuration) goes on exactly as if it had not been.
    """

    def __init__(
        self,
        model: Any,
        task: Any,
        config: TrainingConfig,
        directory: str | Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.model, self.task, self.config = model, task, config
        self.directory = None if directory is None else Path(directory)
        self.progress = progress or Silent()
        model.astype(config.dtype)
        self.optimizer = build_optimizer(model, config)
        self.schedule = build_schedule(self.optimizer, model, config)
        self.data_rng = generator(config.seed, "data")
        self.step = 0
        self.seconds = 0.0  # of training so far, over all sittings
        self.best: list[float] = []  # score and -loss of the model in model.safetensors; the larger list is better
        self.saved: int | None = None  # the step that training.safetensors is of
        self.evaluation: Any = None  # the latest
        self.history: list[Record] = []  # the lines of the log, of this sitting

    # ------------------------------------------------------------------ the run

    def run(self) -> Result:
        """Train to the last step, or to the first Ctrl-C; what is then in the directory can be resumed."""
        log = self._open_directory()
        self.model.train()
        self.progress.start(self.step, self.config.steps)
        try:
            with Interrupt(self.progress.note) as interrupt:
                while self.step < self.config.steps and not interrupt.asked:
                    record = self.train_step()
                    if self._due(self.config.eval_every):
                        record["held_out"] = self.evaluate()
                    if self._due(self.config.log_every) or self.step == 1 or "layers" in record or "held_out" in record:
                        self._log(record, log)
                    if "held_out" in record or self._due(self.config.save_every):
                        self.save(log)
                if self.saved != self.step:
                    self.save(log)
        finally:
            self.progress.stop()
            if log:
                log.close()
        return Result(self.step, self.step < self.config.steps, self.evaluation, self.seconds)

    def _open_directory(self) -> Log | None:
        if self.directory is None:
            return None
        path = self.directory / "log.jsonl"
        if self.step == 0 and path.exists():
            raise FileExistsError(f"{self.directory} holds a run already: load() it to go on, or choose another folder")
        checkpoint.save_card(self.directory, self.model, self.task.tokenizer, **self.card())
        return Log(path, cut_after=self.step)

    def _log(self, record: Record, log: Log | None) -> None:
        self.history.append(record)
        if log:
            log.write(record)

    def _due(self, every: int) -> bool:
        return self.step == self.config.steps or (every > 0 and self.step % every == 0)

    def train_step(self) -> Record:
        """One update of the parameters, and what is to be said about it."""
        began = time.perf_counter()
        step, config = self.step + 1, self.config
        detailed = config.detail_every > 0 and step % config.detail_every == 0
        monitor = Monitor(self.model) if detailed else None
        batch = self.task.batch(self.data_rng, config.batch_size)
        self.optimizer.zero_grad()
        self.schedule.step()
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what is not finite stops the run, by name
            loss = backward(self.model, batch, config, monitor)
            if not math.isfinite(loss):
                check_finite(self.model, loss, step, self.optimizer.lr)
            layers = monitor.figures() if monitor else None
            try:
                norm = optim.clip_grad_norm(self.optimizer, config.clip or math.inf)
            except FloatingPointError:
                check_finite(self.model, loss, step, self.optimizer.lr)
                raise
        self.optimizer.step()
        self.step = step
        took = time.perf_counter() - began
        self.seconds += took
        self.progress.update(step, loss, self.optimizer.lr, norm, batch.tokens / took)
        record: Record = {"step": step, "loss": loss, "lr": self.optimizer.lr, "grad_norm": norm}
        record["tokens"] = batch.tokens
        record["seconds"], record["tokens_per_second"] = round(self.seconds, 3), round(batch.tokens / took)
        return record | {"layers": layers} if layers else record

    def evaluate(self) -> dict[str, Any]:
        """Look at the held-out data; keep the model if it is the best so far."""
        self.evaluation = self.task.evaluate(self.model)
        self.model.train()
        found: dict[str, Any] = self.evaluation.to_dict()
        # Of two models that get as many right (none, at first) the one with the smaller loss is the better.
        rank = [float(self.evaluation.score), -float(self.evaluation.loss)]
        better = rank > self.best
        if better:
            self.best = rank
            if self.directory:
                checkpoint.save_weights(self.directory, self.model, self.task.tokenizer)
        exact = f"  exact match {found['exact_match']:.3f}" if found.get("exact_match") is not None else ""
        self.progress.note(f"step {self.step}: held-out loss {found['loss']:.4f}{exact}{'  (best)' if better else ''}")
        return found

    # ------------------------------------------------------------------ saving and going on

    def card(self) -> dict[str, Any]:
        """What config.json says about training."""
        return {"training": self.config.to_dict(), "task": task_section(self.task)}

    def save(self, log: Log | None = None) -> None:
        """The state after the step just made, as one file."""
        if self.directory is None:
            return
        if log:
            log.sync()  # first: the checkpoint counts on the lines up to its step
        if not self.best:
            checkpoint.save_weights(self.directory, self.model, self.task.tokenizer)  # none is known to be better yet
        checkpoint.save_training(self.directory, self.state(), self.model.config.to_dict())
        self.saved = self.step

    def state(self) -> checkpoint.TrainingState:
        values = {
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "schedule": self.schedule.state_dict(),
            "data_rng": get_state(self.data_rng),
            "model_rng": get_state(self.model.rng),
        }
        return checkpoint.TrainingState(self.model.state_dict(), self.optimizer.state_dict(), values)

    def load(self) -> None:
        """Go on from the checkpoint in `directory`, bit for bit."""
        assert self.directory is not None
        path = self.directory / checkpoint.TRAINING
        state = checkpoint.load_training(self.directory, self.model.config.to_dict())
        checkpoint.load_weights(self.model, state.weights, path)
        try:
            self.optimizer.load_state_dict(state.optimizer)
            self.schedule.load_state_dict(state.values["schedule"])
            set_state(self.data_rng, state.values["data_rng"])
            set_state(self.model.rng, state.values["model_rng"])
            self.step, self.seconds, self.best = (state.values[key] for key in ("step", "seconds", "best"))
            self.saved = self.step
        except (KeyError, ValueError, TypeError) as error:
            raise CheckpointError(f"{path}: {error.args[0] if error.args else error}") from None


def task_section(task: Any) -> dict[str, Any]:
    """What makes the same task again; for one on a file also a hash, since a changed file is another task."""
    options = dict(task.options)
    running = task.model_defaults["architecture"] == "decoder"
    section: dict[str, Any] = {
        "name": task.name,
        "options": options,
        "data_boundary": "windows of running text" if running else "one example a row, padded on the right",
    }
    if "file" in options:
        section["sha256"] = hashlib.sha256(Path(options["file"]).read_bytes()).hexdigest()
    return section
