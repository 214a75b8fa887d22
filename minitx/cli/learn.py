"""minitx learn: the course of gradient-check exercises."""
from __future__ import annotations

import argparse
import math
import os

from minitx.cli.common import Parser, UserError
from minitx.learn.language import LANGUAGES, chosen

WITH_SLUG = {
    "check": "check one exercise",
    "hint": "a hint: the idea, then the term or axis, then the line",
    "reset": "a fresh file; the old one is kept",
    "solution": "the source of the solution, and how your file differs",
    "explain": "an exercise or a symbol in words",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Exercises on backward passes. Without a command: the next one, checked."
    common(parser)
    commands = parser.add_subparsers(dest="what", metavar="COMMAND", parser_class=Parser)
    for name, meaning in WITH_SLUG.items():
        command = add(commands, name, meaning)
        command.add_argument("slug", metavar="SLUG", help="its name, as `minitx learn list` shows it")
        if name == "hint":
            command.add_argument("degree", metavar="N", nargs="?", type=number, help="1, 2 or 3 (default: the next)")
    command = add(commands, "train", "train a model on your own functions; your loss curve over the reference")
    command.add_argument("--steps", type=number, default=300, metavar="N", help="default: 300")
    command = add(commands, "grade", "for teachers: points and diagnoses of many folders")
    command.add_argument("folders", metavar="DIR", nargs="+", help="a learner's folder")
    command.add_argument("--seed", type=seed, default=0, help="of the numbers tried (default: 0, as for learners)")
    command.add_argument("--only", nargs="+", action="extend", default=[], metavar="SLUG", help="these exercises only")
    command.add_argument("--csv", metavar="FILE", help="write a table")
    command.add_argument("--json", metavar="FILE", help="write everything")
    add(commands, "list", "all exercises, and which are solved")
    add(commands, "watch", "check again at every save").add_argument("slug", metavar="SLUG", nargs="?")
    parser.set_defaults(run=run)


def add(commands: argparse._SubParsersAction[Parser], name: str, meaning: str) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=meaning, description=meaning.capitalize() + ".")
    common(command, argparse.SUPPRESS)
    return command


def common(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """Before the command or after it."""
    parser.add_argument("--lang", choices=LANGUAGES, default=default, help="language (default: that of the locale)")
    parser.add_argument("--folder", metavar="DIR", default=default, help="where the exercises are (./minitx-exercises)")
    parser.add_argument("--variants", metavar="DIR", default=default, help="a folder of a teacher's own exercises")
    limit = default or 10.0
    parser.add_argument("--limit", type=seconds, metavar="SECONDS", default=limit, help="for one check (default: 10)")


def seconds(text: str) -> float:
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise ValueError
    return value


def number(text: str) -> int:
    if (value := int(text)) < 1:
        raise ValueError
    return value


def seed(text: str) -> int:
    if (value := int(text)) < 0:
        raise ValueError
    return value


def run(args: argparse.Namespace) -> int:
    from minitx.learn.console import spell_where_needed
    from minitx.learn.shelf import VARIANTS, Unknown

    spell_where_needed()
    try:
        lang = chosen(args.lang)
    except ValueError as error:
        raise UserError(str(error)) from error
    if args.variants:
        if not os.path.isdir(args.variants):
            raise UserError(f"--variants: {args.variants} is no folder")
        os.environ[VARIANTS] = os.path.abspath(args.variants)  # the process that runs a learner's file reads it too
    try:
        return graded(args, lang) if args.what == "grade" else learned(args, lang)
    except Unknown as error:
        raise UserError(error.said(lang)) from error


def learned(args: argparse.Namespace, lang: str) -> int:
    from minitx.learn.flow import Course

    course = Course(lang, args.folder, args.limit)
    if args.what is None:
        return course.next()
    if args.what == "watch":
        from minitx.learn.watch import watch

        return watch(course, args.slug)
    if args.what == "train":
        from minitx.learn.train import train

        return train(course, steps=args.steps)
    if args.what == "list":
        return course.list()
    if args.what == "explain":
        from minitx.learn.explain import explain

        return explain(course, args.slug)
    if args.what == "hint":
        return course.hint(args.slug, args.degree)
    method = {"check": course.check, "reset": course.reset, "solution": course.solution}[args.what]
    return method(args.slug)


def graded(args: argparse.Namespace, lang: str) -> int:
    from minitx.cli.figures import expect
    from minitx.files import write_bytes
    from minitx.learn.grade import as_csv, as_table, dumped, grade

    for name in (args.csv, args.json):  # before the work, not after it
        expect(name)
    only = [slug for given in args.only for slug in given.split(",")]
    result = grade(args.folders, only, args.seed, lang, args.limit)
    print(as_table(result))
    for name, text in ((args.csv, as_csv), (args.json, dumped)):
        if name:
            write_bytes(name, text(result).encode("utf-8"))
    return 0
