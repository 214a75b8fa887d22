"""exp, log, tanh, erf, Φ and σ as plain arithmetic: no branches or library calls, so that loops with them vectorise.

Inside a kernel `np.exp` is a call of the C library, one number at a time (a GELU written so took 6 ns an element). Each
function here is for float32 and float64, by its argument's type, and keeps to it. Largest errors measured, in units in
the last place of the result (sampled densely; `pytest -m slow` tries every 31st float32, or every one):

                  float32   float64
    exp             1.01      1.0
    log             2.0       2.0     of a positive number that is not subnormal
    sigmoid         2.1       2.0
    tanh            2.3       3.0
    erf             2.4       2.0
    normal          6.7       7.0     Φ(x) = erfc(-x/√2) / 2, to this accuracy in the left tail too

±inf and NaN are as in NumPy, and so are the subnormal results of exp and sigmoid. Many CPUs take a hundred times as
long for an instruction that meets a subnormal number, also to find that a result is 0. So exp makes its own with
integers, `exp_or_0` and Φ have 0 in their place, and what is masked (exp(-inf)) costs no more than the rest.
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
from minitx.kernels.erfc import E32, E64, P32, P64, K
from minitx.kernels.tile import BITS

AVX512 = BITS == 512

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
def exponent(typingctx: Any, x: Any) -> Any:
    """n of x = 2^n m, √½ <= m < √2, for a positive x of the normal range, as a number of its type; `mantissa` is m.

    The bits of √½ taken from those of x leave n in the exponent's place, and what m has more than √½ below.
    """
    integer, root, shift, _ = _halves(x)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        above = builder.sub(builder.bitcast(args[0], integer), integer(root))
        return builder.sitofp(builder.ashr(above, integer(shift)), args[0].type)

    return x(x), codegen


@intrinsic
def mantissa(typingctx: Any, x: Any) -> Any:
    integer, root, _, digits = _halves(x)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        above = builder.sub(builder.bitcast(args[0], integer), integer(root))
        return builder.bitcast(builder.add(builder.and_(above, integer(digits)), integer(root)), args[0].type)

    return x(x), codegen


def _halves(x: Any) -> tuple[Any, int, int, int]:
    """The type of the bits, √½ as bits, where the exponent begins, the digits below it."""
    single = x == types.float32
    shift = 23 if single else 52
    return ir.IntType(32 if single else 64), 0x3F3504F3 if single else 0x3FE6A09E667F3BCD, shift, (1 << shift) - 1


@intrinsic
def copysign(typingctx: Any, x: Any, sign: Any) -> Any:
    """|x| with the sign of `sign`, which a zero has too."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        binary = ir.FunctionType(args[0].type, [args[0].type] * 2)
        return builder.call(builder.module.declare_intrinsic("llvm.copysign", [args[0].type], binary), args)

    return x(x, x), codegen


@intrinsic
def last_digits(typingctx: Any, t: Any) -> Any:
    """The integer n in the last digits of t = 1.5 2^23 + n (2^52 for float64); for a NaN any integer."""
    single = t == types.float32

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], ir.IntType(32 if single else 64))
        return builder.sub(bits, bits.type(0x4B400000)) if single else builder.trunc(bits, ir.IntType(32))

    return types.int32(t), codegen


@intrinsic
def subnormal(typingctx: Any, t: Any) -> Any:
    """t 2^-149 (2^-1074 for float64) for 0 <= t <= 2^23 (2^52): t rounded to an integer is the number's bits."""
    single = t == types.float32
    integer, shift, first = (ir.IntType(32), 23, 0x4B000000) if single else (ir.IntType(64), 52, 0x4330000000000000)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rounded = builder.fadd(args[0], args[0].type(2.0**shift))  # 2^23 leaves no digits behind the point
        bits = builder.sub(builder.bitcast(rounded, integer), integer(first))
        return builder.bitcast(bits, args[0].type)

    return t(t), codegen


@intrinsic
def chosen(typingctx: Any, c: Any, x: Any, y: Any) -> Any:
    """x if c else y, by one instruction. (Of two `if`s with one condition a compiler may make two ways, past both.)"""
    return x(c, x, x), lambda context, builder, signature, args: builder.select(*args)


