"""How many bytes does a KV cache take?"""
from __future__ import annotations

from minitx.learn.exercise import question

EXERCISE = question(
    "kv-bytes",
    2 * 32 * 8192 * 2 * 128 * 2,
    {
        "half": 32 * 8192 * 2 * 128 * 2,
        "eight-heads": 2 * 32 * 8192 * 8 * 128 * 2,
        "one-layer": 2 * 8192 * 2 * 128 * 2,
    },
    needs=("kv-cache", "grouped-query"),
)
