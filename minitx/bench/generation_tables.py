"""What `minitx bench generate` prints."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from minitx.bench.generate import CONTEXTS, ONE, SHARED, TRAINED, Row, Shape, rows
from minitx.bench.remembering import learned, recurrent_step, remembered
from minitx.bench.sides import ratios


def show(against: str | None, threads: int, seconds: float) -> dict[str, Any]:
    """Print the tables as they come, and return their figures; about so many seconds of steps a row and side."""

    def table(shape: Shape, contexts: Sequence[int], reading: bool, uncached: bool) -> Iterator[Row]:
        print(f"  {shape}")
        for row in rows(shape, contexts, against, threads, seconds, reading, uncached):
            print(line(row), flush=True)
            yield row

    print("generation with a decoder, float32, medians: one step (every row says a symbol) behind T tokens; reading T")
    found = list(table(ONE, CONTEXTS, True, True))
    print("keys and values of every head, of a quarter of them, of one for all (MHA, GQA, MQA)")
    found += [row for shape in SHARED for row in table(shape, (1024, 4096), False, False)]
    print("the models of `minitx bench train` with its batches, behind texts of the length that it trains on")
    found += [row for shape, context in TRAINED for row in table(shape, (context,), True, False)]
    if against is not None:
        print(f"one step: {ratios(row.ratio for row in found if row.ratio is not None)}")
    return {"rows": [row.to_dict() for row in found], **recurrent(threads)}


def line(row: Row) -> str:
    step = "  ".join(f"{name} {t.ms():26s}" for name, t in row.step.items())
    ratio = "" if row.ratio is None else f"ratio {row.ratio:5.2f}  "
    read = ", ".join(f"{name} {1e3 * t.median:.3g} ms" for name, t in row.prefill.items())
    used, allocated = (n / 2**20 for n in row.bytes)
    out = f"    T {row.context:4d}  {step}  {ratio}cache {used:.3g} MiB ({allocated:.3g} allocated)"
    return f"{out}  reading: {read}" if read else out


def recurrent(threads: int) -> dict[str, Any]:
    """The counterpart whose memory does not grow."""
    with suppress(ImportError):  # without numba: the definitions, on NumPy's own threads
        from minitx.kernels.parallel import set_threads

        set_threads(threads)
    print(f"a recurrent network with {ONE.layers} layers of {ONE.d}, beside the cache of one text of the first model")
    memory = remembered(ONE)
    for m in memory:
        print(f"    {m.tokens:6,} tokens  cache {m.cache:11,} bytes  state {m.state:6,} bytes")
    step = recurrent_step(ONE)
    print(f"    one more symbol, behind however many: {step.ms()}")
    small = ONE._replace(B=8, d=64, heads=4, kv_heads=4, layers=2)
    learning = learned(small)
    for n in learning:
        print(f"    learning from {small.B} texts of {n.tokens} tokens, {small.layers} layers of {small.d}: "
              f"all at once (Transformer) {n.parallel.ms()}, one after the other {n.serial.ms()}")  # fmt: skip
    return {
        "remembered": [m._asdict() for m in memory],
        "recurrent_step": step._asdict(),
        "learned": [[n.tokens, n.parallel._asdict(), n.serial._asdict()] for n in learning],
    }
