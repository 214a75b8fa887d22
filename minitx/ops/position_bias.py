"""Positions as a bias on the scores: a number for every distance of query and key. ALiBi fixes it, T5 learns it."""
from __future__ import annotations

import functools
from typing import Any

import numpy as np

from minitx import masks
from minitx.op import Array, Forward, op
from minitx.ops.checks import integers


def relative_positions(T: int, S: int, query_offset: Any = None) -> Array:
    """Position of the key minus position of the query: int64 (1, T, S), or (B, T, S) for one offset per batch row.

    As in attention, query i stands at i + query_offset among the keys; None: the last query stands at the last key. A
    batch padded on the left needs nothing else: padding shifts queries and keys alike.
    """
    batch = int(np.size(query_offset)) if query_offset is not None else 1
    at = masks.query_positions(batch, T, S, query_offset)  # (1 or B, T)
    return np.arange(S) - at[:, :, None]  # (1 or B, T, S)


# ---------------------------------------------------------------------- ALiBi


def alibi_slopes(heads: int) -> Array:
    """m_h = 2^(-8h / H) for h = 1 ... H, float64 (H,): from a head that looks around it to one that hardly minds.

    That is for a power of two. Any other number of heads takes the slopes of the next lower power of two, and then
    every other one of the next higher, as the authors' code does.
    """
    if isinstance(heads, bool) or not isinstance(heads, int | np.integer) or heads < 1:
        raise ValueError(f"ALiBi has one slope per head, so heads is an integer, at least 1, not {heads!r}")
    power = 1 << (int(heads).bit_length() - 1)  # the largest power of two <= heads
    slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    between = 2.0 ** (-8 * np.arange(1, 2 * power + 1, 2) / (2 * power))
    return np.concatenate([slopes, between[: heads - power]])


@op("slopes")
def alibi_bias(relative: Any, slopes: Array) -> Forward:
    """
    for: attention that sees nearer keys better, by a fixed penalty in proportion to the distance.

    equation:
        y_hts = -m_h |relative_ts|

    where:
        relative  (T, S) or (B, T, S)  integers, position of the key minus position of the query (relative_positions)
        slopes    (H,)                 m, one per head: alibi_slopes(H)
        y         (1 or B, H, T, S)    goes into attention as its bias

    by hand:
        >>> alibi_bias(relative_positions(2, 3), np.array([0.5])).numpy()[0, 0]
        array([[-0.5, -0. , -0.5],
               [-1. , -0.5, -0. ]])

    backward:
        dm_h = -Σ_ts dy_hts |relative_ts|

    why: y is linear in the slopes. (The paper's are constants; nobody asks for this gradient then.)

    saved: |relative|.

    cost: one product for every head and pair: as much memory as the scores.

    differs from: the paper, which only has causal masks: there keys after the query do not count, here they are as far
        as those before it, so without the mask left and right look alike. Adding m_h s instead (the key's position
        alone) gives the same weights: a row of scores may be shifted by a constant.

    goes wrong: distances counted from the start of a chunk instead of the start of the text, under a cache. Past the
        trained length nothing breaks: new distances only continue a straight line, and quality stays about what it was;
        but it stays because far keys hardly count, so what stands far away is not used either.

    exercise: alibi

    source: Press, Smith and Lewis 2022, "Train short, test long: attention with linear biases enables input length
        extrapolation".
    """
    distance: Array = np.abs(_batched(relative)).astype(slopes.dtype)[:, None]  # (1 or B, 1, T, S)
    if slopes.ndim != 1:
        raise ValueError(f"alibi_bias: one slope per head, (H,), not {slopes.shape}")
    y = distance * -slopes[:, None, None]  # (1 or B, H, T, S)

    def backward(dy: Array) -> Array:
        dslopes: Array = -(dy * distance).sum((0, 2, 3))  # (H,)
        return dslopes

    return y, backward


# ---------------------------------------------------------------------- T5


