"""minitx audit DIR|PRESET ...: does anything leak that must not: the future, padding, another sample, the answer?"""
from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np

from minitx.audit import audit
from minitx.audit.check import versions
from minitx.audit.small import small
from minitx.cli.common import UserError, setting_up
from minitx.cli.figures import expect, write
from minitx.cli.settings import parse
from minitx.models import Transformer
from minitx.models.presets import PRESETS
from minitx.training import load_model
from minitx.training.config import nearest

FORMAT = 1  # of the JSON


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sources", metavar="DIR|PRESET", nargs="+", help="checkpoint folders, or presets, in a small "
                        f"size: {', '.join(PRESETS)}")  # fmt: skip
    parser.add_argument("--set", nargs="+", action="extend", default=[], metavar="KEY=VALUE",
                        help="of the presets: d_model=32 attention_kernel=tiled")  # fmt: skip
    parser.add_argument("--length", type=int, default=11, metavar="T", help="tokens in each sequence (default: 11)")
    parser.add_argument("--noise", action="store_true", help="also train a fresh copy on random tokens: no model "
                        "that sees no answer gets below ln V")  # fmt: skip
    parser.add_argument("--seconds", type=float, metavar="S", help="for that at most (default: 10), with --noise")
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write the findings to FILE too; without "
                        "FILE print them instead of the table")  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    expect(args.json)
    if args.seconds is not None and not args.noise:
        raise UserError("--seconds is about the training on random tokens: add --noise")
    seconds = 10.0 if args.seconds is None else args.seconds
    if not (seconds > 0 and math.isfinite(seconds)):
        raise UserError(f"--seconds is above 0, not {seconds}")
    with setting_up():
        models = [(source, the_model(source, args.set)) for source in args.sources]
    reports = []
    for source, model in models:
        report = audit(model, length=args.length, noise=args.noise, seconds=seconds, name=source)
        reports.append(report)
        if args.json != "-":
            print(report if report is reports[0] else f"\n{report}", flush=True)
    leaking = [f"{source} ({', '.join(r.leaks)})" for source, r in zip(args.sources, reports) if not r.passed]
    if args.json != "-":
        print(f"\n{'LEAKS: ' + '; '.join(leaking) if leaking else 'nothing leaks'}")
    if args.json:
        found = {"format": FORMAT, "versions": versions(with_torch=False), "passed": not leaking,
                 "models": [r.to_dict() for r in reports]}  # fmt: skip
        write(found, args.json)
    return 1 if leaking else 0


def the_model(source: str, settings: list[str]) -> Any:
    """In float64, where a small leak is told from rounding."""
    if Path(source).is_dir():
        if settings:
            raise UserError(f"--set changes a preset; the model of the folder {source} is as it is")
        return load_model(source).model.astype(np.float64)
    if source not in PRESETS:
        raise UserError(f"{source} is neither a folder nor a preset{nearest(source, PRESETS)}")
    pairs = [text.partition("=") for text in settings]
    if bad := next((key for key, equals, _ in pairs if not equals), None):
        raise UserError(f"--set takes key=value, like d_model=32, not {bad!r}")
    config = small(source, **{key: parse(value, key) for key, _, value in pairs})
    return Transformer(config, rng=np.random.default_rng(0)).astype(np.float64)
