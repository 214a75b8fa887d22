"""How long generation took, prefill and decode apart: they are two kinds of work.

Prefill reads all prompts at once, large products that a processor does at full speed. Decode says one id a row and
step, and each step reads all weights and the whole cache for a few multiplications. One figure for both would tell of
neither.
"""
from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Timings:
    """Seconds, tokens and bytes; of several batches one after the other, the sums (of bytes the most)."""

    prefill_tokens: int = 0  # read: of prompts, or of sources and their BOS
    prefill_seconds: float = 0.0  # an encoder's included; this long the first symbols are waited for
    decode_tokens: int = 0  # fed back, one a row and step (the first symbol of a row comes from the prefill)
    decode_steps: int = 0
    decode_seconds: float = 0.0  # choosing included
    cache_bytes: int = 0  # in use, at its fullest
    allocated_bytes: int = 0  # what the cache held for it
    recomputed_tokens: int = 0  # said beyond the positions, without a cache

    @property
    def prefill_rate(self) -> float:
        """Tokens a second."""
        return self.prefill_tokens / self.prefill_seconds if self.prefill_seconds else 0.0

    @property
    def decode_rate(self) -> float:
        """Tokens a second, of all rows together."""
        return self.decode_tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def latency(self) -> float:
        """Seconds from one symbol of a row to its next."""
        return self.decode_seconds / self.decode_steps if self.decode_steps else 0.0

    def to_dict(self) -> dict[str, Any]:
        rates = {"prefill_rate": self.prefill_rate, "decode_rate": self.decode_rate, "latency": self.latency}
        return asdict(self) | rates

    # ------------------------------------------------------------------ taking them

    @contextmanager
    def prefill(self, tokens: int) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.prefill_seconds += time.perf_counter() - began
        self.prefill_tokens += tokens

    @contextmanager
    def decode(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.decode_seconds += time.perf_counter() - began

    def step(self, session: Any, ids: Any) -> Any:
        """One step of the session, counted; returns its logits."""
        with self.decode():
            logits = session.step(ids)
        self.decode_steps += 1
        self.decode_tokens += len(ids)
        self.recomputed_tokens += getattr(session, "slid", 0)
        return logits

    def look(self, session: Any) -> None:
        """Is the cache larger than it was? Asked before it becomes smaller: before rows leave, and at the end."""
        self.cache_bytes = max(self.cache_bytes, session.nbytes)
        self.allocated_bytes = max(self.allocated_bytes, session.allocated)
