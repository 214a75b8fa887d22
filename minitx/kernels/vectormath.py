"""exp, tanh, erf, Φ and σ as plain arithmetic: no branches and no library calls, so that loops that use them vectorise.

Inside a kernel `np.exp` is a call of the C library, one number at a time (a GELU written so took 6 ns an element). Each
function here is for float32 and float64, by its argument's type, and keeps to it. Largest errors measured, in units in
the last place of the result (sampled densely; `pytest -m slow` tries every 31st float32, or every one):

                  float32   float64
    exp             1.01      1.0
    sigmoid         2.1       2.0
    tanh            2.3       3.0
    erf             2.4       2.0
    normal          6.7       7.0     Φ(x) = erfc(-x/√2) / 2, to this accuracy in the left tail too

±inf and NaN are as in NumPy, and so are the subnormal results of exp.
They are compiled with `contract` alone: the compensated sums below mean what they say, and must not be regrouped.
"""

# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from minitx.kernels.compile import exact, intrinsic
from minitx.kernels.erfc import E32, E64, END32, END64, P32, P64, K

# ---------------------------------------------------------------------- what NumPy has no word for


def polynomial(single: Sequence[float], double: Sequence[float]) -> Any:
    """A function t → Σ_i c[i] tⁱ, by Horner's rule; `single` and `double` are the c for float32 and float64."""

    @intrinsic
    def evaluate(typingctx: Any, t: Any) -> Any:
        coefficients = single if t == types.float32 else double

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            (t,) = args
            type_of_three = ir.FunctionType(t.type, [t.type] * 3)
            multiply_add = builder.module.declare_intrinsic("llvm.fmuladd", [t.type], type_of_three)
            y = t.type(coefficients[-1])
            for c in coefficients[-2::-1]:
                y = builder.call(multiply_add, [y, t, t.type(c)])
            return y

        return t(t), codegen

    return evaluate


@intrinsic
def const(typingctx: Any, like: Any, single: Any, double: Any) -> Any:
    """The number `single` where `like` is float32, and `double` where it is float64."""
    value = single if like == types.float32 else double

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[1 if like == types.float32 else 2], value, like)

    return like(like, single, double), codegen


@intrinsic
def power_of_two(typingctx: Any, n: Any, like: Any) -> Any:
    """2^n in the type of `like`, for an exponent of the normal range: n goes straight into the bits."""
    bits, bias, shift = (32, 127, 23) if like == types.float32 else (64, 1023, 52)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(bits)
        e = builder.sext(args[0], integer) if bits == 64 else args[0]
        return builder.bitcast(builder.shl(builder.add(e, integer(bias)), integer(shift)), args[1].type)

    return like(types.int32, like), codegen


