"""Memory by address: what workers (parallel.py) and the register tile (tile.py) need, and NumPy hides.

In all files that work so, an address counts bytes and a step counts elements: x[i] is at x + i * step * size. `like` is
any number of the matrices' type, which is all that it says; -(-a // b) is a / b rounded up.
"""
# mypy: allow-untyped-defs, no-check-untyped-defs
from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils

from minitx.kernels.compile import inline, intrinsic
from minitx.kernels.memory import LINE

carray: Any = numba.carray  # type: ignore[attr-defined]
CPointer: Any = types.CPointer
insert_function: Any = cgutils.get_or_insert_function
i64, i32 = ir.IntType(64), ir.IntType(32)


@intrinsic
def address(typingctx: Any, array: Any) -> Any:
    """Where the elements of an array begin, as an integer.

    An address does not keep the array alive: numba frees a local array after its last use *as an array*. Take addresses
    of arguments, or of what is passed on as an array too.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, i64)

    return types.int64(array), codegen


@intrinsic
def where(typingctx: Any, pointer: Any) -> Any:
    """The address that a pointer holds."""
    return types.int64(pointer), lambda context, builder, signature, args: builder.ptrtoint(args[0], i64)


@intrinsic
def pointer(typingctx: Any, like: Any, at: Any) -> Any:
    """A pointer to elements of the type of `like`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[1], args[0].type.as_pointer())

    return CPointer(like)(like, types.int64), codegen


@intrinsic
def keep_apart(typingctx: Any) -> Any:
    """Called in a helper: compile it once and call it, instead of copying it to every place that uses it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.function.attributes.add("noinline")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def no_overlap(typingctx: Any) -> Any:
    """Called in a helper: its arrays do not overlap, so that a loop need not look whether they do before it begins."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for argument in builder.function.args:
            if isinstance(argument.type, ir.PointerType):
                argument.add_attribute("noalias")
        return context.get_dummy_value()

    return types.void(), codegen


@intrinsic
def size_of(typingctx: Any, like: Any) -> Any:
    """Bytes of a number of this type."""
    return types.int64(like), lambda context, builder, signature, args: i64(signature.args[0].bitwidth // 8)


@intrinsic
def cast(typingctx: Any, like: Any, x: Any) -> Any:
    """x as a number of the type of `like`: numba makes float64 of a float32 divided by an integer."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[1], signature.args[1], signature.args[0])

    return like(like, x), codegen


@intrinsic
def bits(typingctx: Any, x: Any) -> Any:
    """A float64 as an integer, to travel among addresses; `real` is the way back."""
    return types.int64(types.float64), lambda context, builder, signature, args: builder.bitcast(args[0], i64)


@intrinsic
def real(typingctx: Any, x: Any) -> Any:
    double = ir.DoubleType()
    return types.float64(types.int64), lambda context, builder, signature, args: builder.bitcast(args[0], double)


def _prefetch(closeness: int) -> Any:
    @intrinsic
    def ask(typingctx: Any, at: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            byte = ir.IntType(8).as_pointer()
            kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
            function = insert_function(builder.module, kind, "llvm.prefetch.p0")
            read, data = i32(0), i32(1)
            builder.call(function, [builder.inttoptr(args[0], byte), read, i32(closeness), data])
            return context.get_dummy_value()

        return types.void(types.int64), codegen

    return ask


# Ask for the 64 bytes around an address, which will be needed soon, or a little later: they come to the first-level or
# to the second-level cache while other work goes on. Any address may be asked for.
prefetch, prefetch_second = _prefetch(3), _prefetch(2)


@inline
def ask_for(at, n):
    """n bytes that will be needed a little later."""
    for line in range(0, n, LINE):
        prefetch_second(at + line)


@inline
def elements(like, at, n):
    """The n neighbouring elements from address `at` on, as an array."""
    return carray(pointer(like, at), (n,))
