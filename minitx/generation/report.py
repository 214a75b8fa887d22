"""What a figure of generation has to be told with: sizes, settings, the cache, and what computed it."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from minitx.generation.answers import Answers
from minitx.generation.job import Job
from minitx.generation.timings import Timings
from minitx.generation.uncached import why_not_cached
from minitx.settings import current


def report(job: Job, answers: Answers) -> dict[str, str]:
    """Name → words. Whoever compares two runs compares these first."""
    rows = [a for a in answers if a.error is None]
    t = answers.timings
    said = sum(len(a.log_probs) for a in rows)
    log_p = sum(float(a.log_probs.sum()) for a in rows)
    out = {
        "rows": f"{len(answers)}, up to {job.batch} at a time",
        "prompt length": _range([len(a.prompt) for a in rows if a.prompt is not None]),
        "output length": _range([len(a.ids) for a in rows]),
        "ended by": ", ".join(f"{reason} {n}" for reason, n in Counter(a.finish for a in answers).items()) or "-",
        "decoding": decoding(job),
        "log-probability": f"{log_p / said:.4f} a symbol" if said else "-",
        "cache": cache_strategy(job),
        "cache size": f"{t.cache_bytes:,} bytes in use, {t.allocated_bytes:,} allocated",
        **timings(t),
        "computed by": computed_by(),
        "dtype": str(next(job.model.parameters()).dtype),
    }
    if t.recomputed_tokens:
        out["beyond the positions"] = f"{t.recomputed_tokens} symbols, each computed anew from the latest " \
                                      f"{job.model.config.max_length}"  # fmt: skip
    return out


def lines(said: dict[str, str]) -> list[str]:
    wide = max(map(len, said))
    return [f"{name:<{wide}}  {value}" for name, value in said.items()]


def decoding(job: Job) -> str:
    sampling = job.sampling.to_dict()
    if job.beam is not None:
        how = f"beam search, {job.beam.width} wide, length_penalty {job.beam.length_penalty:g}"
    elif job.sampling.draws:
        how = "drawn, temperature " + f"{1.0 if job.sampling.temperature is None else job.sampling.temperature:g}"
        sampling = {"top_k": "all", "top_p": 1.0, "min_p": 0.0, **sampling, "seed": job.sampling.seed}
    else:
        how = "greedy"
    sampling.pop("temperature", None)
    if job.copies > 1:
        sampling["copies"] = job.copies
    if job.stop:
        sampling["stop"] = [ascii(stop) for stop in job.stop]
    return ", ".join([how, *(f"{k} {_word(v)}" for k, v in sampling.items())])


def cache_strategy(job: Job) -> str:
    if not job.cache:
        why = why_not_cached(job.model)
        return "none, everything is computed anew at each step" + (f": {why}" if why else "")
    c = job.model.config
    kind = "contiguous"
    if c.window is not None:
        kind = f"rolling, window {c.window}"
        if c.window_every > 1:
            kind += f" (1 layer of {c.window_every}; the others contiguous)"
    else:
        kind += ", no window"
    stored = job.cache_dtype or str(next(job.model.parameters()).dtype)
    return f"{kind}, {stored}, not paged, not offloaded"


def timings(t: Timings) -> dict[str, str]:
    return {
        "prefill": f"{t.prefill_tokens:,} tokens in {1e3 * t.prefill_seconds:.4g} ms ({t.prefill_rate:,.0f} tokens/s)",
        "decode": f"{t.decode_tokens:,} tokens in {1e3 * t.decode_seconds:.4g} ms ({t.decode_rate:,.0f} tokens/s), "
                  f"{1e3 * t.latency:.4g} ms a step",
    }  # fmt: skip


def computed_by() -> str:
    """Kernels or definitions, the versions that matter, and threads."""
    numpy = f"NumPy {np.__version__}"
    if not current.get().kernels or find_spec("numba") is None:
        return f"reference definitions, {numpy}"
    import llvmlite.binding
    import numba

    from minitx.kernels.parallel import get_threads

    llvm = ".".join(map(str, llvmlite.binding.llvm_version_info))
    return f"kernels, numba {numba.__version__}, LLVM {llvm}, {numpy}, threads {get_threads()}"


def _range(lengths: Sequence[int]) -> str:
    if not lengths:
        return "-"
    low, high = min(lengths), max(lengths)
    return str(low) if low == high else f"{low} to {high}, mean {np.mean(lengths):.1f}"


def _word(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