@intrinsic
def copysign(typingctx: Any, x: Any, sign: Any) -> Any:
    """|x| with the sign of `sign`, which a zero has too."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        binary = ir.FunctionType(args[0].type, [args[0].type] * 2)
        return builder.call(builder.module.declare_intrinsic("llvm.copysign", [args[0].type], binary), args)

    return x(x, x), codegen


# ---------------------------------------------------------------------- exp
#
# x = n ln2 + r with |r| <= ln2 / 2, so e^x = 2^n e^r. ln2 is taken away in two pieces, the first with so few digits
# that n times it is exact. 2^n is applied in two halves, for results that are subnormal, or finite though n = 128.

# (e^r - 1 - r) / r²: Cephes' expf; for float64 the Taylor series 1/2! + r/3! + ..., short on so small an interval.
SERIES = polynomial(
    (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4),
    (0.5, 0.16666666666666666, 0.041666666666666664, 0.008333333333333333, 0.001388888888888889, 0.0001984126984126984,
     2.48015873015873e-05, 2.7557319223985893e-06, 2.755731922398589e-07, 2.505210838544172e-08, 2.08767569878681e-09,
     1.6059043836821613e-10),
)  # fmt: skip


@exact
def reduce(x):
    """x = n ln2 + r. A NaN passes into r; n is an integer and cannot hold it."""
    n = np.rint((x if x == x else const(x, 0.0, 0.0)) * const(x, 1.4426950408889634, 1.4426950408889634))
    r = x - n * const(x, 0.693359375, 6.93147180369123816490e-01)
    return n, r - n * const(x, -2.12194440e-4, 1.90821492927058770002e-10)


@exact
def exp(x):
    """e^x."""
    x = max_nan(x, const(x, -104.0, -746.0))  # beyond, the result is 0
    x = min_nan(x, const(x, 89.0, 710.0))  # and here inf
    t, r = reduce(x)
    y = (SERIES(r) * (r * r) + r) + const(x, 1.0, 1.0)
    n = np.int32(t)
    half = np.int32(n >> 1)
    return y * power_of_two(half, x) * power_of_two(np.int32(n - half), x)


@exact
def exp_minus_1(x):
    """e^x - 1 = 2^n (e^r - 1) + (2^n - 1), relatively accurate near 0 too; for |x| below 80."""
    t, r = reduce(x)
    two_n = power_of_two(np.int32(t), x)
    return two_n * (SERIES(r) * (r * r) + r) + (two_n - const(x, 1.0, 1.0))


@exact
def max_nan(x, bound):
    """max(x, bound), and NaN for NaN: a comparison with NaN is false."""
    return bound if x < bound else x


@exact
def min_nan(x, bound):
    return bound if x > bound else x


# ---------------------------------------------------------------------- sigmoid and tanh


@exact
def sigmoid(x):
    """1 / (1 + e^-x), or e^x / (1 + e^x) for x < 0: nothing overflows, nothing cancels."""
    one = const(x, 1.0, 1.0)
    e = exp(-abs(x))
    return (e if x < const(x, 0.0, 0.0) else one) / (one + e)


@exact
def tanh(x):
    """(e^2x - 1) / (e^2x + 1)."""
    a = min_nan(abs(x), const(x, 10.0, 20.0))  # from here on tanh is 1
    e = exp_minus_1(a + a)
    return copysign(e / (e + const(x, 2.0, 2.0)), x)


# ---------------------------------------------------------------------- erf and Φ; erfc.py tells the method

SCALED_ERFC = polynomial(P32, P64)  # (1 + 2a) exp(a²) erfc(a), in t = (a - K) / (a + K)
ERF_NEAR_0 = polynomial(E32, E64)  # erf(x) / x in x²


@exact
def scaled_erfc(a):
    """exp(a²) erfc(a) for a >= 0."""
    k, one = const(a, K, K), const(a, 1.0, 1.0)
    return SCALED_ERFC((a - k) / (a + k)) / (one + a + a)


@exact
def exp_minus_square(a, half):
    """exp(-a²), or exp(-a²/2) with `half` = 1/2. a² is rounded, exp multiplies that error by a²; `rest` is it."""
    square = a * a
    head = np.rint(a * const(a, 16.0, 16.0)) * const(a, 0.0625, 0.0625)  # few digits: its square is exact
    rest = (head * head - square) + (a - head) * (a + head)
    e = exp(-square * half)
    return e - e * (rest * half)


@exact
def erf(x):
    """2/√π ∫_0^x exp(-u²) du."""
    a = abs(x)
    near = min_nan(a, const(a, 0.5, 0.5))
    small = near * ERF_NEAR_0(near * near)
    b = min_nan(a, const(a, END32, END64))
    far = const(a, 1.0, 1.0) - exp_minus_square(b, const(a, 1.0, 1.0)) * scaled_erfc(b)
    return copysign(small if a <= const(a, 0.5, 0.5) else far, x)


@exact
def normal(x):
    """Φ(x) = erfc(-x/√2) / 2, the share of a standard normal distribution below x, and its density φ(x)."""
    a = min_nan(abs(x), const(x, 15.0, 40.0))
    e = exp_minus_square(a, const(x, 0.5, 0.5))
    tail = const(x, 0.5, 0.5) * e * scaled_erfc(a * const(x, 0.7071067811865476, 0.7071067811865476))
    share = const(x, 1.0, 1.0) - tail if x > const(x, 0.0, 0.0) else tail
    return share, e * const(x, 0.3989422804014327, 0.3989422804014327)
