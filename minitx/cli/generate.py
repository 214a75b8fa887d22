"""minitx generate DIR PROMPT: what a trained model answers, or how it goes on."""
from __future__ import annotations

import argparse
import sys

from minitx.cli.common import UserError
from minitx.generation import answer
from minitx.training import load_model


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a checkpoint folder, as `minitx train` makes it")
    parser.add_argument("prompt", metavar="PROMPT", help='a source, "1 2 3 4", or how a text begins; - reads stdin')
    parser.add_argument("--max-new", type=int, metavar="N", help="at most so many new symbols (default: max_length)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.max_new is not None and args.max_new < 1:
        raise UserError(f"--max-new is at least 1, not {args.max_new}")
    prompt = sys.stdin.read().rstrip("\n") if args.prompt == "-" else args.prompt
    if not prompt.strip():
        raise UserError("the prompt is empty; give the model something to answer or to go on from")
    model, tokenizer, _ = load_model(args.directory)
    if tokenizer is None:
        raise UserError(f"{args.directory} has no tokenizer.json, so text cannot be turned into ids")
    text = answer(model, tokenizer, [prompt], args.max_new)[0]
    print(prompt + text if model.config.architecture == "decoder" else text)
    return 0
