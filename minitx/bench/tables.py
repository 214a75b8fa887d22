"""What `minitx bench train`, `attention`, `matmul` and `growth` print."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minitx.bench import attention, components, growth, matmul, train
from minitx.bench.sides import ratios
from minitx.bench.timing import Timing


def training(against: str | None, threads: int, seconds: float) -> list[dict[str, Any]]:
    """Training steps; with the memory that each side's process took after its imports, and for them."""
    most = fastest(threads, seconds / 8)
    print("training step: forward, backward, clip 1.0, AdamW; median (quartiles), float32")
    found = []
    for row in train.rows(against, threads, seconds):
        found.append(row)
        line = side_by_side(str(row.size), row.ours, row.theirs, row.size.flops(), most=most)
        took = [f"{s['peak'] - s['before']:.0f} + {s['before']:.0f}" for s in row.after if s and s["peak"]]
        print(f"{line}   first step after {row.first:.1f} s   {' / '.join(took)} MB", flush=True)
    mean("", (row.ratio for row in found))
    return [train.as_dict(row, most) for row in found]


def attending(against: str | None, threads: int, seconds: float) -> dict[str, Any]:
    """Attention, and how its memory grows with the length."""
    most = fastest(threads, seconds)
    print("attention on the tape, (B x H) x T x d; median (quartiles), float32")
    found = []
    for row in attention.rows(against, threads, seconds):
        found.append(row)
        print(side_by_side(str(row.case), row.ours, row.theirs, row.case.flops(), most=most), flush=True)
    mean("", (row.ratio for row in found))
    print("memory that forward + backward took at most (the T x T weights alone would be 4 H T² bytes)")
    longer = []
    for row in attention.growth(against, threads):
        longer.append(row)
        took = [f"{s['peak'] - s['before']:.0f} MB" for s in row.memory if s and s["peak"]]
        print(f"{row.case!s:46s} {' / torch '.join(took)}   {row.ours.ms()}", flush=True)
    return {"rows": [row.to_dict() for row in found], "growth": [row.to_dict() for row in longer]}


def multiplying(threads: int, seconds: float) -> list[dict[str, Any]]:
    """Matrix products beside NumPy's."""
    most = fastest(threads, 2 * seconds)
    print("matrix products beside NumPy's; median (quartiles), float32")
    found = []
    for row in matmul.rows(threads, seconds):
        found.append(row)
        print(side_by_side(str(row.case), row.ours, row.numpy, row.case.flops(), "NumPy", most), flush=True)
    print(f"the most that was measured: {max(max(row.gflops()) for row in found):.0f} GFLOP/s")
    for what, gelu in (("products: ", False), ("with bias and GELU: ", True)):
        mean(what, (row.ratio for row in found if row.case.gelu == gelu))
    return [row.to_dict() for row in found]


def growing(threads: int, seconds: float) -> list[dict[str, Any]]:
    """The time a token takes in training, beside the arithmetic that it takes."""
    print("training step of a decoder, a token: nanoseconds, FLOPs, and what they make; float32")
    found = []
    for row in growth.rows(threads, seconds):
        found.append(row)
        print(f"{row.series}   {row.size!s:46s} {row.nanoseconds:9,.0f} ns   {row.flops:12,.0f} FLOPs   "
              f"{row.flops / row.nanoseconds:6.1f} GFLOP/s", flush=True)  # fmt: skip
    return [{"series": r.series, "size": r.size._asdict(), "step": r.step._asdict(), "flops": r.flops} for r in found]


def of_components(against: str | None, threads: int, seconds: float) -> list[dict[str, Any]]:
    """Norms, activations, softmax, loss."""
    print("components on the tape, forward and backward; median (quartiles), float32")
    found = []
    for row in components.rows(against, threads, seconds):
        found.append(row)
        line = f"{row.case!s:46s} minitx {row.ours.ms():28s}"
        if row.theirs is not None:
            line += f" torch {row.theirs.ms():28s} ratio {row.ratio:.2f}"
        print(line, flush=True)
    mean("", (row.ratio for row in found))
    return [row.to_dict() for row in found]


def side_by_side(
    what: str, ours: Timing, theirs: Timing | None, flops: int, name: str = "torch", most: float = 0.0
) -> str:
    """One line of a table; with `most`, the GFLOP/s that the machine can do, also the share of it."""

    def speed(timing: Timing, unit: str = "") -> str:
        gflops = flops / timing.median / 1e9
        return f"{gflops:6.1f}{unit}{f' {gflops / most:4.0%}' if most else ''}"

    line = f"{what:46s} minitx {ours.ms():24s} {speed(ours, ' GFLOP/s')}"
    if theirs is not None:
        line += f"   {name} {theirs.ms():24s} {speed(theirs)}"
        line += f"   ratio {theirs.median / ours.median:.2f}"
    return line


def fastest(threads: int, seconds: float) -> float:
    """The GFLOP/s of which every line of a table says its share."""
    most = matmul.most(threads, seconds)
    print(f"the fastest of NumPy's large matrix products here: {most:.0f} GFLOP/s (the shares below are of this)")
    return most


def mean(what: str, found: Iterable[float | None]) -> None:
    """The last line: the geometric mean of the ratios and the worst, where there are any."""
    if known := [ratio for ratio in found if ratio is not None]:
        print(what + ratios(known))
