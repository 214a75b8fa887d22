"""minitx train TASK: set a run up, or take one up again; then train, and show what came of it."""
from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from minitx.cli.common import UserError, setting_up
from minitx.cli.folder import new_folder
from minitx.cli.report import report
from minitx.cli.settings import Tables, gather, read_file, task_name
from minitx.models import Transformer
from minitx.models.run_section import run_settings
from minitx.tasks import TASKS, get_task
from minitx.training import NotFinite, Trainer, TrainingConfig, load_card, load_model
from minitx.training.checkpoint import build_model, differences, load_tokenizer, load_weights
from minitx.training.extra import need
from minitx.training.progress import live_progress, say
from minitx.training.randomness import generator
from minitx.training.trainer import task_section


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", nargs="?", help=f"one of {', '.join(TASKS)}")
    parser.add_argument("--steps", type=int, metavar="N", help="optimizer steps in all")
    parser.add_argument("--config", metavar="FILE", help="settings from a .toml or .json file, like config.json")
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
                        help="any setting of model, training or task: d_model=128 lr=3e-4 task.longest=8")  # fmt: skip
    parser.add_argument("--out", metavar="DIR", help="where the run is kept (default: runs/TASK)")
    parser.add_argument("--resume", metavar="DIR", help="go on with the run in DIR (--steps may ask for more)")
    parser.add_argument("--from", dest="start", metavar="DIR", help="begin with the weights of the checkpoint in DIR")
    parser.add_argument("--seed", type=int, metavar="N", help="of weights, dropout and data (default: 0)")
    parser.add_argument("--file", metavar="F", help="the data of text (any text) and of pairs (source TAB target)")
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    need("safetensors")  # before the first step, not after the last
    need("matplotlib")
    progress = live_progress(args.quiet)
    with setting_up():
        trainer = resumed(args, progress) if args.resume else begun(args, progress)
    config, directory = trainer.config, trainer.directory
    say(trainer.task.describe())
    say(
        f"{trainer.model.num_parameters():,} parameters, {config.steps} steps of {config.batch_size} sequences; "
        f"kept in {directory}"
    )
    try:
        result = trainer.run()
    except NotFinite as error:
        kept = f"the checkpoint of step {trainer.saved} is in {directory}" if trainer.saved else "no checkpoint yet"
        raise NotFinite(f"{error}; {kept}") from None
    if result.interrupted:
        say(f"stopped after step {result.step} of {config.steps}, and saved. To go on:")
        say(f"  minitx train --resume {directory}")
        return 130
    report(trainer, result.seconds)
    return 0


def begun(args: argparse.Namespace, progress: Any) -> Trainer:
    """A new run."""
    files = [read_file(args.config)] if args.config else []
    name = args.task or (task_name(files[0]) if files else None)
    if name is None:
        raise UserError(f"which task? minitx train TASK, one of {', '.join(TASKS)}")
    if files and task_name(files[0]) not in (None, name):
        raise UserError(f"{args.config} is of the task {task_name(files[0])}, not {name}")
    tables = gather(name, files, asked(args))
    task = get_task(name, args.file, **tables["task"])
    config = TrainingConfig.from_dict({**task.training(), **tables["training"]})
    model = Transformer(started_as(args.start, task, tables), rng=generator(config.seed, "model"))
    if args.start:
        load_weights(model, load_model(args.start).model.state_dict(), args.start)
    directory, said = new_folder(args.out, name)
    if said:
        say(said)
    return Trainer(model, task, config, directory, progress)


def started_as(start: str | None, task: Any, tables: Tables) -> Any:
    """The model's configuration; with --from, that of the checkpoint, of which only the dropouts may be set anew."""
    if start is None:
        return task.config(**tables["model"])
    there = load_card(start).config.to_dict()
    config = task.config(**{**there, **tables["model"]})
    free = ("dropout", "attention_dropout", "ff_dropout", "init", "init_std", "scale_residual_init")
    mine = {k: v for k, v in config.to_dict().items() if k not in free}
    if differing := differences({k: there[k] for k in mine}, mine):
        raise UserError(f"--from {start}: its weights are of another model: {differing}")
    if load_tokenizer(start) != task.tokenizer:
        raise UserError(f"--from {start}: its vocabulary is not that of {task.name}, so its ids mean other symbols")
    return config


def resumed(args: argparse.Namespace, progress: Any) -> Trainer:
    """The run in a folder, as it was set up; only `steps` may be changed."""
    for option, value in (("--out", args.out), ("--from", args.start), ("--config", args.config)):
        if value is not None:
            raise UserError(f"{option} and --resume do not go together: the same run goes on in the same folder")
    folder = Path(args.resume)
    card = load_card(folder)
    about, settings = card.training.task or {}, run_settings(dataclasses.asdict(card.training))
    if not {"name", "options"} <= set(about) or "steps" not in settings:
        raise UserError(f"{folder} holds a model and no run to resume; --from {folder} begins one with its weights")
    name, options = about["name"], dict(about["options"])
    if args.task not in (None, name):
        raise UserError(f"{folder} is a run of {name}, not of {args.task}")
    there: Tables = {"model": card.config.to_dict(), "training": settings, "task": options}
    tables = gather(name, [], asked(args))
    steps = tables["training"].pop("steps", settings["steps"])
    for part, wanted in tables.items():
        if differing := differences({k: there[part].get(k) for k in wanted}, wanted):
            raise UserError(f"{folder} is a run of another configuration: {differing}; --from begins a new one")
    file = options.pop("file", None) if args.file is None else args.file
    options.pop("file", None)
    task = get_task(name, file, **options)
    if task_section(task).get("sha256") != about.get("sha256"):
        raise UserError(f"{file} has changed since {folder} was trained on it; give the same contents with --file")
    config = TrainingConfig.from_dict({**settings, "steps": steps})
    trainer = Trainer(build_model(card, generator(config.seed, "model")), task, config, folder, progress)
    trainer.load()
    if steps < trainer.step and args.steps is not None:
        raise UserError(f"{folder} has made {trainer.step} steps already: --steps is at least that, not {steps}")
    finished = trainer.step >= config.steps
    say(f"going on after step {trainer.step}" + (", the last; --steps N asks for more" if finished else ""))
    return trainer


def asked(args: argparse.Namespace) -> list[str]:
    """--set, --steps and --seed are three ways to say the same kind of thing."""
    own = {"training.steps": args.steps, "training.seed": args.seed}
    return [*args.set, *(f"{key}={value}" for key, value in own.items() if value is not None)]
