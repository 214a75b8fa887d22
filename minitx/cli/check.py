"""minitx check [NAME ...]: every component beside four witnesses; with --mutants the score of the checks themselves."""
from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from minitx.audit import check as checking
from minitx.audit.measure import Measure
from minitx.audit.score import Score, all_ops, scores
from minitx.audit.table import Table, paragraph
from minitx.cli.common import UserError
from minitx.cli.figures import expect, write

FORMAT = 1  # of the JSON


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="of an op, a layer, a block or a preset, or a whole "
                        "kind: ops, layers, blocks, models (default: everything)")  # fmt: skip
    parser.add_argument("--cases", action="store_true", help="one row for each case instead of each component")
    parser.add_argument("--mutants", action="store_true", help="how many of the wrong backward passes that a machine "
                        "makes the checks reject, and how many the usual check accepts")  # fmt: skip
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="write the figures to FILE too; without "
                        "FILE print them instead of the table")  # fmt: skip
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    expect(args.json)
    if args.mutants and args.cases:
        raise UserError("--mutants is counted by op, over all its cases: no --cases with it")
    try:
        names = checking.chosen(args.names)
    except ValueError as error:
        raise UserError(str(error)) from None
    if args.mutants:
        ops = [op for op in all_ops() if op.name in names]
        if not ops:
            raise UserError("only ops have a backward pass to change: layers, blocks and models are made of them")
        made = list(watched_scores(scores(ops), show=args.json != "-"))
        passed = not any(score.missed for score in made)
        report: dict[str, Any] = {"ops": [score.to_dict() for score in made]}
    else:
        rows = list(watched_rows(checking.check(names, args.cases), show=args.json != "-"))
        passed = all(row.passed for row in rows)
        report = {"limits": checking.LIMITS, "rows": [row.to_dict() for row in rows]}
    if args.json:
        write({"format": FORMAT, "versions": checking.versions(), "passed": passed, **report}, args.json)
    return 0 if passed else 1


# ---------------------------------------------------------------------- the table of components


def watched_rows(rows: Iterator[checking.Row], show: bool) -> Iterator[checking.Row]:
    """The rows, printed on the way."""
    if not show:
        yield from rows
        return
    head = ["component", "differences", "smaller ops", "kernel", "PyTorch", "time", ""]
    table = Table(head, [25, 11, 11, 11, 11, 8, 4])
    print(f"{heading()}\n\n{table.title()}", flush=True)
    marks, seen, kind = dict[str, str](), list[checking.Row](), ""
    for row in rows:
        if row.kind != kind:
            kind = row.kind
            print(f"{kind}s")
        cells = [cell(row.measures[column], marks) for column in checking.COLUMNS]
        seconds = f"{row.seconds:.2f} s"
        print(table.line([f"  {row.name}", *cells, seconds, "pass" if row.passed else "FAIL"]), flush=True)
        for column, measure in row.measures.items():
            if measure.passed is False:
                print(f"    {column}: {measure.error:.1e}, and {measure.limit:.1e} is allowed")
                print(paragraph(measure.note, "      "), end="\n" if measure.note else "")
        seen.append(row)
        yield row
    print()
    for why, mark in marks.items():
        print(f"  {mark}  {why}")
    failed = [row.name for row in seen if not row.passed]
    verdict = f"{len(failed)} FAIL: {', '.join(failed)}" if failed else "all pass"
    many = "1 row" if len(seen) == 1 else f"{len(seen)} rows"
    print(f"\n{many} in {sum(row.seconds for row in seen):.0f} s: {verdict}")


def heading() -> str:
    torch = checking.versions()["torch"]
    with_torch = f"PyTorch {torch}" if torch else "PyTorch"
    d, s, t = (f"{checking.LIMITS[column]:.0e}" for column in ("differences", "smaller ops", "pytorch"))
    return (
        "relative errors, max|a - b| / max|b|, of values and gradients\n"
        f"allowed: {d} from finite differences, {s} from smaller ops, {t} from {with_torch}, all in float64;\n"
        "kernels 1e-12 in float64 and 4 eps sqrt(n) in float32 (the one that is nearer to its limit is shown)"
    )


def cell(measure: Measure, marks: dict[str, str]) -> str:
    """The error, and a mark for what is not compared, of which the reason stands below the table."""
    for why in measure.why_not:
        marks.setdefault(why, chr(ord("a") + len(marks)))
    said = "".join(marks[why] for why in measure.why_not)
    number = "-" if measure.error is None else f"{measure.error:.1e}"
    return f"{number} {said:<2}"


# ---------------------------------------------------------------------- the table of mutants


def watched_scores(made: Iterator[Score], show: bool) -> Iterator[Score]:
    if not show:
        yield from made
        return
    print(
        "made: one small change each, in the backward pass of one op\n"
        "caught: by the gradient check (differences), or by exact values at ties, kinks and infinities (corners)\n"
        "equivalent: not wrong, for the reason below; missed: wrong, and accepted\n"
        "usual: wrong, and accepted by what is usually done, y.sum().backward() at gain 1 and bias 0\n"
    )
    table = Table(
        ["op", "made", "caught:", "differences", "corners", "equivalent", "missed", "usual"],
        [20, 6, 8, 12, 8, 11, 7, 6],
    )
    print(table.title())
    seen = []
    for score in made:
        print(table.line([score.op, *map(str, numbers(score))]), flush=True)
        seen.append(score)
        yield score
    print(table.line(["all", *(str(sum(column)) for column in zip(*map(numbers, seen)))]))
    for title, lines in (
        ("equivalent", [f"{m}\n    because: {why}" for s in seen for m, why in s.equivalent.items()]),
        ("missed", [m for s in seen for m in s.missed]),
    ):
        if lines:
            print(f"\n{title}")
            print("\n".join(f"  {line}" for line in lines))


def numbers(score: Score) -> list[int]:
    return [score.made, score.caught, score.by_differences, score.by_corners, len(score.equivalent),
            len(score.missed), len(score.usual)]  # fmt: skip