def relative_buckets(relative: Any, buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> Array:
    """
    The bucket of each relative position: int64, of the same shape.

    Of n buckets the first n/2 are for the distances 0, 1, ... n/2 - 1, one each; the others grow in proportion to the
    distance, up to max_distance; the last one takes all that is farther. `bidirectional`: half of the buckets are for
    keys before the query (and at it), half for keys after; else a key after the query counts as distance 0 (the mask
    hides it).
    """
    r: Array = np.asarray(relative)
    n = buckets // 2 if bidirectional else buckets
    if n < 2 or (bidirectional and buckets % 2) or max_distance <= n // 2:
        raise ValueError(
            "relative_buckets: a direction has at least 2 buckets (bidirectional: an even number in all), and "
            f"max_distance is above half of them, not buckets {buckets}, max_distance {max_distance}, "
            f"bidirectional {bidirectional}"
        )
    distance = np.abs(r) if bidirectional else np.maximum(-r, 0)
    bucket: Array = np.searchsorted(_borders(n, max_distance), distance, side="right")
    return bucket + n * (r > 0) if bidirectional else bucket


@functools.cache
def _borders(n: int, max_distance: int) -> Array:
    """The smallest distance in bucket 1, 2, ... n - 1.

    Bucket a + k, with a = n // 2, begins where a (max_distance / a)^(k / (n - a)) is reached: an inequality of powers,
    decided in whole numbers, since a logarithm may round to either side of a border.
    """
    a = n // 2
    borders = list(range(1, a + 1))
    distance = a
    for k in range(1, n - a):
        while distance ** (n - a) * a**k < max_distance**k * a ** (n - a):
            distance += 1
        borders.append(distance)
    return np.array(borders)


@op("weight")
def relative_bias(relative: Any, weight: Array, *, max_distance: int = 128, bidirectional: bool = True) -> Forward:
    """
    for: attention that learns, head by head, how much each distance matters.

    equation:
        y_hts = W[bucket(relative_ts), h]

    where:
        relative  (T, S) or (B, T, S)  integers, position of the key minus position of the query (relative_positions)
        weight    (n, H)               W: a number for each bucket of distances (relative_buckets) and head
        y         (1 or B, H, T, S)    goes into attention as its bias

    by hand:
        >>> W = np.array([[0.0], [1.0], [2.0], [3.0]])
        >>> relative_bias(relative_positions(2, 5), W, max_distance=4, bidirectional=False).numpy()[0, 0]
        array([[3., 2., 1., 0., 0.],
               [3., 3., 2., 1., 0.]])

    backward:
        dW[n, h] = Σ_{ts: bucket(relative_ts) = n} dy_hts

    why: an embedding of distances, so its backward is an embedding's: what was read several times collects several
        gradients.

    saved: the buckets.

    cost: a lookup for every head and pair; as many additions back.

    differs from: T5 in nothing: W is shared by all layers, each stack has its own (the decoder's is not bidirectional),
        and T5's scores are not divided by √d (scale=1.0).

    goes wrong: relative with the other sign swaps before and after; with one direction's buckets the decoder sees all
        the past in one bucket. Past the trained length all distances above max_distance share the last bucket: nothing
        breaks, and among far keys there is no order any more.

    exercise: relative-bias

    source: Raffel et al. 2020, "Exploring the limits of transfer learning with a unified text-to-text transformer",
        section 2.1.
    """
    if weight.ndim != 2:
        raise ValueError(f"relative_bias: weight is (buckets, heads), not {weight.shape}")
    bucket = relative_buckets(_batched(relative), len(weight), max_distance, bidirectional)  # (1 or B, T, S)
    y = np.ascontiguousarray(np.moveaxis(weight[bucket], -1, 1))  # (1 or B, H, T, S)

    def backward(dy: Array) -> Array:
        dweight = np.zeros(weight.shape, weight.dtype)  # (n, H)
        for h in range(weight.shape[1]):
            dweight[:, h] = np.bincount(bucket.ravel(), dy[:, h].ravel(), len(weight))  # sums, bucket by bucket
        return dweight

    return y, backward


def _batched(relative: Any) -> Array:
    r = integers(relative, "relative positions")
    if r.ndim not in (2, 3):
        raise ValueError(f"relative positions are (T, S) or (B, T, S), not {r.shape}")
    return r if r.ndim == 3 else r[None]
