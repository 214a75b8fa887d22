"""Which examples are held out: decided by a hash of the example itself, never by a list or by luck.

So training can draw examples without end, and no held-out one among them; another run, another machine and another
version hold out the same ones. (Python's own `hash` changes with every process.)
"""
from __future__ import annotations

from hashlib import blake2b

import numpy as np

from minitx.tensor import Array

TENTH = 10  # one example in ten is held out


def mix(x: Array) -> Array:
    """Integers → integers that look random, one to one on 64 bits: the last step of the splitmix64 generator."""
    x = np.asarray(x).astype(np.uint64)
    x = x + np.uint64(0x9E3779B97F4A7C15)  # arithmetic on uint64 arrays wraps around, as wanted
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    out: Array = x ^ (x >> np.uint64(31))
    return out


def check_digit(digits: Array, lengths: Array) -> Array:
    """For each row, the one last digit with which it is held out: digits (B, N) 0..9, lengths (B,) 1..N → (B,).

    A sequence s_1 .. s_n is held out if s_n = hash(n, s_1 .. s_(n-1)) mod 10. Of the ten sequences that differ in their
    last digit only, exactly one is: a tenth of every length, even of length 1. And it takes no trial and error to draw
    one that is held out, or one that is not.
    """
    place = np.arange(digits.shape[1])
    terms = mix(digits + TENTH * place)  # a random number for each digit in each place (B, N)
    terms[place >= lengths[:, None] - 1] = 0
    return (mix(terms.sum(1, dtype=np.uint64) + lengths.astype(np.uint64)) % np.uint64(TENTH)).astype(np.int64)


def text_hash(text: str) -> int:
    """A 64-bit number for a text."""
    return int.from_bytes(blake2b(text.encode("utf-8"), digest_size=8, person=b"minitx").digest(), "little")


def text_is_held_out(text: str) -> bool:
    return text_hash(text) % TENTH == 0


def quotas(total: int, available: list[int]) -> list[int]:
    """`total` shared out as evenly as the supply allows: quotas(10, [1, 9, 9]) is [1, 5, 4]."""
    shares = [0] * len(available)
    left = min(total, sum(available))
    # From the scarcest on: each takes its even share of what is left, or all it has.
    for k, i in enumerate(sorted(range(len(available)), key=lambda i: available[i])):
        shares[i] = min(available[i], -(-left // (len(available) - k)))
        left -= shares[i]
    return shares
