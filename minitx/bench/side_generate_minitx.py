"""Our side of generation: a session over the cache, or everything computed anew."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minitx.bench.generate import STEPS, Shape, Work
from minitx.generation import Session, Uncached
from minitx.models import Transformer
from minitx.settings import no_grad


def build(work: Sequence[Any], threads: int) -> Callable[[], tuple[int, int]]:
    """A function that does the work once and returns the bytes of the cache: in use, allocated."""
    work = Work(*work)
    shape = Shape(*work.shape)
    try:
        from minitx.kernels.parallel import set_threads

        set_threads(threads)
    except ImportError:
        pass  # no numba: the definitions, on NumPy's own threads
    model = Transformer(shape.config(), rng=np.random.default_rng(0))
    model.eval()
    prompt = work.prompt()

    def prefill() -> tuple[Any, Any]:
        session: Any = Uncached(model) if work.what == "uncached" else Session(model)
        with no_grad():
            return session, session.prefill(prompt).argmax(-1)

    if work.what == "prefill":
        return lambda: _bytes(prefill()[0])
    session, first = prefill()

    def decode() -> tuple[int, int]:
        session.truncate(np.full(shape.B, work.T))
        ids = first
        with no_grad():
            for _ in range(STEPS if work.what == "cached" else 1):
                ids = session.step(ids).argmax(-1)
        return _bytes(session)

    return decode


def _bytes(session: Any) -> tuple[int, int]:
    return int(session.nbytes), int(session.allocated)