@intrinsic
def maximum(typingctx: Any, a: Any, b: Any) -> Any:
    """The larger of two numbers, or NaN. (A loop with `if x > top` takes one number at a time: NaN is in the way.)"""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        of_two = ir.FunctionType(args[0].type, [args[0].type] * 2)
        larger = builder.module.declare_intrinsic("llvm.maximum", [args[0].type], of_two)
        return builder.call(larger, args, fastmath=("nsz",))

    return a(a, a), codegen


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c, rounded once, on every CPU."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        of_three = ir.FunctionType(args[0].type, [args[0].type] * 3)
        return builder.call(builder.module.declare_intrinsic("llvm.fma", [args[0].type], of_three), args)

    return a(a, b, c), codegen


@intrinsic
def times_power_of_two(typingctx: Any, y: Any, n: Any) -> Any:
    """y 2^n, a normal number or infinite; it may be finite though 2^n is not: AVX-512 has an instruction for it.

    Elsewhere in two halves, which is enough for |n| < 1000 (200 in float32).
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        y, n = args
        if AVX512:
            ldexp = ir.FunctionType(y.type, [y.type, n.type])
            return builder.call(builder.module.declare_intrinsic("llvm.ldexp", [y.type, n.type], ldexp), args)
        integer, bias, shift = (32, 127, 23) if signature.args[0] == types.float32 else (64, 1023, 52)
        half = builder.ashr(n, n.type(1))
        for e in (half, builder.sub(n, half)):
            e = builder.sext(e, ir.IntType(integer)) if integer == 64 else e
            power = builder.shl(builder.add(e, e.type(bias)), e.type(shift))
            y = builder.fmul(y, builder.bitcast(power, y.type))
        return y

    return y(y, types.int32), codegen


# ---------------------------------------------------------------------- exp
#
# x = n ln2 + r with |r| <= ln2 / 2, so e^x = 2^n e^r. ln2 is taken away in two pieces, the first with so few digits
# that n times it is exact.

# (e^r - 1 - r) / r²: Cephes' expf; for float64 the Taylor series 1/2! + r/3! + ..., short on so small an interval.
SERIES = polynomial(
    (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4),
    (0.5, 0.16666666666666666, 0.041666666666666664, 0.008333333333333333, 0.001388888888888889, 0.0001984126984126984,
     2.48015873015873e-05, 2.7557319223985893e-06, 2.755731922398589e-07, 2.505210838544172e-08, 2.08767569878681e-09,
     1.6059043836821613e-10),
)  # fmt: skip


@exact
def reduce(x):
    """x = n ln2 + r, for |x| < 2000: r, and n as t = 1.5 2^23 + n (2^52): so large a number has no digits behind 1."""
    shift = const(x, 12582912.0, 6755399441055744.0)
    t = x * const(x, 1.4426950408889634, 1.4426950408889634) + shift
    n = t - shift
    r = x - n * const(x, 0.693359375, 6.93147180369123816490e-01)
    return t, r - n * const(x, -2.12194440e-4, 1.90821492927058770002e-10)


@exact
def exp(x):
    """e^x."""
    x = max_nan(x, const(x, -104.0, -746.0))  # beyond, the result is 0
    x = min_nan(x, const(x, 89.0, 710.0))  # and here inf
    t, r = reduce(x)
    small = x < const(x, -87.33654, -708.3964185322641)  # e^x is subnormal: n is raised by 149 (1074)
    y = times_power_of_two(exp_near_0(r), last_digits(t + chosen(small, const(x, 149.0, 1074.0), const(x, 0.0, 0.0))))
    return chosen(small, subnormal(y), y)


@exact
def exp_or_0(x):
    """e^x, and 0 where that is subnormal: for weights in a sum, where nobody can tell the difference."""
    least = const(x, -87.33, -708.39)
    y = min_nan(max_nan(x, least), const(x, 89.0, 710.0))
    t, r = reduce(y)
    return const(x, 0.0, 0.0) if x < least else times_power_of_two(exp_near_0(r), last_digits(t))


@exact
def exp_near_0(r):
    return (SERIES(r) * (r * r) + r) + const(r, 1.0, 1.0)


@exact
def exp_minus_1(x):
    """e^x - 1 = 2^n (e^r - 1) + (2^n - 1), relatively accurate near 0 too; for |x| below 80."""
    t, r = reduce(x)
    two_n = power_of_two(last_digits(t), x)
    return two_n * (SERIES(r) * (r * r) + r) + (two_n - const(x, 1.0, 1.0))


@exact
def minus(a, b):
    """a - b, which the compiler may not regroup with its neighbours: x - max - log becomes noise as x - (max + log)."""
    return a - b


@exact
def inverse_root(x):
    """1 / √x. Kernels' own flags allow an estimate and a Newton step, which make NaN of infinity and of subnormals."""
    return const(x, 1.0, 1.0) / np.sqrt(x)


