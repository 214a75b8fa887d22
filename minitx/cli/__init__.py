"""The command line: `minitx COMMAND ...`, one thin file a command, imported when it is called.

Status: 0 done; 1 a check failed, or an audit found a leak; 2 something the user can put right, in one line on stderr
(with MINITX_TRACEBACK=1 as Python shows it); 130 stopped by Ctrl-C, whether the run was saved (after the first) or not
(after the second).
"""
from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from minitx.cli.common import Parser, UserError, plain_where_needed, words

COMMANDS = {
    "train": "train a Transformer on a task: copy, reverse, sort, add, or your own text or pairs",
    "generate": "ask a trained model",
    "card": "what a model is made of, and what it costs: a preset, a trained model, or two side by side",
    "trace": "follow the numbers through a model, op by op",
    "check": "every op, layer, block and model beside its witnesses: differences, smaller ops, kernel, PyTorch",
    "audit": "does anything leak that must not: the future, padding, another sample, the answer",
    "learn": "the course of exercises: write each backward pass yourself, and hear what is wrong with it",
    "bench": "time training, generation and their parts (beside PyTorch's), the engine's overhead, the import",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the status of the process."""
    plain_where_needed()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        print("minitx: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader, `| head`, has seen enough (training goes on without one: see cli/train.py)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (UserError, ValueError, IndexError, ArithmeticError, OSError, ImportError, MemoryError) as error:
        if os.environ.get("MINITX_TRACEBACK"):
            raise
        print(f"minitx: error: {words(error)}", file=sys.stderr)
        return 2


def _run(argv: list[str]) -> int:
    parser = Parser(prog="minitx", description="A Transformer from scratch on NumPy.")
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, meaning in COMMANDS.items():
        command = commands.add_parser(name, help=meaning, description=meaning.capitalize() + ".")
        if argv and argv[0] == name:
            importlib.import_module(f"minitx.cli.{name}").configure(command)
    args = parser.parse_args(argv)
    if args.version:
        from minitx import __version__

        print(f"minitx {__version__}")
        return 0
    if args.command is None:
        parser.print_help()
        return 0
    status: int = args.run(args)
    return status
