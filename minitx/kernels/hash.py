"""Random numbers by position: element i of stream `key` is a hash of (key, i), so anybody can make any part of it.

A generator gives its numbers in one order. Dropout inside a tiled kernel needs them in another, and twice: the backward
pass must drop what the forward pass dropped. A hash of the position does both without storing anything.

The hash is splitmix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"): a counter with a
fixed odd step, then a mixing of its bits. This is its definition in NumPy; a kernel must give the same bits.
"""
from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

STEP = 0x9E3779B97F4A7C15  # 2^64 / golden ratio, odd: the counter meets every 64-bit number before it repeats
MULTIPLY_1 = 0xBF58476D1CE4E5B9
MULTIPLY_2 = 0x94D049BB133111EB
BLOCK = 1 << 14  # elements a pass: the temporary arrays stay in the cache


def draw_key(rng: np.random.Generator) -> int:
    """One 64-bit key: the only thing that a dropout takes from the generator, whatever its size."""
    return int(rng.integers(0, 1 << 64, dtype=np.uint64))


def hashed(key: int, start: int, stop: int) -> NDArray[np.uint64]:
    """Elements start..stop-1 of the stream: 64 random bits each."""
    return _mixed(np.arange(start, stop, dtype=np.uint64), key)


def _mixed(z: NDArray[np.uint64], key: int) -> NDArray[np.uint64]:
    """The hash of each element number in z, in place."""
    z *= np.uint64(STEP)  # modulo 2^64, as everything here
    z += np.uint64((key + STEP) % (1 << 64))
    z ^= z >> np.uint64(30)
    z *= np.uint64(MULTIPLY_1)
    z ^= z >> np.uint64(27)
    z *= np.uint64(MULTIPLY_2)
    z ^= z >> np.uint64(31)
    return z


def threshold(p: float) -> int:
    """An element is dropped where its hash is below this; 2^64 (no uint64 any more) where p is 1."""
    return int(p * 2.0**64)


def keep(key: int, shape: tuple[int, ...], p: float) -> NDArray[np.bool_]:
    """True where dropout with probability p keeps the element. Indices are in C order: the last axis runs fastest."""
    size = math.prod(shape)
    limit = threshold(p)
    if limit == 0 or limit == 1 << 64:
        return np.full(shape, limit == 0)
    kept = np.empty(size, np.bool_)
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        np.greater_equal(hashed(key, start, stop), np.uint64(limit), out=kept[start:stop])
    return kept.reshape(shape)


def keep_at(key: int, index: NDArray[np.uint64], p: float) -> NDArray[np.bool_]:
    """The same for the elements with these numbers only, in any shape: a tile of the array that `keep` makes whole."""
    limit = threshold(p)
    if limit == 0 or limit == 1 << 64:
        return np.full(index.shape, limit == 0)
    return _mixed(index.copy(), key) >= np.uint64(limit)