@exact
def max_nan(x, bound):
    """max(x, bound), and NaN for NaN: a comparison with NaN is false."""
    return bound if x < bound else x


@exact
def min_nan(x, bound):
    return bound if x > bound else x


# ---------------------------------------------------------------------- log
#
# x = 2^n m with m between √½ and √2, and with s = (m - 1) / (m + 1) log m = 2 (s + s³/3 + s⁵/5 + ...), s² < 0.03.

ARTANH = polynomial([2 / k for k in range(3, 13, 2)], [2 / k for k in range(3, 27, 2)])  # 2/3 + 2/5 s² + ...


@exact
def log(x):
    """log x for x > 0 that is not subnormal; inf and NaN stay."""
    m, n = mantissa(x), exponent(x)
    s = (m - const(x, 1.0, 1.0)) / (m + const(x, 1.0, 1.0))
    square = s * s
    low = s * square * ARTANH(square) + n * const(x, -2.12194440e-4, 1.90821492927058770002e-10)
    y = n * const(x, 0.693359375, 6.93147180369123816490e-01) + (s + s + low)
    return y if x < const(x, np.inf, np.inf) else x


# ---------------------------------------------------------------------- sigmoid and tanh


@exact
def sigmoid(x):
    """1 / (1 + e^-x), or e^x / (1 + e^x) for x < 0: nothing overflows, nothing cancels."""
    one = const(x, 1.0, 1.0)
    e = exp(-abs(x))
    return (e if x < const(x, 0.0, 0.0) else one) / (one + e)


@exact
def sigmoids(x, e):
    """σ(x) and σ(-x) = 1 - σ(x), from e = exp(-|x|)."""
    larger = const(x, 1.0, 1.0) / (const(x, 1.0, 1.0) + e)
    smaller = e * larger
    return (smaller, larger) if x < const(x, 0.0, 0.0) else (larger, smaller)


@exact
def tanh(x):
    """(e^2x - 1) / (e^2x + 1)."""
    a = min_nan(abs(x), const(x, 10.0, 20.0))  # from here on tanh is 1
    e = exp_minus_1(a + a)
    return copysign(e / (e + const(x, 2.0, 2.0)), x)


# ---------------------------------------------------------------------- erf and Φ; erfc.py tells the method

# (1 + 2a) exp(a²) erfc(a) / 2, in t = (a - K) / (a + K)
HALF_SCALED_ERFC = polynomial([c / 2 for c in P32], [c / 2 for c in P64])
ERF_NEAR_0 = polynomial(E32, E64)  # erf(x) / x in x²


@exact
def half_scaled_erfc(a):
    """exp(a²) erfc(a) / 2 for a >= 0."""
    k, one = const(a, K, K), const(a, 1.0, 1.0)
    return HALF_SCALED_ERFC((a - k) / (a + k)) / (one + a + a)


@exact
def exp_minus_square(a, half):
    """exp(-a²), or exp(-a²/2) with `half` = 1/2; a normal number.

    a² is rounded, and exp would multiply that error by a²; `rest` is it.
    """
    square = a * a
    rest = fma(a, a, -square)
    t, r = reduce(-square * half)
    return times_power_of_two(exp_near_0(r - rest * half), last_digits(t))


@exact
def erf(x):
    """2/√π ∫_0^x exp(-u²) du."""
    a = abs(x)
    near = min_nan(a, const(a, 0.5, 0.5))
    small = near * ERF_NEAR_0(near * near)
    b = min_nan(a, const(a, 9.0, 26.0))  # from long before on erf is 1
    far = const(a, 1.0, 1.0) - const(a, 2.0, 2.0) * exp_minus_square(b, const(a, 1.0, 1.0)) * half_scaled_erfc(b)
    return copysign(small if a <= const(a, 0.5, 0.5) else far, x)


@exact
def normal(x):
    """Φ(x) = erfc(-x/√2) / 2, the share of a standard normal distribution below x, and its density φ(x).

    Both tails end, with 0, before their numbers become subnormal.
    """
    end = const(x, 12.9, 37.4)
    a = min_nan(abs(x), end)
    e = exp_minus_square(a, const(x, 0.5, 0.5))
    e = const(x, 0.0, 0.0) if abs(x) > end else e
    tail = e * half_scaled_erfc(a * const(x, 0.7071067811865476, 0.7071067811865476))
    share = const(x, 1.0, 1.0) - tail if x > const(x, 0.0, 0.0) else tail
    return share, e * const(x, 0.3989422804014327, 0.3989422804014327)
