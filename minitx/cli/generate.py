"""minitx generate DIR PROMPT: what a trained model answers, or how it goes on."""
from __future__ import annotations

import argparse
import sys
from typing import Any

from minitx.cli.common import UserError, words
from minitx.data.files import read_text
from minitx.generation.answers import Answers
from minitx.generation.job import Job
from minitx.generation.report import lines, report
from minitx.training import load_model


def configure(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("directory", metavar="DIR", help="a checkpoint folder, as `minitx train` makes it")
    add("prompts", metavar="PROMPT", nargs="*", help='a source, "1 2 3 4", or how a text begins; - is all of stdin')
    add("--file", metavar="F", help="further prompts, one a line; - is stdin")
    add("--max-new", type=int, metavar="N", help="at most so many new symbols (default: max_length)")
    add("--temperature", type=float, metavar="T", help="draw: below 1 bolder, above 1 more even (default: 0, greedy)")
    add("--top-k", type=int, metavar="K", help="draw from the K likeliest")
    add("--top-p", type=float, metavar="P", help="draw from the likeliest that together have probability P")
    add("--min-p", type=float, metavar="P", help="draw from those with P times the probability of the likeliest")
    add("--repetition-penalty", type=float, metavar="R", help="above 1: what was said is less likely to come again")
    add("--seed", type=int, metavar="S", help="of what is drawn (default: 0)")
    add("--n", type=int, default=1, metavar="K", help="so many answers to each prompt: drawn, or the best of a beam")
    add("--beam", type=int, metavar="N", help="beam search with N hypotheses")
    add("--length-penalty", type=float, default=0.0, metavar="A", help="above 0: longer answers (default: 0)")
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be given several times")
    add("--stream", action="store_true", help="write every symbol as soon as it is certain")
    add("--stats", action="store_true", help="on stderr: lengths, settings, cache, speed of prefill and decode")
    add("--no-cache", action="store_true", help="compute everything anew at every step, for comparison")
    add("--cache-dtype", choices=("int8",), help="keep keys and values in a quarter of the bytes")
    add("--batch", type=int, default=64, metavar="N", help="so many rows at a time (default: 64)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.max_new is not None and args.max_new < 1:
        raise UserError(f"--max-new is at least 1, not {args.max_new}")
    if args.stream and (args.beam is not None or args.n != 1):
        raise UserError("--stream writes one answer as it comes: no --beam or --n with it")
    if args.n < 1:
        raise UserError(f"--n is at least 1, not {args.n}")
    prompts = read_prompts(args)
    model, tokenizer, _ = load_model(args.directory)
    if tokenizer is None:
        raise UserError(f"{args.directory} has no tokenizer.json, so text cannot be turned into ids")
    options: dict[str, Any] = {
        "max_new": args.max_new, "beam": args.beam, "length_penalty": args.length_penalty, "copies": args.n,
        "stop": args.stop, "batch": args.batch, "cache": False if args.no_cache else None,
        "cache_dtype": args.cache_dtype, "slide": True,
    }  # fmt: skip
    for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed"):
        if getattr(args, name) is not None:
            options[name] = getattr(args, name)
    if args.stats:  # so that loading, or compiling, kernels is not taken for the model's work
        for _ in Job(model, prompts[:1], tokenizer, **options | {"max_new": 2}).run():
            pass
    job = Job(model, prompts, tokenizer, **options)
    answers = stream(job, prompts) if args.stream else whole(job, prompts)
    if args.stats:
        print("\n".join(lines(report(job, answers))), file=sys.stderr)
    failed = [i for i, answer in enumerate(answers) if answer.error is not None]
    if len(prompts) == 1 and failed:
        raise UserError(words(answers[failed[0]].error))  # type: ignore[arg-type]
    for place in sorted({i // args.n for i in failed}):
        error = next(a.error for a in answers[place * args.n : (place + 1) * args.n] if a.error is not None)
        print(f"minitx: error: prompt {place + 1}: {words(error)}", file=sys.stderr)
    return 2 if failed else 0


def read_prompts(args: argparse.Namespace) -> list[str]:
    if args.prompts.count("-") + (args.file == "-") > 1:
        raise UserError("standard input, -, is read once")
    prompts = [sys.stdin.read().rstrip("\n") if prompt == "-" else prompt for prompt in args.prompts]
    if args.file is not None:
        text = sys.stdin.read() if args.file == "-" else read_text(args.file)
        prompts += text.removesuffix("\n").split("\n") if text else []
    if not prompts:
        raise UserError('no prompt: give one, "1 2 3 4", or --file F with one a line')
    return prompts


def whole(job: Job, prompts: list[str]) -> Answers:
    """All answers, a line each; texts that go on are set apart from each other."""
    for _ in job.run():
        pass
    answers = job.answers()
    for i, answer in enumerate(answers):
        if i and job.decoder:
            print("---")
        if answer.error is None:
            print(prompts[i // job.copies] + str(answer.text) if job.decoder else answer.text)
        elif len(answers) > 1:
            print()  # line i still belongs to prompt i
    return answers


def stream(job: Job, prompts: list[str]) -> Answers:
    """One prompt after the other, symbol by symbol."""
    job.batch = 1
    before = -1
    try:
        for place, piece in job.run():
            if place != before:
                between = "" if before < 0 else "\n---\n" if job.decoder else "\n"
                print(between + (prompts[place] if job.decoder else ""), end="")
            print(piece, end="", flush=True)
            before = place
    except KeyboardInterrupt:
        print(flush=True)  # what is said of it begins a line
        raise
    print()
    return job.answers()
